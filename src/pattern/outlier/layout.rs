//! The stored layout of outliers, version 1.
//!
//! ```text
//! shop.sales        { _id: 2, title: .., customers_purchased: [50 elements], has_extras: true,
//!                     has_extras_control: { v: 1, generation: ObjectId, count: 950, tail: [] } }
//! shop.extra_sales  { _id: "<generation>_0", book_id: 2, customers_purchased_extra: [950 elements],
//!                     count: 950, control: { v: 1, generation: ObjectId, from: 0 } }
//! ```
//!
//! The array consists of the base document's elements, then `count` elements of the pages of this
//! generation, by `from`, then the tail. Elements of pages beyond `count`, and pages of other
//! generations, are not part of the array. They will be counted by a later statement, or are
//! orphans. So the base document alone determines the array. An element of a page never changes,
//! nor does its position.

use bson::oid::ObjectId;
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{as_whole_number, elements, get, put, single};
use crate::pattern::shapes::OutlierShape;

/// The layout's version.
pub const VERSION: i32 = 1;

/// Fields of a page, and of a base document's control.
pub mod field {
    /// On a page, the number of its elements. In a base document, the number of elements on its
    /// pages.
    pub const COUNT: &str = "count";
    /// The control of a page.
    pub const CONTROL: &str = "control";
    /// The layout's version.
    pub const VERSION: &str = "v";
    /// The id that a base document and its pages share.
    pub const GENERATION: &str = "generation";
    /// The number of elements on earlier pages.
    pub const FROM: &str = "from";
    /// The newest elements, which are not on pages yet.
    pub const TAIL: &str = "tail";
}

/// The paths of a page's control fields.
pub mod path {
    /// See [`super::field::GENERATION`].
    pub const GENERATION: &str = "control.generation";
    /// See [`super::field::FROM`].
    pub const FROM: &str = "control.from";
}

/// The control of a base document.
#[derive(Clone, Debug, PartialEq)]
pub struct Extras {
    /// The generation of its pages.
    pub generation: ObjectId,
    /// The number of elements on pages that are part of the array.
    pub count: u64,
    /// The elements after those on pages.
    pub tail: RawArrayBuf,
}

impl Extras {
    /// No extras yet, with a new generation.
    #[must_use]
    pub fn none(generation: ObjectId) -> Self {
        let (count, tail) = (0, RawArrayBuf::new());
        Self {
            generation,
            count,
            tail,
        }
    }

    /// An estimate of the pages' size in bytes: assumes elements as long as those in the base
    /// document and the tail, and adds a margin. The real size may differ by any amount.
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

    /// The control as it is stored.
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

/// The kind of a stored document.
#[derive(Clone, Debug, PartialEq)]
pub enum DocumentState {
    /// A document without extras, as the application wrote it.
    Inline,
    /// A document with extras.
    Outlier(Extras),
    /// A document split by hand: it has the flag but no control.
    Unmanaged,
    /// A document with a control that cannot be read.
    Invalid,
}

impl DocumentState {
    /// The kind of a stored document.
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

/// The condition that a document is inline: it has no extras.
#[must_use]
pub fn is_typical(shape: &OutlierShape) -> RawDocumentBuf {
    let none = single("$exists", false);
    let mut condition = single(shape.control(), &none);
    put(&mut condition, shape.flag(), single("$ne", true));
    condition
}

/// The condition that a document is a base document of this generation.
#[must_use]
pub fn is_of_generation(shape: &OutlierShape, generation: ObjectId) -> RawDocumentBuf {
    let path = format!("{}.{}", shape.control(), field::GENERATION);
    single(&path, single("$eq", generation))
}

/// The number of elements on earlier pages. `None` if the page does not record it.
#[must_use]
pub fn begins_at(page: &RawDocument) -> Option<i64> {
    get(get(page, field::CONTROL)?.as_document()?, field::FROM).and_then(as_whole_number)
}

/// The path of the tail.
#[must_use]
pub fn tail(shape: &OutlierShape) -> String {
    format!("{}.{}", shape.control(), field::TAIL)
}

/// A document in its stored form: the base document, and the pages that must be stored before it.
#[derive(Clone, Debug)]
pub struct Split {
    /// The base document, or the whole document if it has no extras.
    pub base: RawDocumentBuf,
    /// The pages.
    pub pages: Vec<RawDocumentBuf>,
}

/// The stored form of an application's document. `generation` is used if the document gets extras.
/// The document must have an `_id`, no field that is reserved for the proxy, and the array's field once.
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

/// Whether a document has the array's field more than once. It cannot have extras: a pipeline that sets the
/// field sets all fields of that name.
#[must_use]
pub fn repeats_array(shape: &OutlierShape, document: &RawDocument) -> bool {
    let arrays = elements(document).filter(|element| element.name == shape.array().as_bytes());
    arrays.count() > 1
}

/// Whether an array has more elements than a base document may have.
#[must_use]
pub fn is_long(shape: &OutlierShape, array: &RawArray) -> bool {
    let threshold = usize::try_from(shape.threshold()).unwrap_or(usize::MAX);
    array.into_iter().nth(threshold).is_some()
}
