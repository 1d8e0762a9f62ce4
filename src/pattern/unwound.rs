//! The client's own query, run by mongod on documents that earlier stages made: the items of buckets, or
//! outliers with their extras.

pub mod distinct;
mod find_projection;

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{array_of, first_field, get, put, single};
use crate::command::find::Find;
use crate::pattern::unsupported::Unsupported;

/// Stages that are only valid first in a pipeline and read something else than documents.
const FIRST_STAGES: &[&str] = &[
    "$changeStream",
    "$collStats",
    "$geoNear",
    "$indexStats",
    "$listSearchIndexes",
    "$planCacheStats",
    "$search",
    "$searchMeta",
    "$vectorSearch",
];

/// The stages that answer a `find`, as the server's own conversion for views has them. `is_no_array` tells
/// which fields are never arrays.
///
/// # Errors
/// What in its projection cannot be done, for a message.
pub fn of_find(find: &Find<'_>, is_no_array: impl Fn(&str) -> bool) -> Result<Vec<RawDocumentBuf>, &'static str> {
    let mut stages: Vec<RawDocumentBuf> = find.filter.map(match_documents).into_iter().collect();
    stages.extend(find.sort.map(|sort| single("$sort", sort)));
    stages.extend(number_stage("$skip", find.skip));
    stages.extend(number_stage("$limit", find.limit));
    if let Some(projection) = find.projection {
        let context = find_projection::Context {
            is_no_array: &is_no_array,
            filter: find.filter,
        };
        stages.extend(find_projection::stages(projection, context)?);
    }
    Ok(stages)
}

/// The `find` by which mongod judges a projection that only `find` has: on no document at all, which is what
/// it finds. `None` where there is nothing to judge, or an aggregation will.
///
/// # Errors
/// What cannot be judged, for a message: mongod 6.0.5 crashes on some conditions on a field without a name
/// beside another one that an index may be used for.
pub fn judgement(collection: &str, find: &Find<'_>) -> Result<Option<RawDocumentBuf>, &'static str> {
    let find_only = |projection: &&RawDocument| find_projection::is_find_only(projection);
    let Some(projection) = find.projection.filter(find_only) else {
        return Ok(None);
    };
    let filter = find.filter.map(RawBsonRef::Document);
    if filter.is_some_and(names_nothing) {
        return Err("what only find has, beside a filter on a field without a name,");
    }
    let mut clauses = vec![of_no_document()];
    clauses.extend(find.filter.map(RawDocument::to_owned));
    let mut command = single("find", collection);
    command.append(cstr!("filter"), single("$and", array_of(&clauses)));
    command.append(cstr!("projection"), projection);
    let parts = [
        ("sort", find.sort),
        ("collation", find.collation),
        ("let", find.let_variables),
    ];
    for (name, part) in parts {
        if let Some(part) = part {
            put(&mut command, name, part);
        }
    }
    command.append(cstr!("singleBatch"), true);
    Ok(Some(command))
}

/// The `count` or `distinct` by which mongod judges a variable of its own that a query names: 6.0 has `$$NOW`
/// and `$$CLUSTER_TIME` in no `count` and no `distinct` (error 51144), where the aggregation that answers for
/// them has both. It fails where a document meets the conditions, so that the variable would have been asked
/// for. `None` where the query names none.
#[must_use]
pub fn variable_judgement(
    mut command: RawDocumentBuf,
    conditions: &[RawDocumentBuf],
    query: Option<&RawDocument>,
) -> Option<RawDocumentBuf> {
    let variable = query.and_then(own_variable)?;
    let is_there: RawArrayBuf = [RawBson::String(variable.to_owned()), RawBson::Null]
        .into_iter()
        .collect();
    let mut clauses = conditions.to_vec();
    clauses.push(single("$expr", single("$ne", &is_there)));
    command.append(cstr!("query"), single("$and", array_of(&clauses)));
    Some(command)
}

/// The variable of mongod's own that a filter's expressions name.
fn own_variable(filter: &RawDocument) -> Option<&'static str> {
    filter.iter().flatten().find_map(|(name, value)| match name.as_str() {
        "$expr" => variable_in(value),
        "$and" | "$or" | "$nor" => {
            let branches = value.as_array().into_iter().flatten().flatten();
            branches.filter_map(RawBsonRef::as_document).find_map(own_variable)
        }
        _ => None,
    })
}

fn variable_in(expression: RawBsonRef<'_>) -> Option<&'static str> {
    match expression {
        RawBsonRef::String(text) => ["$$NOW", "$$CLUSTER_TIME"].into_iter().find(|variable| {
            let rest = text.strip_prefix(variable);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        }),
        RawBsonRef::Document(document) => {
            let fields = document.iter().flatten();
            let evaluated = fields.filter(|(name, _)| name.as_str() != "$literal");
            evaluated.map(|(_, value)| value).find_map(variable_in)
        }
        RawBsonRef::Array(array) => array.into_iter().flatten().find_map(variable_in),
        _ => None,
    }
}

/// The filter that no document meets, and that mongod knows by the index on `_id` to be met by none.
#[must_use]
pub fn of_no_document() -> RawDocumentBuf {
    let mut nothing = single("$gt", 1);
    nothing.append(cstr!("$lt"), 0);
    single("_id", nothing)
}

/// Whether a client's own pipeline can be run behind other stages.
///
/// # Errors
/// What in it cannot, for a message.
pub fn check(pipeline: &[impl AsRef<RawDocument>]) -> Result<(), Unsupported> {
    let first = pipeline.first().and_then(|stage| first_field(stage.as_ref()));
    if let Some((name, _)) = first
        && (FIRST_STAGES.contains(&name) || name.starts_with("$_"))
    {
        return Err(format!("the stage {name}").into());
    }
    let mut filters = pipeline.iter().filter_map(|stage| only_match(stage.as_ref()));
    match filters.find_map(unsupported_operator) {
        Some(operator) => Err(format!("{operator} in a $match").into()),
        None => Ok(()),
    }
}

/// A client's own stages, to be run behind others. On a naive collection its `$match` becomes a query's
/// filter, also from behind some other stages.
pub fn behind(pipeline: &[impl AsRef<RawDocument>]) -> impl Iterator<Item = RawDocumentBuf> {
    pipeline.iter().map(|stage| {
        let stage = stage.as_ref();
        only_match(stage).map_or_else(|| stage.to_owned(), match_documents)
    })
}

/// The filter of a stage that is a `$match`. One with another stage beside it is mongod's to refuse.
#[must_use]
pub fn only_match(stage: &RawDocument) -> Option<&RawDocument> {
    match first_field(stage) {
        Some(("$match", RawBsonRef::Document(filter))) if stage.iter().count() == 1 => Some(filter),
        _ => None,
    }
}

/// An `aggregate` of these stages, without the fields that every command carries.
#[must_use]
pub fn aggregate(collection: &str, stages: &[RawDocumentBuf], batch_size: Option<u64>) -> RawDocumentBuf {
    let mut cursor = RawDocumentBuf::new();
    if let Some(size) = batch_size {
        cursor.append(cstr!("batchSize"), i64::try_from(size).unwrap_or(i64::MAX));
    }
    let mut command = single("aggregate", collection);
    command.append(cstr!("pipeline"), array_of(stages));
    command.append(cstr!("cursor"), &cursor);
    command
}

/// A stage of a number, where it says anything.
#[must_use]
pub fn number_stage(name: &str, number: u64) -> Option<RawDocumentBuf> {
    (number > 0).then(|| single(name, i64::try_from(number).unwrap_or(i64::MAX)))
}

/// Whether a field without a name is anywhere inside.
#[must_use]
pub fn names_nothing(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Document(document) => document
            .iter()
            .flatten()
            .any(|(name, value)| name.as_str().split('.').any(str::is_empty) || names_nothing(value)),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(names_nothing),
        _ => false,
    }
}

/// Whether a condition on a field asks for what is near.
#[must_use]
pub fn asks_for_nearness(condition: RawBsonRef<'_>) -> bool {
    let operators = ["$near", "$nearSphere", "$geoNear"];
    condition
        .as_document()
        .is_some_and(|condition| operators.iter().any(|name| get(condition, name).is_some()))
}

/// The `$match` that runs the client's own filter on documents that stages before it have made.
///
/// mongod hands a `$match` only those fields of a document that it names, and loses the one whose name is
/// empty on the way (6.0.5: `{"": 1}` finds nothing behind an `$unwind`). There it is made to hand over whole
/// documents.
#[must_use]
pub fn match_documents(filter: &RawDocument) -> RawDocumentBuf {
    if !names_empty_field(filter) {
        return single("$match", filter);
    }
    single(
        "$match",
        single("$and", array_of(&[filter.to_owned(), of_whole_documents()])),
    )
}

/// The condition that every document meets, and that makes mongod hand over whole ones.
#[must_use]
pub fn of_whole_documents() -> RawDocumentBuf {
    let mut root_is_there = RawArrayBuf::new();
    root_is_there.push("$$ROOT");
    root_is_there.push(RawBson::Null);
    single("$expr", single("$ne", &root_is_there))
}

fn names_empty_field(filter: &RawDocument) -> bool {
    filter.iter().flatten().any(|(name, value)| match name.as_str() {
        "$and" | "$or" | "$nor" => {
            let branches = value.as_array().into_iter().flatten().flatten();
            branches.filter_map(RawBsonRef::as_document).any(names_empty_field)
        }
        name => name.is_empty() || name.starts_with('.'),
    })
}

/// What in a filter mongod cannot run behind other stages, nor we: the operator's name.
#[must_use]
pub fn unsupported_operator(filter: &RawDocument) -> Option<&'static str> {
    filter.iter().flatten().find_map(|(name, value)| match name.as_str() {
        "$where" => Some("$where"),
        "$text" => Some("$text"),
        "$and" | "$or" | "$nor" => {
            let mut branches = value
                .as_array()
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(RawBsonRef::as_document);
            branches.find_map(unsupported_operator)
        }
        _ if asks_for_nearness(value) => Some("$near"),
        _ => None,
    })
}
