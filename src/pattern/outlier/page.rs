//! Pages of extras: how elements are distributed over them, and how a tail is spilled.

use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::layout::{Extras, VERSION, field, path};
use crate::command::document::{array_of, as_whole_number, get, put, single};
use crate::pattern::shapes::OutlierShape;

/// The most bytes of a page's elements, far from the limit of a document. A single element may be
/// larger.
const MAX_BYTES: usize = 4 << 20;

/// The field for a page's size in a projection.
const BYTES: &str = "bytes";

/// The header of a page: where it begins, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtrasPage {
    /// The number of elements on earlier pages.
    pub from: u64,
    /// The number of its elements.
    pub count: u64,
    /// Its size in bytes.
    pub bytes: usize,
}

impl ExtrasPage {
    /// The projection that returns a page's header without its elements.
    #[must_use]
    pub fn projection() -> RawDocumentBuf {
        let mut projection = single(path::FROM, 1);
        put(&mut projection, field::COUNT, 1);
        put(&mut projection, BYTES, single("$bsonSize", "$$ROOT"));
        projection
    }

    /// Reads the header of a page in that projection.
    #[must_use]
    pub fn parse(page: &RawDocument) -> Option<Self> {
        let bytes = get(page, BYTES).and_then(as_whole_number)?;
        let from = get(get(page, field::CONTROL)?.as_document()?, field::FROM).and_then(as_whole_number)?;
        let count = get(page, field::COUNT).and_then(as_whole_number)?;
        Some(Self {
            from: u64::try_from(from).ok()?,
            count: u64::try_from(count).ok()?,
            bytes: usize::try_from(bytes).ok()?,
        })
    }

    /// The number of elements up to its end.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.from.saturating_add(self.count)
    }
}

/// The `_id` of a page.
fn id(generation: ObjectId, from: u64) -> String {
    format!("{generation}_{from}")
}

/// The pages for these elements. The first element is number `from` of all extras.
#[must_use]
pub fn begun<'e>(
    shape: &OutlierShape,
    reference: RawBsonRef<'_>,
    generation: ObjectId,
    from: u64,
    elements: impl Iterator<Item = RawBsonRef<'e>>,
) -> Vec<RawDocumentBuf> {
    let mut pages = Vec::new();
    let mut filling = PageBuilder::new(from);
    for element in elements {
        if !filling.has_space_for(shape, element) {
            let next = PageBuilder::new(filling.end());
            pages.push(std::mem::replace(&mut filling, next).page(shape, reference, generation));
        }
        filling.push(element);
    }
    if filling.count > 0 {
        pages.push(filling.page(shape, reference, generation));
    }
    pages
}

/// A page that is being filled.
struct PageBuilder {
    from: u64,
    count: u64,
    elements: RawArrayBuf,
}

impl PageBuilder {
    fn new(from: u64) -> Self {
        let elements = RawArrayBuf::new();
        Self {
            from,
            count: 0,
            elements,
        }
    }

    fn end(&self) -> u64 {
        self.from.saturating_add(self.count)
    }

    fn has_space_for(&self, shape: &OutlierShape, element: RawBsonRef<'_>) -> bool {
        has_space(shape, self.count, self.elements.as_bytes().len(), element)
    }

    fn push(&mut self, element: RawBsonRef<'_>) {
        self.elements.push(element);
        self.count = self.count.saturating_add(1);
    }

    fn page(self, shape: &OutlierShape, reference: RawBsonRef<'_>, generation: ObjectId) -> RawDocumentBuf {
        let mut control = RawDocumentBuf::new();
        control.append(cstr!("v"), VERSION);
        control.append(cstr!("generation"), generation);
        control.append(cstr!("from"), i64::try_from(self.from).unwrap_or(i64::MAX));
        let mut page = single("_id", id(generation, self.from));
        put(&mut page, shape.reference(), reference);
        put(&mut page, shape.extras_array(), &self.elements);
        put(&mut page, field::COUNT, i32::try_from(self.count).unwrap_or(i32::MAX));
        put(&mut page, field::CONTROL, &control);
        page
    }
}

fn has_space(shape: &OutlierShape, count: u64, bytes: usize, element: RawBsonRef<'_>) -> bool {
    let weight = single("e", element).as_bytes().len();
    count == 0 || (count < u64::from(shape.max_items()) && bytes.saturating_add(weight) <= MAX_BYTES)
}

/// The statements that move a tail to pages. They are executed in this order, each after the one
/// before.
#[derive(Clone, Debug)]
pub struct Move {
    /// The element of `updates` that appends to the last page. Misses if the page has changed.
    pub append: Option<RawDocumentBuf>,
    /// New pages. A page may exist already: then it has at least these elements.
    pub pages: Vec<RawDocumentBuf>,
    /// The element of `updates` that adds the elements to the base document's count and removes
    /// them from its tail.
    pub count: RawDocumentBuf,
}

/// Moves the tail of the document `id`. `last` is the document's last page. Elements that are on
/// pages already, because an earlier spill did not finish, are only counted. `None` if there is
/// nothing to move, or if referenced pages are missing.
#[must_use]
pub fn moving(shape: &OutlierShape, id: RawBsonRef<'_>, extras: &Extras, last: Option<ExtrasPage>) -> Option<Move> {
    let tail: Vec<RawBsonRef<'_>> = extras.tail.into_iter().flatten().collect();
    let end = last.map_or(0, |last| last.end());
    let ahead = usize::try_from(end.checked_sub(extras.count)?).ok()?;
    if tail.is_empty() {
        return None;
    }
    let rest = tail.get(ahead..).unwrap_or_default();
    let mut appended = RawArrayBuf::new();
    let mut count = 0_usize;
    let append = last.and_then(|last| {
        for element in rest {
            let held = last.count.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
            let bytes = last.bytes.saturating_add(appended.as_bytes().len());
            if !has_space(shape, held, bytes, *element) {
                break;
            }
            appended.push(*element);
            count = count.saturating_add(1);
        }
        (count > 0).then(|| appending(shape, extras.generation, &last, &appended, count))
    });
    let begun_at = end.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    let elements = rest.iter().skip(count).copied();
    let pages = begun(shape, id, extras.generation, begun_at, elements);
    let count = counting(shape, id, extras, tail.len());
    Some(Move { append, pages, count })
}

fn appending(
    shape: &OutlierShape,
    generation: ObjectId,
    last: &ExtrasPage,
    elements: &RawArrayBuf,
    count: usize,
) -> RawDocumentBuf {
    let mut query = single("_id", id(generation, last.from));
    put(&mut query, field::COUNT, i64::try_from(last.count).unwrap_or(i64::MAX));
    let mut change = single("$push", single(shape.extras_array(), single("$each", elements)));
    put(
        &mut change,
        "$inc",
        single(field::COUNT, i32::try_from(count).unwrap_or(i32::MAX)),
    );
    let mut statement = single("q", query);
    put(&mut statement, "u", change);
    statement
}

fn counting(shape: &OutlierShape, id: RawBsonRef<'_>, extras: &Extras, moved: usize) -> RawDocumentBuf {
    let control = |name: &str| format!("{}.{name}", shape.control());
    let mut query = single("_id", single("$eq", id));
    put(&mut query, &control(field::GENERATION), extras.generation);
    let before = i64::try_from(extras.count).unwrap_or(i64::MAX);
    put(&mut query, &control(field::COUNT), before);
    let moved = i64::try_from(moved).unwrap_or(i64::MAX);
    let mut statement = single("q", query);
    if moved == 1 {
        // Cheaper than a pipeline.
        let mut change = single("$pop", single(&control(field::TAIL), -1));
        put(
            &mut change,
            "$set",
            single(&control(field::COUNT), before.saturating_add(moved)),
        );
        put(&mut statement, "u", change);
        return statement;
    }
    let tail = format!("${}", control(field::TAIL));
    let size = single("$size", tail.as_str());
    // `$slice` refuses a length of 0.
    let mut slice = RawArrayBuf::new();
    slice.push(tail.as_str());
    slice.push(moved);
    slice.push(&size);
    let mut is_longer = RawArrayBuf::new();
    is_longer.push(&size);
    is_longer.push(moved);
    let mut rest = RawArrayBuf::new();
    rest.push(single("$gt", &is_longer));
    rest.push(single("$slice", &slice));
    rest.push(RawArrayBuf::new());
    let mut changes = single(&control(field::COUNT), before.saturating_add(moved));
    put(&mut changes, &control(field::TAIL), single("$cond", &rest));
    put(&mut statement, "u", array_of(&[single("$set", changes)]));
    statement
}

/// The filter for a document's pages of one generation.
#[must_use]
pub fn of_generation(shape: &OutlierShape, reference: RawBsonRef<'_>, generation: ObjectId) -> RawDocumentBuf {
    let mut filter = single(shape.reference(), single("$eq", reference));
    put(&mut filter, path::GENERATION, generation);
    filter
}

/// The element of `deletes` for the pages of one generation.
#[must_use]
pub fn removal(shape: &OutlierShape, reference: RawBsonRef<'_>, generation: ObjectId) -> RawDocumentBuf {
    let mut statement = single("q", of_generation(shape, reference, generation));
    put(&mut statement, "limit", 0);
    statement
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::outlier::sample;

    fn moved(tail: &[&str], last: Option<ExtrasPage>) -> Move {
        let extras = Extras {
            generation: ObjectId::from_bytes([0; 12]),
            count: last.map_or(0, |last| last.end()),
            tail: tail.iter().copied().collect(),
        };
        moving(&sample(), 2.into(), &extras, last).expect("a tail")
    }

    #[test]
    fn one_element_is_taken_off_without_a_pipeline() {
        let last = ExtrasPage {
            from: 0,
            count: 3,
            bytes: 100,
        };
        let one = moved(&["a"], Some(last));
        let expected =
            rawdoc! { "$pop": { "has_extras_control.tail": -1 }, "$set": { "has_extras_control.count": 4_i64 } };
        assert_eq!(one.count.get_document("u").unwrap(), &*expected);
        assert!(one.append.is_some() && one.pages.is_empty());
        let two = moved(&["a", "b"], Some(last));
        assert!(two.count.get_array("u").is_ok());
    }

    #[test]
    fn elements_beyond_a_full_page_start_another_page() {
        let last = ExtrasPage {
            from: 0,
            count: 999,
            bytes: 100,
        };
        let two = moved(&["a", "b"], Some(last));
        assert!(two.append.is_some());
        let begun: Vec<_> = two.pages.iter().map(|page| page.get_str("_id").unwrap()).collect();
        assert_eq!(begun, ["000000000000000000000000_1000"]);
    }

    #[test]
    fn page_facts_are_parsed_from_the_projected_document() {
        let page = rawdoc! { "_id": "x", "count": 3, "control": { "from": 1000_i64 }, "bytes": 500 };
        let facts = ExtrasPage {
            from: 1000,
            count: 3,
            bytes: 500,
        };
        assert_eq!(ExtrasPage::parse(&page), Some(facts));
        assert_eq!(facts.end(), 1003);
    }
}
