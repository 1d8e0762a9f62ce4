//! The newest or oldest item of each key, by a skip scan of the page index.
//!
//! A pipeline such as `[{$sort: {at: -1}}, {$group: {_id: "$key", last: {$first: "$text"}}}]` needs one
//! item of each key. mongod reads the first or the last page of each key by a `DISTINCT_SCAN`, which skips
//! from one key to the next. If that page shows that the items of the key are in the order of time, its
//! first or last item is the one. Otherwise all items of the key are read. The client's stages then group
//! the items that are left.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::expression::{call, choice, field, shows_time_order};
use super::layout::{VERSION, path};
use super::predicate_pushdown::is_page;
use super::unwind::{FieldOrder, single_sort, unpack};
use crate::command::document::{array_of, as_whole_number, first_field, get, put, single};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unwound::behind;
use crate::pattern::unwound::distinct::list;

/// The item of a key that a pipeline needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extreme {
    Newest,
    Oldest,
}

impl Extreme {
    /// The item that is first in the order of time.
    fn first(is_ascending: bool) -> Self {
        if is_ascending { Self::Oldest } else { Self::Newest }
    }

    fn last(is_ascending: bool) -> Self {
        Self::first(!is_ascending)
    }
}

/// The stages on buckets that answer a pipeline which needs one item of each key. `None` for any other
/// pipeline. If several items of a key have that time, mongod does not define which one it is.
///
/// The stages fail if the pages of a key that is not in the order of time exceed 100 MB: `$graphLookup`
/// spills nothing to disk.
#[must_use]
pub fn of_aggregate(shape: &BucketShape, collection: &str, pipeline: &[RawDocumentBuf]) -> Option<Vec<RawDocumentBuf>> {
    let [key] = shape.key() else { return None };
    let extreme = extreme_of_keys(key, shape.time()?, pipeline)?;
    let mut stages = pages_of_keys(shape, collection, key, extreme);
    stages.extend(unpack(shape, FieldOrder::of_stages(pipeline)));
    stages.extend(behind(pipeline));
    Some(stages)
}

fn extreme_of_keys(key: &str, time: &str, pipeline: &[RawDocumentBuf]) -> Option<Extreme> {
    let (first, rest) = pipeline.split_first()?;
    let (is_ascending, group) = match first_field(first)? {
        ("$sort", RawBsonRef::Document(sort)) => (Some(is_time_ascending(key, time, sort)?), rest.first()?),
        _ => (None, first),
    };
    let ("$group", RawBsonRef::Document(group)) = first_field(group)? else {
        return None;
    };
    // In a document, a missing key and a null one would be two groups, whose items are on the same pages.
    if !is_path(get(group, "_id")?, key) {
        return None;
    }
    let accumulators = group.iter().flatten().filter(|(name, _)| name.as_str() != "_id");
    let mut extremes = accumulators.map(|(_, accumulator)| extreme_of(time, is_ascending, accumulator));
    let extreme = extremes.next()??;
    extremes.all(|other| other == Some(extreme)).then_some(extreme)
}

/// The direction of the time in a sort by it and the key alone: the sort orders the items of a key by time.
fn is_time_ascending(key: &str, time: &str, sort: &RawDocument) -> Option<bool> {
    let mut is_ascending = None;
    for part in sort {
        let (name, direction) = part.ok()?;
        let direction = as_whole_number(direction).filter(|direction| matches!(direction, 1 | -1))?;
        match name.as_str() {
            name if name == time && is_ascending.is_none() => is_ascending = Some(direction == 1),
            name if name == key => {}
            _ => return None,
        }
    }
    is_ascending
}

/// Whether an expression is the path of a field.
fn is_path(expression: RawBsonRef<'_>, name: &str) -> bool {
    expression.as_str().and_then(|path| path.strip_prefix('$')) == Some(name)
}

/// The item of each key that an accumulator needs. `is_ascending`: the order by time in which the items reach
/// the accumulator.
fn extreme_of(time: &str, is_ascending: Option<bool>, accumulator: RawBsonRef<'_>) -> Option<Extreme> {
    let accumulator = accumulator.as_document()?;
    let (operator, argument) = first_field(accumulator).filter(|_| accumulator.iter().count() == 1)?;
    match operator {
        "$first" => is_ascending.map(Extreme::first),
        "$last" => is_ascending.map(Extreme::last),
        "$max" if is_path(argument, time) => Some(Extreme::Newest),
        "$min" if is_path(argument, time) => Some(Extreme::Oldest),
        "$top" | "$bottom" => {
            let (name, is_ascending) = single_sort(get(argument.as_document()?, "sortBy")?.as_document()?)?;
            let extreme = if operator == "$top" {
                Extreme::first
            } else {
                Extreme::last
            };
            (name == time).then(|| extreme(is_ascending))
        }
        _ => None,
    }
}

/// The stages that return a page of one item for each key whose items are in the order of time, and all
/// pages of any other key.
fn pages_of_keys(shape: &BucketShape, collection: &str, key: &str, extreme: Extreme) -> Vec<RawDocumentBuf> {
    let (direction, end) = match extreme {
        Extreme::Newest => (-1, "$last"),
        Extreme::Oldest => (1, "$first"),
    };
    let mut order = single(key, direction);
    put(&mut order, path::PAGE, direction);
    let mut items = RawArrayBuf::new();
    items.push(single(end, field(shape.items())));
    let mut page = single(key, field(key));
    put(&mut page, shape.items(), &items);
    let mut group = single("_id", field(key));
    put(&mut group, "page", single("$first", if_page_is_in_order(shape, page)));
    let is_out_of_order = call("$eq", "$page", RawBson::Null);
    let lookup = all_pages(collection, key, &is_out_of_order);
    let pages = choice(&is_out_of_order, "$pages", list(["$page".into()]));
    vec![
        single("$sort", &order),
        single("$group", &group),
        single("$graphLookup", &lookup),
        single("$project", single("page", pages)),
        single("$unwind", "$page"),
        single("$replaceRoot", single("newRoot", "$page")),
        single("$unionWith", pages_without_key(collection, key)),
    ]
}

/// The `$unionWith` of the pages of items without the key, which `$graphLookup` does not find. An item that
/// is returned twice does not change the result.
fn pages_without_key(collection: &str, key: &str) -> RawDocumentBuf {
    let mut filter = single(key, RawBson::Null);
    filter.append(cstr!("$and"), array_of(&[is_page()]));
    let mut union = single("coll", collection);
    union.append(cstr!("pipeline"), array_of(&[single("$match", &filter)]));
    union
}

/// An expression that is null unless a page has items and [shows](shows_time_order) that they are in the
/// order of time.
fn if_page_is_in_order(shape: &BucketShape, page: RawDocumentBuf) -> RawDocumentBuf {
    let mut conditions = shows_time_order().to_vec();
    conditions.push(call("$eq", field(path::VERSION).as_str(), VERSION));
    conditions.push(call("$gt", field(shape.count()).as_str(), 0));
    choice(&single("$and", array_of(&conditions)), page, RawBson::Null)
}

/// The `$graphLookup` of all pages of a key, which reads nothing unless `condition` is true.
fn all_pages(collection: &str, key: &str, condition: &RawDocument) -> RawDocumentBuf {
    let nothing = RawBson::Array(RawArrayBuf::new());
    let mut lookup = single("from", collection);
    lookup.append(cstr!("startWith"), choice(condition, "$_id", nothing));
    // With a depth of 0, mongod follows no path.
    lookup.append(cstr!("connectFromField"), "_id");
    put(&mut lookup, "connectToField", key);
    lookup.append(cstr!("maxDepth"), 0);
    lookup.append(cstr!("restrictSearchWithMatch"), is_page());
    lookup.append(cstr!("as"), "pages");
    lookup
}

#[cfg(test)]
mod tests;
