//! Random values and documents.

use bson::oid::ObjectId;
use bson::raw::CString;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Document, JavaScriptCodeWithScope, Regex, Timestamp, bson, doc};

use super::Generator;
use super::generator::Punctuality;
use super::grammar::{IdForm, IdPlace, IdType, KeyForm, OddName, Scalar, TimeForm, ValueForm};
use crate::shape::ItemIds;

/// The first bytes of every generated `ObjectId`. Any other comes from a server.
pub(super) const OUR_OBJECT_IDS: [u8; 4] = [0xAB; 4];

/// Two names of fields, of which the second is sent as the first.
pub(super) const TWICE: [&str; 2] = ["twice_", "twice~"];

fn object_id(number: i32) -> Bson {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&OUR_OBJECT_IDS);
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Bson::ObjectId(ObjectId::from_bytes(bytes))
}

pub(super) fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse().expect("a decimal"))
}

pub(super) fn regex(pattern: &str) -> Bson {
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
        bson!({ "a": Bson::Symbol("x".to_owned()) }),
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

impl Generator {
    /// A small value; filters and documents draw from the same few.
    pub fn scalar(&mut self) -> Bson {
        let number = self.between(0, 5);
        match self.take::<Scalar>() {
            Scalar::Int => bson!(number),
            Scalar::Double => bson!(f64::from(number)),
            Scalar::Long => Bson::Int64(number.into()),
            Scalar::Half => bson!(f64::from(number) + 0.5),
            Scalar::Decimal => decimal(&format!("{number}.50")),
            Scalar::String => bson!(self.pick(&["a", "A", "b", "abc", "ABC", ""])),
            Scalar::Null => Bson::Null,
            Scalar::Boolean => Bson::Boolean(number > 2),
            Scalar::Date => Bson::DateTime(DateTime::from_millis(self.some_time())),
            Scalar::ObjectId => object_id(number),
            other => odd_scalar(other),
        }
    }

    /// A scalar, an array or a document.
    pub fn value(&mut self) -> Bson {
        match self.take::<ValueForm>() {
            ValueForm::Scalar => self.scalar(),
            ValueForm::Array => Bson::Array((0..self.below(4)).map(|_| self.scalar()).collect()),
            ValueForm::Document => bson!({ "x": self.scalar(), "y": self.scalar() }),
            ValueForm::ArrayOfDocuments => {
                bson!([{ "x": self.scalar() }, { "x": self.scalar(), "y": [self.scalar()] }])
            }
            ValueForm::ArrayOfArrays => bson!([[self.scalar()], self.scalar()]),
            ValueForm::EmptyDocument => bson!({}),
            ValueForm::DocumentWithSymbol => bson!({ "x": Bson::Symbol("a".to_owned()), "y": self.scalar() }),
            ValueForm::DocumentWithEmptyTimestamp => bson!({ "x": zero() }),
            ValueForm::DollarInside => bson!({ "x": 1, "$f": 1 }),
            ValueForm::ReferenceInside => bson!({ "$ref": "things", "$id": self.between(0, 5) }),
        }
    }

    /// A document to insert. Each has the field `n`, a number of its own.
    pub fn document(&mut self) -> Document {
        let mut document = Document::new();
        let id_first = self.take::<IdPlace>() == IdPlace::First;
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
        self.append_odd_name(&mut document);
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
        if self.shape.item_ids == ItemIds::UniqueInKey && !self.moves && self.chance(7) {
            self.repeat_in_key(&mut document);
        }
        let number = document.get_i32("n").unwrap_or_default();
        self.remember(number, &document);
        document
    }

    /// Gives a document the `_id` and the key of another one.
    fn repeat_in_key(&mut self, document: &mut Document) {
        let Some((id, number)) = self.some_numbered_id() else {
            return;
        };
        let place = self.place_of(number);
        // The error of a duplicate would show a symbol as a string. An upsert may have given the key by a condition.
        if !self.has_given(&id) || place.values().any(|value| value.as_document().is_some()) {
            return;
        }
        for field in &self.shape.key {
            document.remove(field);
            if let Some(value) = place.get(field) {
                document.insert(field, value.clone());
            }
        }
        document.insert("_id", id);
    }

    /// Whether a document may have been given the `_id` and the key of another one.
    pub(super) fn repeats_id_in_key(&self, document: &Document) -> bool {
        let is_same = |(id, _): &&(Bson, i32)| Some(id) == document.get("_id");
        self.shape.item_ids == ItemIds::UniqueInKey && self.numbers.iter().filter(is_same).count() > 1
    }

    fn append_odd_name(&mut self, document: &mut Document) {
        let name = match self.take::<OddName>() {
            OddName::None => return,
            OddName::Empty => "",
            OddName::Dollar => "$x",
            OddName::Dotted => "a.b",
            OddName::Reference => {
                document.insert("reference", bson!({ "$ref": "things", "$id": 1 }));
                return;
            }
            OddName::LikeABucket => {
                document.insert("control", bson!({ "v": 1, "page": self.scalar(), "count": 1 }));
                return;
            }
        };
        document.insert(name, self.value());
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
            let value = match self.take::<KeyForm>() {
                KeyForm::NoKey => Some(self.no_key()),
                KeyForm::Usual => self.key_value(field),
            };
            if let Some(value) = value {
                document.insert(self.shape.key[field].clone(), value);
            }
        }
    }

    /// A value that cannot be a key.
    fn no_key(&mut self) -> Bson {
        let values = [
            bson!([1, 2]),
            bson!([]),
            Bson::Undefined,
            Bson::Symbol("abc".to_owned()),
        ];
        self.example("document.key.noKey", &values)
    }

    fn append_time(&mut self, document: &mut Document) {
        let Some(field) = self.shape.time.clone() else {
            return;
        };
        let punctuality = self.punctuality;
        let time = match self.take_where(|form: TimeForm| match punctuality {
            Punctuality::Ascending => form == TimeForm::Next,
            Punctuality::Late => matches!(form, TimeForm::Next | TimeForm::Past),
            Punctuality::Anything => true,
        }) {
            TimeForm::None => return,
            TimeForm::Odd => {
                let odd = [
                    Bson::Null,
                    bson!("yesterday"),
                    Bson::Timestamp(Timestamp { time: 5, increment: 1 }),
                    bson!({ "at": 1 }),
                ];
                self.example("document.time.odd", &odd)
            }
            TimeForm::Past => Bson::DateTime(DateTime::from_millis(self.some_time())),
            TimeForm::Next => Bson::DateTime(DateTime::from_millis(self.next_time())),
        };
        document.insert(field, time);
    }

    fn append_id(&mut self, document: &mut Document) {
        let is_unique = self.shape.item_ids == ItemIds::Unique;
        let id = match self.take_where(|form: IdForm| is_unique || form != IdForm::Repeated) {
            IdForm::None => {
                self.leave_id_to_server();
                return;
            }
            IdForm::Forbidden => self.forbidden_id(),
            IdForm::Repeated => self.repeated_id(),
            IdForm::New => self.new_id(),
        };
        document.insert("_id", id);
    }

    /// An `_id` for a new document: an existing one if duplicates are to be tried.
    pub(super) fn new_or_given_id(&mut self) -> Bson {
        match self.some_id() {
            Some(id) if self.shape.item_ids == ItemIds::Unique && self.chance(30) => id,
            _ => self.new_id(),
        }
    }

    /// An `_id` that no other document has.
    fn new_id(&mut self) -> Bson {
        let number = self.next_serial();
        let is_unique = self.shape.item_ids == ItemIds::Unique;
        let is_clustered = self.shape.is_clustered;
        let id = match self.take_where(|form: IdType| match form {
            // A second document with the same one is refused.
            IdType::EmptyTimestamp => is_unique,
            // On a clustered collection, mongod's error for a duplicate is an assertion.
            IdType::NotANumber => is_unique && !is_clustered,
            _ => true,
        }) {
            IdType::Int => bson!(number),
            IdType::Double => bson!(f64::from(number)),
            IdType::Long => Bson::Int64(number.into()),
            IdType::String => bson!(format!("id{number}")),
            IdType::ObjectId => object_id(number),
            IdType::Document => bson!({ "a": number, "b": { "c": "x" } }),
            IdType::Date => Bson::DateTime(DateTime::from_millis(number.into())),
            IdType::Fraction => bson!(f64::from(number) + 0.25),
            IdType::Decimal => decimal(&format!("{number}.75")),
            IdType::Timestamp => Bson::Timestamp(Timestamp {
                time: 0,
                increment: number.unsigned_abs(),
            }),
            IdType::Binary => Bson::Binary(Binary {
                subtype: BinarySubtype::Generic,
                bytes: number.to_be_bytes().to_vec(),
            }),
            IdType::Reference => bson!({ "$ref": "things", "$id": number }),
            IdType::DocumentWithSymbol => bson!({ "a": Bson::Symbol(format!("s{number}")) }),
            IdType::DocumentWithoutName => bson!({ "": number }),
            IdType::EmptyTimestamp => zero(),
            IdType::NotANumber => Bson::Double(f64::NAN),
        };
        // The error of a duplicate shows a symbol as a string on a plain collection.
        if !matches!(&id, Bson::Document(id) if matches!(id.get("a"), Some(Bson::Symbol(_)))) {
            self.gave_id(&id);
        }
        id
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
            bson!({ "a": { "$b": 1 } }),
            bson!({ "a": [{ "$b": 1 }] }),
            bson!({ "a": { "b": { "$c": 1 } } }),
            bson!({ "$id": 1 }),
        ];
        self.example("_id.forbidden", &forms)
    }
}

/// A scalar of a type, or of a value of its type, that few documents have.
fn odd_scalar(form: Scalar) -> Bson {
    let binary = |subtype, bytes: &[u8]| {
        Bson::Binary(Binary {
            subtype,
            bytes: bytes.to_vec(),
        })
    };
    match form {
        Scalar::NotANumber => Bson::Double(f64::NAN),
        Scalar::DecimalNotANumber => decimal("NaN"),
        Scalar::Infinity => Bson::Double(f64::INFINITY),
        Scalar::NegativeZero => bson!(-0.0),
        Scalar::Timestamp => Bson::Timestamp(Timestamp { time: 0, increment: 7 }),
        Scalar::EmptyTimestamp => zero(),
        Scalar::Regex => regex("^a"),
        Scalar::Undefined => Bson::Undefined,
        Scalar::MinKey => Bson::MinKey,
        Scalar::MaxKey => Bson::MaxKey,
        Scalar::Symbol => Bson::Symbol("a".to_owned()),
        Scalar::Uuid => binary(BinarySubtype::Uuid, &[7; 16]),
        Scalar::Code => Bson::JavaScriptCode("f".to_owned()),
        Scalar::CodeWithScope => Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope {
            code: "f".to_owned(),
            scope: doc! { "x": 1 },
        }),
        Scalar::DbPointer => db_pointer(),
        _ => binary(BinarySubtype::Generic, &[1, 2]),
    }
}

/// A deprecated type that can be made of bytes alone.
fn db_pointer() -> Bson {
    let mut bytes = vec![0x1D, 0, 0, 0, 0x0C, b'p', 0, 2, 0, 0, 0, b'd', 0];
    bytes.extend([7; 12]);
    bytes.push(0);
    bytes[0] = u8::try_from(bytes.len()).unwrap_or_default();
    let document = Document::from_reader(&*bytes).expect("a document of one field");
    document.get("p").cloned().expect("that field")
}

/// What a server fills in, at the top of a document.
fn zero() -> Bson {
    Bson::Timestamp(Timestamp { time: 0, increment: 0 })
}
