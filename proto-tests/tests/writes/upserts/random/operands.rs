//! Random operands of operators.

use bson::{Bson, bson, doc};
use rand::RngExt as _;

use super::RandomCases;

impl RandomCases {
    /// What an operator may be given.
    pub(super) fn operand(&mut self, operator: &str) -> Bson {
        match operator {
            "$inc" | "$mul" => self.any_number(),
            "$currentDate" => bson!(true),
            "$pop" => self.pick(&[bson!(1), bson!(-1)]),
            "$pullAll" => bson!([self.value(), self.value()]),
            "$bit" => {
                let number = self.random.random_range(0..100);
                let number = self.pick(&[bson!(number), bson!(i64::from(number))]);
                let operation = self.pick(&["and", "or", "xor"]);
                bson!({ operation: number, "or": 4 })
            }
            "$push" if self.chance(15) => {
                let sorted = bson!({ "y": self.pick(&[1, -1]), "n": 1 });
                let elements = bson!([{ "n": self.number(), "y": 1 }, { "y": self.number(), "n": 2 }, { "y": 1, "n": self.number() }]);
                bson!({ "$each": elements, "$sort": sorted, "$slice": self.pick(&[2, -2]) })
            }
            "$push" if self.chance(60) => {
                let mut push = doc! { "$each": [self.value(), self.value()] };
                if self.chance(40) {
                    push.insert("$position", self.random.random_range(-3..4));
                }
                if self.chance(40) {
                    push.insert("$slice", self.random.random_range(-3..4));
                }
                if self.chance(40) {
                    push.insert("$sort", self.pick(&[1, -1]));
                }
                Bson::Document(push)
            }
            "$addToSet" if self.chance(60) => bson!({ "$each": [self.value(), self.value(), self.value()] }),
            _ => self.value(),
        }
    }

    /// A number of any type, at its limits, too.
    pub(super) fn any_number(&mut self) -> Bson {
        let number = self.number();
        self.pick(&[
            number.clone(),
            number.clone(),
            number,
            bson!(i64::MAX),
            bson!(i64::MIN),
            bson!(i32::MIN),
            bson!(f64::MAX),
            bson!(f64::NAN),
            bson!(-0.0),
            Bson::Decimal128("1.5".parse().expect("a decimal")),
        ])
    }
}
