//! Reads by pipeline: mongod puts outliers together, then runs the client's own stages.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::classify::{depends_on_array, names_own};
use super::layout::{field, is_typical, path};
use crate::command::document::{array_of, first_field, put, single};
use crate::command::find::Find;
use crate::pattern::exact_match::call;
use crate::pattern::shapes::OutlierShape;
use crate::pattern::unsupported::Unsupported;
use crate::pattern::unwound::distinct::DottedNames;
use crate::pattern::unwound::{self, has_where, match_documents, number_stage, only_match};

/// The text of mongod's error if pages are missing: the document got another generation after its
/// base was read. The generation whose pages are missing follows.
pub const MISSING: &str = "mongoshape: pages are missing of ";

/// The stages that put outliers together.
#[must_use]
pub fn merge(shape: &OutlierShape) -> Vec<RawDocumentBuf> {
    let own = |name: &str| format!("${}.{name}", shape.control());
    let pages = format!("{}_pages", shape.control());
    let mut equal = RawArrayBuf::new();
    equal.push(format!("${}", path::GENERATION));
    equal.push("$$generation");
    let of_pages = [
        single("$match", single("$expr", single("$eq", &equal))),
        single("$sort", single(path::FROM, 1)),
    ];
    let mut lookup = single("from", shape.extras_collection());
    lookup.append(cstr!("localField"), "_id");
    put(&mut lookup, "foreignField", shape.reference());
    lookup.append(cstr!("let"), single("generation", own(field::GENERATION)));
    lookup.append(cstr!("pipeline"), array_of(&of_pages));
    put(&mut lookup, "as", pages.as_str());

    let mut all = single("input", format!("${pages}.{}", shape.extras_array()));
    all.append(cstr!("initialValue"), RawArrayBuf::new());
    all.append(cstr!("in"), call("$concatArrays", ["$$value".into(), "$$this".into()]));
    let count = own(field::COUNT);
    let counted = call("$slice", ["$$all".into(), count.as_str().into()]);
    let none = call("$eq", [count.as_str().into(), 0.into()]);
    let counted = call("$cond", [none.into(), RawArrayBuf::new().into(), counted.into()]);
    let merged = call(
        "$concatArrays",
        [
            format!("${}", shape.array()).into(),
            counted.into(),
            own(field::TAIL).into(),
        ],
    );
    let size = single("$size", "$$all");
    let are_there = call("$gte", [size.into(), count.into()]);
    let mut text = RawArrayBuf::new();
    text.push(MISSING);
    text.push(single("$toString", own(field::GENERATION)));
    let failing = single("$toInt", single("$concat", &text));
    let merged = call("$cond", [are_there.into(), merged.into(), failing.into()]);
    let mut within = single("vars", single("all", single("$reduce", &all)));
    within.append(cstr!("in"), &merged);
    let is_outlier = call(
        "$eq",
        [single("$type", format!("${}", shape.control())).into(), "object".into()],
    );
    let array = call(
        "$cond",
        [
            is_outlier.into(),
            single("$let", &within).into(),
            of_others(shape, &all).into(),
        ],
    );
    let own_fields: RawArrayBuf = [shape.flag(), shape.control(), pages.as_str()].into_iter().collect();
    vec![
        single("$lookup", &lookup),
        single("$set", single(shape.array(), array)),
        single("$unset", &own_fields),
    ]
}

/// The array of an inline document, or of a document split by hand. For the latter all extras
/// without a generation are its own; `all` reduces them to one array.
fn of_others(shape: &OutlierShape, all: &RawDocument) -> RawDocumentBuf {
    let base = format!("${}", shape.array());
    let type_of_control = single("$type", format!("${}", shape.control()));
    let conditions = [
        call("$eq", [format!("${}", shape.flag()).into(), true.into()]),
        call("$eq", [type_of_control.into(), "missing".into()]),
        single("$isArray", base.as_str()),
    ];
    let is_by_hand = single("$and", array_of(&conditions));
    let merged = call("$concatArrays", [base.as_str().into(), single("$reduce", all).into()]);
    call("$cond", [is_by_hand.into(), merged.into(), base.into()])
}

/// Refuses a query that names a field reserved for the proxy.
fn check(shape: &OutlierShape, expression: &RawDocument) -> Result<(), Unsupported> {
    if names_own(shape, RawBsonRef::Document(expression)) {
        return Err(format!("a query that names both {} and {}", shape.flag(), shape.array()).into());
    }
    Ok(())
}

/// The first operator of a filter that cannot be evaluated on documents that were put together.
fn unsupported_operator(filter: &RawDocument) -> Option<&'static str> {
    unwound::unsupported_operator(filter).or_else(|| has_where(filter).then_some("$where"))
}

/// The stage that selects candidates: inline documents that match, and outliers that match the
/// filter's conditions on other fields.
fn narrowing(shape: &OutlierShape, filter: &RawDocument) -> RawDocumentBuf {
    if !depends_on_array(shape, filter) {
        return match_documents(filter);
    }
    let typical = single("$and", array_of(&[is_typical(shape), filter.to_owned()]));
    let mut outlier = vec![single(shape.flag(), true)];
    append_independent(shape, filter, &mut outlier);
    let outlier = single("$and", array_of(&outlier));
    single("$match", single("$or", array_of(&[typical, outlier])))
}

/// Appends the required conditions that do not depend on the array.
fn append_independent(shape: &OutlierShape, filter: &RawDocument, conditions: &mut Vec<RawDocumentBuf>) {
    for (name, value) in filter.iter().flatten() {
        match (name.as_str(), value) {
            ("$and", RawBsonRef::Array(branches)) => {
                for branch in branches.into_iter().flatten().filter_map(RawBsonRef::as_document) {
                    append_independent(shape, branch, conditions);
                }
            }
            (name, value) => {
                let condition = single(name, value);
                if !depends_on_array(shape, &condition) {
                    conditions.push(condition);
                }
            }
        }
    }
}

/// The stages that return the candidates, put together.
fn matching(shape: &OutlierShape, filter: Option<&RawDocument>) -> Vec<RawDocumentBuf> {
    let mut stages: Vec<RawDocumentBuf> = filter.map(|filter| narrowing(shape, filter)).into_iter().collect();
    stages.extend(merge(shape));
    stages
}

/// A stage that depends on all fields, if a filter has a path with a name that begins with `$`. Else mongod would
/// refuse that path (16410) in the list of the fields on which a pipeline depends. A plain query has no such list.
fn of_all_fields(filter: Option<&RawDocument>) -> Option<RawDocumentBuf> {
    let has_dollar = filter.is_some_and(has_dollar_path);
    has_dollar.then(|| single("$replaceWith", "$$ROOT"))
}

fn has_dollar_path(filter: &RawDocument) -> bool {
    filter.iter().flatten().any(|(name, value)| {
        name.as_str().contains(".$")
            || match value {
                RawBsonRef::Document(value) => has_dollar_path(value),
                RawBsonRef::Array(branches) => {
                    let mut branches = branches.into_iter().flatten().filter_map(RawBsonRef::as_document);
                    branches.any(has_dollar_path)
                }
                _ => false,
            }
    })
}

/// The stages that answer a `find`.
///
/// # Errors
/// The part that is not supported, for an error message.
pub fn of_find(shape: &OutlierShape, find: &Find<'_>) -> Result<Vec<RawDocumentBuf>, Unsupported> {
    for expression in [find.filter, find.sort, find.projection].into_iter().flatten() {
        check(shape, expression)?;
    }
    if let Some(operator) = find.filter.and_then(unsupported_operator) {
        return Err(format!("{operator} in a filter on {}", shape.array()).into());
    }
    let depends =
        |expression: Option<&RawDocument>| expression.is_some_and(|expression| depends_on_array(shape, expression));
    if depends(find.filter) || depends(find.sort) {
        let mut stages = matching(shape, find.filter);
        stages.extend(of_all_fields(find.filter));
        stages.extend(unwound::of_find(find, |_| false)?);
        return Ok(stages);
    }
    // Only the returned documents are put together.
    let first = Find {
        projection: None,
        ..find.clone()
    };
    let mut stages = unwound::of_find(&first, |_| false)?;
    stages.extend(of_all_fields(find.filter));
    stages.extend(merge(shape));
    let projected = Find {
        projection: find.projection,
        ..Find::default()
    };
    stages.extend(unwound::of_find(&projected, |_| false)?);
    Ok(stages)
}

/// The stages that count matching documents, up to a limit. The last one returns `n`.
///
/// # Errors
/// The part that is not supported, for an error message.
pub fn of_count(
    shape: &OutlierShape,
    query: &RawDocument,
    limit: Option<u64>,
) -> Result<Vec<RawDocumentBuf>, Unsupported> {
    check(shape, query)?;
    if let Some(operator) = unsupported_operator(query) {
        return Err(format!("{operator} in a filter on {}", shape.array()).into());
    }
    let mut stages = matching(shape, Some(query));
    stages.extend(of_all_fields(Some(query)));
    stages.push(match_documents(query));
    stages.extend(limit.and_then(|limit| number_stage("$limit", limit)));
    stages.push(single("$count", "n"));
    Ok(stages)
}

/// The stages that return each value once, in a document as its field `v`.
///
/// # Errors
/// The part that is not supported, for an error message.
pub fn of_distinct(
    shape: &OutlierShape,
    path: &str,
    query: Option<&RawDocument>,
    collation: Option<&RawDocument>,
    dotted: DottedNames,
) -> Result<Vec<RawDocumentBuf>, Unsupported> {
    if let Some(query) = query {
        check(shape, query)?;
        if let Some(operator) = unsupported_operator(query) {
            return Err(format!("{operator} in a filter on {}", shape.array()).into());
        }
    }
    let mut stages = matching(shape, query);
    stages.extend(of_all_fields(query));
    stages.extend(query.map(match_documents));
    stages.extend(unwound::distinct::values_of(path, collation, dotted)?);
    Ok(stages)
}

/// The stages that answer a client's pipeline. `given` is the pipeline as the client sent it.
/// `pipeline` is the same with rewritten references to other collections.
///
/// # Errors
/// The part that is not supported, for an error message.
pub fn of_aggregate(
    shape: &OutlierShape,
    given: &[&RawDocument],
    pipeline: &[impl AsRef<RawDocument>],
) -> Result<Vec<RawDocumentBuf>, Unsupported> {
    unwound::check(pipeline)?;
    for stage in given {
        check(shape, stage)?;
    }
    // The first stages run on base documents. So they can use indexes, and only the documents that they
    // return are put together.
    let is_of_bases = |stage: &RawDocument| is_selection(stage) && !depends_on_array(shape, stage);
    let count = pipeline
        .iter()
        .take_while(|stage| is_of_bases((*stage).as_ref()))
        .count();
    let of_bases = pipeline.get(..count).unwrap_or_default();
    let of_whole = pipeline.get(count..).unwrap_or_default();
    let filter = of_whole.first().and_then(|stage| only_match(stage.as_ref()));
    let mut stages: Vec<RawDocumentBuf> = unwound::behind(of_bases).collect();
    stages.extend(matching(shape, filter));
    stages.extend(unwound::behind(of_whole));
    Ok(stages)
}

/// Whether a stage selects or sorts documents, and changes none.
fn is_selection(stage: &RawDocument) -> bool {
    let name = first_field(stage).map(|(name, _)| name);
    matches!(name, Some("$match" | "$sort" | "$skip" | "$limit" | "$sample"))
}
