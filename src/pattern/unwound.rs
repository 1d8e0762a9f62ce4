//! The client's own query, run by mongod on documents that earlier stages made: the items of
//! buckets, or outliers with their extras.

pub mod distinct;
mod find_projection;
mod where_clause;

use std::collections::HashSet;

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::arguments::with_replaced;
use crate::command::document::{array_of, first_field, get, put, single};
use crate::command::find::Find;
use crate::pattern::unsupported::Unsupported;

pub use self::where_clause::{code_validation, has_where, with_code_as_expression};

/// Stages that are valid only at the beginning of a pipeline and do not read plain documents.
const FIRST_STAGES: &[&str] = &[
    "$changeStream",
    "$collStats",
    "$geoNear",
    "$indexStats",
    "$listCatalog",
    "$listSearchIndexes",
    "$planCacheStats",
    "$search",
    "$searchMeta",
    "$vectorSearch",
];

/// The stages that answer a `find`, like the server's own conversion for views. `is_no_array`
/// returns whether a field is never an array.
///
/// # Errors
/// The part of the projection that is not supported, for an error message.
pub fn of_find(find: &Find<'_>, is_no_array: impl Fn(&str) -> bool) -> Result<Vec<RawDocumentBuf>, &'static str> {
    let mut stages: Vec<RawDocumentBuf> = find.filter.map(match_query).into_iter().collect();
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

/// The `find` by which mongod validates a projection that only `find` has. It matches no document.
/// `None` if there is nothing to validate, or if the aggregation will validate it.
///
/// # Errors
/// A query that cannot be validated, for an error message: mongod 6.0.5 crashes on some conditions
/// on a field with an empty name beside another condition that may use an index.
pub fn validation(collection: &str, find: &Find<'_>) -> Result<Option<RawDocumentBuf>, &'static str> {
    let find_only = |projection: &&RawDocument| find_projection::is_find_only(projection);
    match find.projection.filter(find_only) {
        Some(_) => projection_validation(collection, find).map(Some),
        None => Ok(None),
    }
}

/// A `find` that matches no document. mongod reports an error if its projection is invalid.
///
/// # Errors
/// Those of [`validation`].
pub fn projection_validation(collection: &str, find: &Find<'_>) -> Result<RawDocumentBuf, &'static str> {
    let filter = find.filter.map(RawBsonRef::Document);
    if filter.is_some_and(names_nothing) {
        return Err("a projection that only find supports, beside a filter on a field without a name,");
    }
    let mut clauses = vec![of_no_document()];
    clauses.extend(find.filter.map(RawDocument::to_owned));
    let filter = single("$and", array_of(&clauses));
    let filter: &RawDocument = &filter;
    let find = Find {
        filter: Some(filter),
        ..find.clone()
    };
    Ok(single_batch(collection, &find))
}

/// A `find` that matches no document. mongod evaluates the variables. `None` if there are none.
#[must_use]
pub fn let_validation(collection: &str, let_variables: Option<&RawDocument>) -> Option<RawDocumentBuf> {
    let_variables.filter(|variables| !variables.is_empty())?;
    let nothing = of_no_document();
    let find = Find {
        filter: Some(&nothing),
        let_variables,
        ..Find::default()
    };
    Some(single_batch(collection, &find))
}

/// A `find` of one batch with the filter, projection, sort, collation and variables of another.
#[must_use]
pub fn single_batch(collection: &str, find: &Find<'_>) -> RawDocumentBuf {
    let mut command = single("find", collection);
    let parts = [
        ("filter", find.filter),
        ("projection", find.projection),
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
    command
}

/// The `count` or `distinct` by which mongod validates a system variable in a query. 6.0 refuses
/// `$$NOW` and `$$CLUSTER_TIME` in `count` and `distinct` (error 51144), but the aggregation that
/// answers them accepts both. The command fails if a document matches `conditions`, because only
/// then is the variable evaluated. `None` if the query has no such variable.
#[must_use]
pub fn variable_validation(
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

/// The system variable in a filter's expressions.
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

/// The filter that matches no document. mongod derives that from the bounds on the index on `_id`, and reads
/// nothing.
#[must_use]
pub fn of_no_document() -> RawDocumentBuf {
    let mut nothing = single("$gt", 1);
    nothing.append(cstr!("$lt"), 0);
    single("_id", nothing)
}

/// The filter of a write, and a condition that matches no document. mongod checks the filter, and writes
/// nothing.
#[must_use]
pub fn without_match(filter: Option<&RawDocument>) -> RawDocumentBuf {
    let mut clauses = vec![single("_id", single("$in", RawArrayBuf::new()))];
    clauses.extend(filter.map(RawDocument::to_owned));
    single("$and", array_of(&clauses))
}

/// Checks whether a client's pipeline can run after other stages.
///
/// # Errors
/// The part that is not supported, for an error message.
pub fn check(pipeline: &[impl AsRef<RawDocument>]) -> Result<(), Unsupported> {
    let first = pipeline.first().and_then(|stage| first_field(stage.as_ref()));
    if let Some((name, _)) = first
        && (FIRST_STAGES.contains(&name) || name.starts_with("$_"))
    {
        return Err(format!("the stage {name}").into());
    }
    if let Some(metadata) = pipeline.iter().find_map(|stage| lost_metadata(stage.as_ref())) {
        return Err(format!("{metadata} in a pipeline").into());
    }
    let mut filters = pipeline.iter().filter_map(|stage| only_match(stage.as_ref()));
    match filters.find_map(unsupported_operator) {
        Some(operator) => Err(format!("{operator} in a $match").into()),
        None => Ok(()),
    }
}

/// The metadata that a stage reads of documents that earlier stages made. The pipeline on another collection
/// is checked by itself.
fn lost_metadata(stage: &RawDocument) -> Option<&'static str> {
    match first_field(stage) {
        Some(("$lookup" | "$unionWith", RawBsonRef::Document(arguments))) => {
            find_projection::lost_metadata(&with_replaced(arguments, &[("pipeline", None)]))
        }
        _ => find_projection::lost_metadata(stage),
    }
}

/// A client's stages, to be run after other stages. On a plain collection mongod may use a `$match`
/// as the query's filter, even after some other stages, so each one is made to match like a filter.
pub fn behind(pipeline: &[impl AsRef<RawDocument>]) -> impl Iterator<Item = RawDocumentBuf> {
    pipeline.iter().map(|stage| {
        let stage = stage.as_ref();
        only_match(stage).map_or_else(|| stage.to_owned(), match_documents)
    })
}

/// The filter of a `$match` stage. mongod refuses a stage with a second field.
#[must_use]
pub fn only_match(stage: &RawDocument) -> Option<&RawDocument> {
    match first_field(stage) {
        Some(("$match", RawBsonRef::Document(filter))) if stage.iter().count() == 1 => Some(filter),
        _ => None,
    }
}

/// The `$match` stages at the beginning of a pipeline as one, and their number. `None` if there are not
/// several. mongod joins them, too, but not behind stages that make documents.
#[must_use]
pub fn joined_matches(pipeline: &[&RawDocument]) -> Option<(RawDocumentBuf, usize)> {
    let filters: Vec<RawDocumentBuf> = pipeline
        .iter()
        .map_while(|stage| only_match(stage).map(RawDocument::to_owned))
        .collect();
    if filters.len() < 2 {
        return None;
    }
    Some((single("$match", conjunction(&filters)?), filters.len()))
}

/// The filter with the conditions of several: without an `$and`, if they name different fields. `None`:
/// one is malformed.
fn conjunction(filters: &[RawDocumentBuf]) -> Option<RawDocumentBuf> {
    let mut joined = RawDocumentBuf::new();
    let mut names = HashSet::new();
    for field in filters.iter().flat_map(|filter| filter.iter()) {
        let (name, value) = field.ok()?;
        if !names.insert(name.as_str()) {
            return Some(single("$and", array_of(filters)));
        }
        joined.append(name, value);
    }
    Some(joined)
}

/// An `aggregate` of these stages, without inherited options.
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

/// An `aggregate` of these stages on one document, without inherited options. It reads no collection.
#[must_use]
pub fn aggregate_document(document: &RawDocument, stages: &[RawDocumentBuf]) -> RawDocumentBuf {
    let document = single("$literal", array_of(&[document.to_owned()]));
    let mut pipeline = vec![single("$documents", &document)];
    pipeline.extend_from_slice(stages);
    let mut command = single("aggregate", 1);
    command.append(cstr!("pipeline"), array_of(&pipeline));
    command.append(cstr!("cursor"), RawDocumentBuf::new());
    command
}

/// A stage with a number. `None` for 0, which has no effect.
#[must_use]
pub fn number_stage(name: &str, number: u64) -> Option<RawDocumentBuf> {
    (number > 0).then(|| single(name, i64::try_from(number).unwrap_or(i64::MAX)))
}

/// Whether a field with an empty name is anywhere inside.
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

/// Whether a condition on a field has a `$near` operator.
#[must_use]
pub fn asks_for_nearness(condition: RawBsonRef<'_>) -> bool {
    let operators = ["$near", "$nearSphere", "$geoNear"];
    condition
        .as_document()
        .is_some_and(|condition| operators.iter().any(|name| get(condition, name).is_some()))
}

/// The `$match` that runs the client's own filter on documents that earlier stages made.
///
/// mongod passes to a `$match` only the fields that it names, and loses a field with an empty name
/// (6.0.5: `{"": 1}` matches nothing after an `$unwind`). For such a filter a condition on `$$ROOT`
/// makes mongod pass whole documents.
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

/// The condition that every document matches, and that makes mongod pass whole documents.
#[must_use]
pub fn of_whole_documents() -> RawDocumentBuf {
    let mut root_is_there = RawArrayBuf::new();
    root_is_there.push("$$ROOT");
    root_is_there.push(RawBson::Null);
    single("$expr", single("$ne", &root_is_there))
}

/// The `$match` that runs the filter of a query on documents that earlier stages made: [`match_documents`],
/// and `$where`, which mongod refuses in the `$match` of a client.
#[must_use]
pub fn match_query(filter: &RawDocument) -> RawDocumentBuf {
    if has_where(filter) {
        match_documents(&with_code_as_expression(filter, &"$$ROOT".into()))
    } else {
        match_documents(filter)
    }
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

/// The operator of a filter that neither mongod can run after other stages, nor the proxy.
#[must_use]
pub fn unsupported_operator(filter: &RawDocument) -> Option<&'static str> {
    if has_text(filter) {
        Some("$text")
    } else {
        has_nearness(filter).then_some("$near")
    }
}

/// Whether a filter has a `$text`.
#[must_use]
pub fn has_text(filter: &RawDocument) -> bool {
    has_condition(filter, &|name, _| name == "$text")
}

/// Whether a filter has a [`$near` operator](asks_for_nearness) on a field.
#[must_use]
pub fn has_nearness(filter: &RawDocument) -> bool {
    has_condition(filter, &|_, condition| asks_for_nearness(condition))
}

/// Whether a filter has such a condition, at any depth of `$and`, `$or` and `$nor`.
fn has_condition(filter: &RawDocument, is_wanted: &dyn Fn(&str, RawBsonRef<'_>) -> bool) -> bool {
    filter.iter().flatten().any(|(name, value)| match name.as_str() {
        "$and" | "$or" | "$nor" => {
            let branches = value.as_array().into_iter().flatten().flatten();
            let mut branches = branches.filter_map(RawBsonRef::as_document);
            branches.any(|branch| has_condition(branch, is_wanted))
        }
        name => is_wanted(name, value),
    })
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn first_matches_are_joined() {
        let check = |filters: &[RawDocumentBuf], expected: Option<RawDocumentBuf>| {
            let mut stages: Vec<_> = filters.iter().map(|filter| single("$match", filter)).collect();
            stages.push(rawdoc! { "$limit": 1 });
            stages.push(rawdoc! { "$match": { "z": 1 } });
            let stages: Vec<&RawDocument> = stages.iter().map(RawDocumentBuf::as_ref).collect();
            let expected = expected.map(|filter| (single("$match", filter), filters.len()));
            assert_eq!(joined_matches(&stages), expected);
        };
        let [k, t] = [rawdoc! { "k": 1 }, rawdoc! { "t": { "$gte": 1 } }];
        check(&[], None);
        check(std::slice::from_ref(&k), None);
        check(&[k.clone(), t.clone()], Some(rawdoc! { "k": 1, "t": { "$gte": 1 } }));
        check(&[k.clone(), rawdoc! {}], Some(k.clone()));
        let before = rawdoc! { "t": { "$lt": 9 } };
        let all = [k, t, before];
        check(&all, Some(single("$and", array_of(&all))));
    }
}
