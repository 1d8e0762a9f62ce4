//! Random updates of the array of an outlier.

use bson::{Bson, Document, bson, doc};

use super::Change;
use crate::differential::Generator;

impl Generator {
    /// What is pushed to the array of an outlier.
    pub(super) fn pushed_about(&mut self) -> Bson {
        let length = self.pick(&[0, 1, 1, 2, 5, 12]);
        let each: Vec<Bson> = (0..length).map(|_| self.element()).collect();
        let mut pushed = doc! { "$each": each };
        let (position, slice) = (self.position(), self.position());
        let sign = self.pick(&[1, -1]);
        if self.chance(30) {
            pushed.insert("$position", sign * position);
        }
        if self.chance(30) {
            pushed.insert("$slice", -sign * slice);
        }
        if self.chance(20) {
            pushed.insert(
                "$sort",
                self.pick(&[bson!(1), bson!(-1), bson!({ "x": 1 }), bson!({ "y.0": -1 })]),
            );
        }
        Bson::Document(pushed)
    }

    /// The operand of an `$addToSet` on the array of an outlier. Most arrays contain half of its values. Up to 16
    /// values are looked for in pages. 18 are evaluated on a copy.
    pub(super) fn added_to_set(&mut self) -> Bson {
        match self.pick(&[None, None, None, Some(0), Some(1), Some(2), Some(5), Some(18)]) {
            None => self.element(),
            Some(length) => {
                let each: Vec<Bson> = (0..length).map(|_| self.element()).collect();
                bson!({ "$each": each })
            }
        }
    }

    /// A stage about the array of an outlier.
    pub(super) fn stage_of_array(&mut self) -> Bson {
        let array = bson!({ "$cond": [{ "$isArray": "$tags" }, "$tags", []] });
        match self.below(6) {
            0 => bson!({ "$set": { "tags": { "$concatArrays": [array, [self.scalar(), 1], ["$n"]] } } }),
            1 => bson!({ "$set": { "tags": { "$slice": [array, 1 + self.position()] } } }),
            2 => bson!({ "$set": { "tags": { "$reverseArray": array } } }),
            3 => bson!({ "$set": { "qty": { "$size": array } } }),
            4 => bson!({ "$set": { "history": "$tags" } }),
            _ => bson!({ "$replaceWith": { "_id": "$_id", "n": "$n", "tags": array, "k": "$k" } }),
        }
    }

    /// An update of an outlier's array that fails on no document that satisfies its needs.
    pub(super) fn sure_change_of_array(&mut self, is_array: Document) -> Change {
        let (update, needs) = match self.below(10) {
            0 => (bson!({ "$push": { "tags": self.element() } }), is_array),
            8 => (bson!({ "$addToSet": { "tags": self.added_to_set() } }), is_array),
            9 => (
                bson!({ "$addToSet": { "tags": self.added_to_set() }, "$set": { "qty": self.value() } }),
                is_array,
            ),
            1 | 2 => (bson!({ "$push": { "tags": self.pushed_about() } }), is_array),
            3 => (bson!({ "$set": { "tags": self.long_array() } }), doc! {}),
            4 => (bson!({ "$pop": { "tags": self.pick(&[1, -1]) } }), is_array),
            5 => (bson!([self.stage_of_array()]), doc! {}),
            6 => {
                let position = self.position();
                let needs = doc! { "$and": [is_array, { format!("tags.{position}"): { "$exists": true } }] };
                (bson!({ "$set": { format!("tags.{position}"): self.value() } }), needs)
            }
            _ => (
                bson!({ "$push": { "tags": self.element() }, "$set": { "qty": self.value() } }),
                is_array,
            ),
        };
        Change {
            needs,
            ..Change::of(update)
        }
    }
}
