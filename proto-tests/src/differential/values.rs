//! Made-up values and documents.

use bson::oid::ObjectId;
use bson::raw::CString;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Document, Regex, Timestamp, bson, doc};

use super::World;
use super::world::Punctuality;
use crate::shape::ItemIds;

/// The beginning of every `ObjectId` made up here; any other was made by a server.
pub(super) const OUR_OBJECT_IDS: [u8; 4] = [0xAB; 4];

fn object_id(number: i32) -> Bson {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&OUR_OBJECT_IDS);
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Bson::ObjectId(ObjectId::from_bytes(bytes))
}

pub(super) fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse().expect("a decimal"))
}

fn regex(pattern: &str) -> Bson {
    let part = |text: &str| CString::try_from(text).expect("no zero byte");
    Bson::RegularExpression(Regex {
        pattern: part(pattern),
        options: part("i"),
    })
}

/// What a key field may hold: values that are equal in other types, and values that only look equal.
pub(super) fn keys() -> Vec<Option<Bson>> {
    let values = [
        bson!(1),
        bson!(1.0),
        Bson::Int64(1),
        decimal("1.00"),
        bson!("1"),
        bson!(123),
        bson!("123"),
        bson!("12"),
        bson!("12_3"),
        bson!("a.*^$"),
        bson!("abc"),
        bson!("ABC"),
        bson!(""),
        Bson::Null,
        bson!(true),
        bson!("true"),
        object_id(1),
        Bson::DateTime(DateTime::from_millis(1_000)),
        bson!({ "a": 1, "b": "x" }),
        bson!({ "a": 1.0, "b": "x" }),
        bson!({ "b": "x", "a": 1 }),
        bson!({}),
        bson!({ "a": [1, 2] }),
        Bson::Double(f64::NAN),
        decimal("NaN"),
        bson!(-0.0),
        bson!(0),
        decimal("-0.0"),
        bson!(0.1),
        decimal("0.1"),
        decimal("0.10"),
        decimal("1E+3"),
        Bson::Int64(i64::MAX),
        Bson::Double(f64::INFINITY),
        regex("^a"),
        Bson::MinKey,
    ];
    values.into_iter().map(Some).chain([None]).collect()
}

impl World {
    /// A small value of a common type; filters and documents draw from the same few.
    pub fn scalar(&mut self) -> Bson {
        let number = self.between(0, 5);
        match self.below(16) {
            0..=4 => bson!(number),
            5 => bson!(f64::from(number)),
            6 => Bson::Int64(number.into()),
            7 => bson!(f64::from(number) + 0.5),
            8 => decimal(&format!("{number}.50")),
            9 | 10 => bson!(self.pick(&["a", "A", "b", "abc", "ABC", ""])),
            11 => Bson::Null,
            12 => Bson::Boolean(number > 2),
            13 => Bson::DateTime(DateTime::from_millis(self.some_time())),
            14 => object_id(number),
            _ => self.odd_scalar(),
        }
    }

    fn odd_scalar(&mut self) -> Bson {
        match self.below(8) {
            0 => Bson::Double(f64::NAN),
            1 => bson!(-0.0),
            2 => Bson::Timestamp(Timestamp { time: 0, increment: 7 }),
            3 => regex("^a"),
            4 => Bson::Undefined,
            5 => Bson::MaxKey,
            6 => Bson::Symbol("a".to_owned()),
            _ => Bson::Binary(Binary {
                subtype: BinarySubtype::Generic,
                bytes: vec![1, 2],
            }),
        }
    }

    /// A scalar, an array or a document.
    pub fn value(&mut self) -> Bson {
        match self.below(10) {
            0 => Bson::Array((0..self.below(4)).map(|_| self.scalar()).collect()),
            1 => bson!({ "x": self.scalar(), "y": self.scalar() }),
            2 => bson!([{ "x": self.scalar() }, { "x": self.scalar(), "y": [self.scalar()] }]),
            3 => bson!([[self.scalar()], self.scalar()]),
            _ => self.scalar(),
        }
    }

    /// A document to insert. Each has the field `n`, a number of its own.
    pub fn document(&mut self) -> Document {
        let mut document = Document::new();
        let id_first = self.chance(80);
        if id_first {
            self.append_id(&mut document);
        }
        document.insert("n", self.next_serial());
        self.append_keys(&mut document);
        self.append_time(&mut document);
        for name in ["qty", "quantity", "count", "history", "control", "tags"] {
            if self.chance(30) {
                document.insert(name, self.value());
            }
        }
        self.append_array(&mut document);
        for name in ["", "$x", "a.b"] {
            if self.chance(4) {
                document.insert(name, self.value());
            }
        }
        if self.chance(30) {
            document.insert(
                "nested",
                doc! { "x": self.value(), "y": { "z": self.scalar() }, "t": zero() },
            );
        }
        if self.chance(5) {
            document.insert("stamp", zero());
        }
        if self.chance(3) {
            document.insert("text", "x".repeat(self.pick(&[300, 900, 1500])));
        }
        if !id_first {
            self.append_id(&mut document);
        }
        let number = document.get_i32("n").unwrap_or_default();
        self.remember(number, &document);
        document
    }

    /// The array of an outlier: mostly about the threshold.
    fn append_array(&mut self, document: &mut Document) {
        let Some(outlier) = self.outlier.clone() else { return };
        if self.chance(85) {
            let array = self.long_array();
            document.insert(outlier.array, array);
        }
    }

    /// An array of a length about the threshold, or far from it.
    pub(super) fn long_array(&mut self) -> Bson {
        let Some(outlier) = &self.outlier else {
            return self.value();
        };
        let threshold = u32::try_from(outlier.threshold).unwrap_or(u32::MAX);
        let lengths = [
            0,
            1,
            threshold - 1,
            threshold,
            threshold + 1,
            threshold + 1,
            2 * threshold - 1,
            2 * threshold + 3,
            10 * threshold,
        ];
        let length = if self.below(200) == 0 {
            100 * threshold
        } else {
            self.pick(&lengths)
        };
        Bson::Array((0..length).map(|_| self.element()).collect())
    }

    /// An element: one in two has an equal in most arrays.
    pub(super) fn element(&mut self) -> Bson {
        match self.below(10) {
            0..=3 => bson!(self.between(0, 9)),
            4 => bson!(format!("user{:02}", self.between(0, 99))),
            5 | 6 => bson!({ "x": self.between(0, 5), "y": [self.scalar(), 1] }),
            _ => self.value(),
        }
    }

    fn append_keys(&mut self, document: &mut Document) {
        for field in 0..self.shape.key.len() {
            let value = if self.chance(1) {
                Some(self.no_key())
            } else {
                self.key_value(field)
            };
            if let Some(value) = value {
                document.insert(self.shape.key[field].clone(), value);
            }
        }
    }

    /// A value that cannot be a key.
    fn no_key(&mut self) -> Bson {
        self.pick(&[
            bson!([1, 2]),
            bson!([]),
            Bson::Undefined,
            Bson::Symbol("abc".to_owned()),
        ])
    }

    fn append_time(&mut self, document: &mut Document) {
        let Some(field) = self.shape.time.clone() else {
            return;
        };
        let first = match self.punctuality {
            Punctuality::Ascending => 4,
            Punctuality::Late => 2,
            Punctuality::Anything => 0,
        };
        let time = match first + self.below(25 - first) {
            0 => return,
            1 => self.pick(&[
                Bson::Null,
                bson!("yesterday"),
                Bson::Timestamp(Timestamp { time: 5, increment: 1 }),
            ]),
            2 | 3 => Bson::DateTime(DateTime::from_millis(self.some_time())),
            _ => Bson::DateTime(DateTime::from_millis(self.next_time())),
        };
        document.insert(field, time);
    }

    fn append_id(&mut self, document: &mut Document) {
        let id = match self.below(100) {
            0..=4 => return,
            5 => self.forbidden_id(),
            6..=12 if self.shape.item_ids == ItemIds::Unique => self.repeated_id(),
            _ => self.new_id(),
        };
        document.insert("_id", id);
    }

    /// An `_id` for what is to be made: one that another has, where there is to be only one of it.
    pub(super) fn new_or_given_id(&mut self) -> Bson {
        match self.some_id() {
            Some(id) if self.shape.item_ids == ItemIds::Unique && self.chance(30) => id,
            _ => self.new_id(),
        }
    }

    /// An `_id` that no other document has.
    fn new_id(&mut self) -> Bson {
        let number = self.next_serial();
        let id = match self.below(8) {
            0..=2 => bson!(number),
            3 => bson!(f64::from(number)),
            4 => Bson::Int64(number.into()),
            5 => bson!(format!("id{number}")),
            6 => object_id(number),
            _ => self.rare_id(number),
        };
        self.gave_id(&id);
        id
    }

    fn rare_id(&mut self, number: i32) -> Bson {
        match self.below(6) {
            0 => bson!({ "a": number, "b": { "c": "x" } }),
            1 => Bson::DateTime(DateTime::from_millis(number.into())),
            2 => bson!(f64::from(number) + 0.25),
            3 => decimal(&format!("{number}.75")),
            4 => Bson::Timestamp(Timestamp {
                time: 0,
                increment: number.unsigned_abs(),
            }),
            _ => Bson::Binary(Binary {
                subtype: BinarySubtype::Generic,
                bytes: number.to_be_bytes().to_vec(),
            }),
        }
    }

    /// An `_id` that another document has, perhaps as a number of another type.
    fn repeated_id(&mut self) -> Bson {
        match self.some_id() {
            None => Bson::Null,
            Some(Bson::Int32(number)) if self.chance(30) => bson!(f64::from(number)),
            Some(Bson::Int32(number)) if self.chance(10) => decimal(&format!("{number}.0")),
            Some(_) if self.chance(5) => Bson::Null,
            Some(id) => id,
        }
    }

    fn forbidden_id(&mut self) -> Bson {
        let forms = [
            bson!([1]),
            regex("a"),
            Bson::Undefined,
            bson!({ "$a": 1 }),
            bson!({ "a": 1, "$b": 2 }),
        ];
        self.pick(&forms)
    }
}

/// What a server fills in, at the top of a document.
fn zero() -> Bson {
    Bson::Timestamp(Timestamp { time: 0, increment: 0 })
}
