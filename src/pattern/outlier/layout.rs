//! The stored layout of outliers, version 1.
//!
//! ```text
//! shop.sales        { _id: 2, title: .., customers_purchased: [50 elements], has_extras: true,
//!                     has_extras_control: { v: 1, generation: ObjectId, count: 950, tail: [] } }
//! shop.extra_sales  { _id: "<generation>_0", book_id: 2, customers_purchased_extra: [950 elements],
//!                     count: 950, control: { v: 1, generation: ObjectId, from: 0 } }
//! ```
//!
//! The array is that of the base document, then `count` elements of the pages of this generation, by `from`,
//! then the tail. Elements of pages beyond `count`, and pages of other generations, do not count: they are
//! about to be counted, or are orphans. So the base document alone determines the array. An element of a page
//! never changes, nor does its position.

use bson::oid::ObjectId;
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{as_whole_number, get, put, single};
use crate::pattern::shapes::OutlierShape;

/// The layout's version.
pub const VERSION: i32 = 1;

/// Fields of a page, and of what a base document says of its pages.
pub mod field {
    /// Elements of a page; of a base document, elements in its pages.
    pub const COUNT: &str = "count";
    /// What a page says of itself.
    pub const CONTROL: &str = "control";
    /// The layout's version.
    pub const VERSION: &str = "v";
    /// Which pages belong together.
    pub const GENERATION: &str = "generation";
    /// How many elements lie in pages before this one.
    pub const FROM: &str = "from";
    /// The newest elements, which are in no page yet.
    pub const TAIL: &str = "tail";
}

/// The paths of a page's own fields.
pub mod path {
    /// See [`super::field::GENERATION`].
    pub const GENERATION: &str = "control.generation";
    /// See [`super::field::FROM`].
    pub const FROM: &str = "control.from";
}

/// What a base document says of its extras.
#[derive(Clone, Debug, PartialEq)]
pub struct Extras {
    /// Which pages are its own.
    pub generation: ObjectId,
    /// How many elements of theirs.
    pub count: u64,
    /// The elements behind those.
    pub tail: RawArrayBuf,
}

impl Extras {
    /// None yet, of a new generation.
    #[must_use]
    pub fn none(generation: ObjectId) -> Self {
        let (count, tail) = (0, RawArrayBuf::new());
        Self {
            generation,
            count,
            tail,
        }
    }

    /// What the pages are expected to weigh, in bytes: their elements as long as those in the base document
    /// and the tail, and some more. They may be of any other length.
    #[must_use]
    pub fn expected_bytes(&self, shape: &OutlierShape, base: &RawDocument) -> usize {
        const LEAST: usize = 64 * 1024;
        const AROUND_ELEMENT: usize = 16;
        let base = get(base, shape.array()).and_then(RawBsonRef::as_array);
        let (mut bytes, mut count) = (0_usize, 0_usize);
        for array in base.into_iter().chain([&*self.tail]) {
            bytes = bytes.saturating_add(array.as_bytes().len());
            count = count.saturating_add(array.into_iter().count());
        }
        let length = bytes.checked_div(count).unwrap_or(LEAST).saturating_add(AROUND_ELEMENT);
        let pages = usize::try_from(self.count).unwrap_or(usize::MAX).saturating_mul(length);
        pages.saturating_add(pages / 4).saturating_add(LEAST)
    }

    /// As it is stored.
    #[must_use]
    pub fn document(&self) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("v"), VERSION);
        document.append(cstr!("generation"), self.generation);
        document.append(cstr!("count"), i64::try_from(self.count).unwrap_or(i64::MAX));
        document.append(cstr!("tail"), &self.tail);
        document
    }

    fn parse(control: &RawDocument) -> Option<Self> {
        let version = get(control, field::VERSION).and_then(as_whole_number)?;
        let generation = get(control, field::GENERATION)?.as_object_id()?;
        let count = get(control, field::COUNT).and_then(as_whole_number)?;
        let tail = get(control, field::TAIL)?.as_array()?;
        (version == i64::from(VERSION)).then_some(Self {
            generation,
            count: u64::try_from(count).ok()?,
            tail: tail.to_owned(),
        })
    }
}

/// What a stored document is.
#[derive(Clone, Debug, PartialEq)]
pub enum DocumentState {
    /// As the application wrote it.
    Inline,
    /// One with extras.
    Outlier(Extras),
    /// It has the flag, and does not say what its extras are: written by hand.
    Unmanaged,
    /// What it says of its extras cannot be read.
    Invalid,
}

impl DocumentState {
    /// That of a stored document.
    #[must_use]
    pub fn of(shape: &OutlierShape, stored: &RawDocument) -> Self {
        match (get(stored, shape.flag()), get(stored, shape.control())) {
            (_, Some(RawBsonRef::Document(control))) => Extras::parse(control).map_or(Self::Invalid, Self::Outlier),
            (_, Some(_)) => Self::Invalid,
            (Some(RawBsonRef::Boolean(true)), None) => Self::Unmanaged,
            _ => Self::Inline,
        }
    }
}

/// The condition on a typical document: it has no extras.
#[must_use]
pub fn is_typical(shape: &OutlierShape) -> RawDocumentBuf {
    let none = single("$exists", false);
    let mut condition = single(shape.control(), &none);
    put(&mut condition, shape.flag(), single("$ne", true));
    condition
}

/// The condition on a base document of this generation.
#[must_use]
pub fn is_of_generation(shape: &OutlierShape, generation: ObjectId) -> RawDocumentBuf {
    let path = format!("{}.{}", shape.control(), field::GENERATION);
    single(&path, single("$eq", generation))
}

/// How many elements lie in pages before this one. `None` where it does not say so.
#[must_use]
pub fn begins_at(page: &RawDocument) -> Option<i64> {
    get(get(page, field::CONTROL)?.as_document()?, field::FROM).and_then(as_whole_number)
}

/// The path of the tail.
#[must_use]
pub fn tail(shape: &OutlierShape) -> String {
    format!("{}.{}", shape.control(), field::TAIL)
}

/// A document as it is stored: the base, and the pages that must be there before it.
#[derive(Clone, Debug)]
pub struct Split {
    /// The base document, or all of it.
    pub base: RawDocumentBuf,
    /// The pages.
    pub pages: Vec<RawDocumentBuf>,
}

/// How a document of the application is stored. `generation` is used where it has extras. A document without
/// `_id`, or with a field of the proxy's own, is not the caller's to give.
#[must_use]
pub fn split(shape: &OutlierShape, document: &RawDocument, generation: ObjectId) -> Split {
    let threshold = usize::try_from(shape.threshold()).unwrap_or(usize::MAX);
    let array = get(document, shape.array()).and_then(RawBsonRef::as_array);
    let length = array.map_or(0, |array| array.into_iter().count());
    let (Some(array), Some(id)) = (array.filter(|_| length > threshold), get(document, "_id")) else {
        let base = document.to_owned();
        return Split {
            base,
            pages: Vec::new(),
        };
    };
    let kept: RawArrayBuf = array.into_iter().flatten().take(threshold).collect();
    let mut base = RawDocumentBuf::new();
    for (name, value) in document.iter().flatten() {
        if name.as_str() == shape.array() {
            base.append(name, &kept);
        } else {
            base.append(name, value);
        }
    }
    let extras = Extras {
        generation,
        count: u64::try_from(length.saturating_sub(threshold)).unwrap_or(u64::MAX),
        tail: RawArrayBuf::new(),
    };
    put(&mut base, shape.flag(), true);
    put(&mut base, shape.control(), extras.document());
    let rest = array.into_iter().flatten().skip(threshold);
    let pages = super::page::begun(shape, id, generation, 0, rest);
    Split { base, pages }
}

/// Whether an array has more elements than a base document may hold.
#[must_use]
pub fn is_long(shape: &OutlierShape, array: &RawArray) -> bool {
    let threshold = usize::try_from(shape.threshold()).unwrap_or(usize::MAX);
    array.into_iter().nth(threshold).is_some()
}
