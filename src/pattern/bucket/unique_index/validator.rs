//! The clauses of the [validator](crate::pattern::bucket::validator) that keep items of one page apart.
//!
//! They use the page's array of items only, so they hold for any key. A page without arrays at the
//! indexed paths is checked by one set of its items' values. Only a page with arrays is checked by the set of
//! all elements. mongod evaluates a clause for every changed page, so the cheapest check comes first.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;

use super::definition::UniqueIndex;
use crate::command::document::{array_of, get, single};
use crate::pattern::bucket::expression::literal;
use crate::pattern::shapes::BucketShape;

/// The variable of a clause's expressions that contains the name of the index. mongod's error for a refused
/// write contains the expressions.
pub(super) const INDEX_NAME: &str = "mongoshape_unique_index";

/// A clause of the validator.
#[derive(Clone, Debug, PartialEq)]
pub struct ClauseOfIndex {
    /// The name of the index.
    pub index: String,
    /// The condition on pages.
    pub clause: RawDocumentBuf,
}

impl ClauseOfIndex {
    /// The clause of an index.
    #[must_use]
    pub fn of(shape: &BucketShape, index: &UniqueIndex) -> Self {
        Self {
            index: index.name().to_owned(),
            clause: clause(shape, index),
        }
    }
}

/// A clause as it is stored. `None`: it is not the clause of an index.
#[must_use]
pub fn clause_of_index(clause: &RawDocument) -> Option<ClauseOfIndex> {
    Some(ClauseOfIndex {
        index: index_of(clause)?.to_owned(),
        clause: clause.to_owned(),
    })
}

/// The name of the index of a clause.
fn index_of(clause: &RawDocument) -> Option<&str> {
    let RawBsonRef::Array(alternatives) = get(clause, "$or")? else {
        return None;
    };
    let last = alternatives.into_iter().flatten().last()?.as_document()?;
    let variables = get(get(get(last, "$expr")?.as_document()?, "$let")?.as_document()?, "vars")?;
    get(get(variables.as_document()?, INDEX_NAME)?.as_document()?, "$literal")?.as_str()
}

/// The condition that a page satisfies if no two of its items have an equal key in the index, and no path of
/// the index continues in an array.
#[must_use]
pub fn clause(shape: &BucketShape, index: &UniqueIndex) -> RawDocumentBuf {
    let mut without_arrays: Vec<RawDocumentBuf> = Vec::new();
    for path in index.in_items(shape) {
        for (end, _) in path.match_indices('.').chain([(path.len(), "")]) {
            let begin = path.get(..end).unwrap_or(path);
            let is_array = single("$type", "array");
            without_arrays.push(single(&format!("{}.{begin}", shape.items()), single("$not", is_array)));
        }
    }
    let by_values = single("$expr", named(index, distinct_values(shape, index)));
    without_arrays.push(match distinct_stored_values(shape, index) {
        Some(cheaper) => single("$or", array_of(&[single("$expr", cheaper), by_values])),
        None => by_values,
    });
    let alternatives = [
        single("$and", array_of(&without_arrays)),
        single("$expr", named(index, distinct_elements(shape, index))),
    ];
    single("$or", array_of(&alternatives))
}

/// The expression, with the name of the index.
fn named(index: &UniqueIndex, expression: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "$let": { "vars": single(INDEX_NAME, literal(index.name())), "in": expression } }
}

/// Whether the items of a page without arrays at the indexed paths have all indexed fields, and different
/// values. Costs a fraction of [`distinct_values`], because mongod builds no array for each item. `None`: the
/// index has no field of items.
fn distinct_stored_values(shape: &BucketShape, index: &UniqueIndex) -> Option<RawDocumentBuf> {
    let items = format!("${}", shape.items());
    // A path of an array of items leaves out the items without the field, so the set is too small then.
    let paths: Vec<String> = index.in_items(shape).map(|path| format!("{items}.{path}")).collect();
    let values = match paths.as_slice() {
        [] => return None,
        [path] => RawBson::String(path.clone()),
        paths => {
            let inputs: RawArrayBuf = paths.iter().map(String::as_str).collect();
            // The shortest array decides about the length.
            RawBson::Document(rawdoc! { "$zip": { "inputs": inputs } })
        }
    };
    Some(rawdoc! { "$eq": [{ "$size": { "$setUnion": [values] } }, { "$size": items }] })
}

/// Whether the items of a page without arrays at the indexed paths have different values.
fn distinct_values(shape: &BucketShape, index: &UniqueIndex) -> RawDocumentBuf {
    // A missing field in an array expression becomes null.
    let values: RawArrayBuf = index.in_items(shape).map(of_item).collect();
    let items = format!("${}", shape.items());
    rawdoc! { "$eq": [
        { "$size": { "$setUnion": [{ "$map": { "input": items.as_str(), "in": values } }] } },
        { "$size": items },
    ] }
}

/// Whether the items of a page have different keys, where an array has a key for each element. An item with
/// two arrays counts as without keys: the index itself refuses it.
fn distinct_elements(shape: &BucketShape, index: &UniqueIndex) -> RawDocumentBuf {
    let mut keys = rawdoc! { "$literal": [[]] };
    let mut through_arrays = RawArrayBuf::new();
    let mut arrays = RawArrayBuf::new();
    for path in index.in_items(shape) {
        for (end, _) in path.match_indices('.') {
            through_arrays.push(single("$isArray", of_item(path.get(..end).unwrap_or(path)).as_str()));
        }
        let value = of_item(path);
        arrays.push(rawdoc! { "$cond": [{ "$isArray": value.as_str() }, 1, 0] });
        keys = product(&keys, entries(&value));
    }
    if index.in_items(shape).nth(1).is_some() {
        let has_several = rawdoc! { "$gt": [{ "$add": arrays }, 1] };
        keys = rawdoc! { "$cond": [has_several, RawArrayBuf::new(), keys] };
    }
    let keys = rawdoc! { "$cond": [{ "$or": through_arrays }, RawBsonRef::Null, keys] };
    let items = format!("${}", shape.items());
    let each_size = rawdoc! { "$map": { "input": "$$keys", "in": { "$size": { "$setUnion": ["$$this"] } } } };
    let all = rawdoc! { "$reduce": {
        "input": "$$keys", "initialValue": [], "in": { "$concatArrays": ["$$value", "$$this"] },
    } };
    rawdoc! { "$let": {
        "vars": { "keys": { "$map": { "input": items, "in": keys } } },
        "in": { "$cond": [
            { "$in": [RawBsonRef::Null, "$$keys"] },
            false,
            { "$eq": [{ "$sum": each_size }, { "$size": { "$setUnion": [all] } }] },
        ] },
    } }
}

fn of_item(path: &str) -> String {
    format!("$$this.{path}")
}

/// The index entries of a value: see [`IndexKey`](super::IndexKey).
fn entries(value: &str) -> RawDocumentBuf {
    let empty: RawArrayBuf = [RawBsonRef::Undefined].into_iter().collect();
    let elements = rawdoc! { "$cond": [{ "$eq": [value, []] }, literal(&empty), value] };
    rawdoc! { "$cond": [{ "$isArray": value }, elements, [value]] }
}

/// The keys, each with one of the entries appended.
fn product(keys: &RawDocument, entries: RawDocumentBuf) -> RawDocumentBuf {
    let mut appended = RawArrayBuf::new();
    appended.push("$$key");
    let entry: RawArrayBuf = ["$$entry"].into_iter().collect();
    appended.push(&entry);
    let of_key = rawdoc! { "$map": { "input": "$$entries", "as": "entry", "in": { "$concatArrays": appended } } };
    let mut all = RawArrayBuf::new();
    all.push("$$value");
    all.push(rawdoc! { "$let": { "vars": { "key": "$$this" }, "in": of_key } });
    let mut product = RawDocumentBuf::new();
    product.append(cstr!("input"), keys);
    product.append(cstr!("initialValue"), RawArrayBuf::new());
    product.append(cstr!("in"), single("$concatArrays", &all));
    rawdoc! { "$let": { "vars": { "entries": entries }, "in": { "$reduce": product } } }
}
