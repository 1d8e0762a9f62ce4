//! Random conditions of filters.

use bson::{Bson, Document, bson};
use rand::RngExt as _;

use super::{PATHS, RandomCases};

impl RandomCases {
    /// A filter on some of the paths.
    pub(super) fn filter(&mut self, depth: u32) -> Document {
        let mut filter = Document::new();
        let most = if self.chance(70) { 2 } else { 5 };
        for path in self.some(&PATHS, most) {
            let condition = self.condition();
            filter.insert(path, condition);
        }
        if depth > 0 && self.chance(20) {
            let name = self.pick(&["$and", "$or", "$nor"]);
            let alternatives: Vec<Document> = (0..self.random.random_range(1..3))
                .map(|_| self.filter(depth - 1))
                .collect();
            filter.insert(name, alternatives);
        }
        filter
    }

    fn condition(&mut self) -> Bson {
        match self.random.random_range(0..18) {
            0 => bson!({ "$eq": self.value() }),
            1 => bson!({ "$in": [self.value()] }),
            2 => bson!({ "$in": [self.value(), self.value()] }),
            3 => bson!({ "$all": [self.value()] }),
            4 => bson!({ "$gt": self.number(), "$lt": 1000 }),
            5 => bson!({ "$ne": self.number() }),
            6 => bson!({ "$exists": true, "$eq": self.value() }),
            7 => bson!({ "$not": { "$gt": 5 } }),
            8 => bson!({ "$elemMatch": { "x": 1 } }),
            9 => bson!({ "$nin": [self.value(), self.value()] }),
            10 => bson!({ "$regex": "^x" }),
            11 => self.rare_condition(),
            _ => self.any_equality(),
        }
    }

    fn rare_condition(&mut self) -> Bson {
        let value = self.value();
        let forms = [
            bson!({ "$in": [] }),
            bson!({ "$nin": [] }),
            bson!({ "$in": [value.clone(), value.clone()] }),
            bson!({ "$in": [1, 1.0] }),
            bson!({ "$all": [] }),
            bson!({ "$all": [value.clone(), value.clone()] }),
            bson!({ "$all": [{ "$elemMatch": { "x": 1 } }] }),
            bson!({ "$not": { "$ne": 5 } }),
            bson!({ "$not": { "$in": [] } }),
            bson!({ "$elemMatch": { "x": { "$in": [] } } }),
            bson!({ "$elemMatch": { "$gt": 1, "$eq": 2 } }),
            bson!({ "$not": { "$all": [] } }),
            bson!({ "$type": "int", "$eq": value }),
            bson!({ "$size": 1, "$mod": [2, 0] }),
            bson!({ "$exists": false }),
            bson!({ "$gte": 5, "$lte": 5 }),
            bson!({ "$bitsAllSet": 0 }),
        ];
        self.pick(&forms)
    }

    fn any_equality(&mut self) -> Bson {
        if self.chance(15) {
            self.any_number()
        } else {
            self.value()
        }
    }
}
