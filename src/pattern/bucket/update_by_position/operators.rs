//! Translates the client's operators to the paths of the item's fields in its bucket.

use std::collections::HashSet;

use bson::raw::{CStr, RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::plan::{InPlace, Planned, element};
use super::rename::{RenameEffect, renamed};
use super::replacement::{is_same, of_computed};
use crate::command::document::{get, get_path, put};
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::bucket::added_fields::keep_order;
use crate::pattern::bucket::field_names::is_positional;
use crate::pattern::bucket::item::IdSource;
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::number::is_nan;
use crate::pattern::bucket::predicate_pushdown::key_position;
use crate::pattern::bucket::upsert::{OperatorUpdate, UpsertError, changed};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

/// Operators that compare values of the item.
const COMPARING: [&str; 6] = ["$addToSet", "$max", "$min", "$pull", "$pullAll", "$push"];

/// Reasons why the proxy computes the updated item itself.
const OF_PLACE: &str = "an update of a key field or of the time";
const OF_NAME: &str = "an update of a field whose name begins with $";
const OF_ID: &str = "an update of '_id' and of a path before it";
const OF_ORDER: &str = "an update that adds several fields, one of them renamed,";

/// Plans operators on the item. mongod has validated the operators before.
///
/// # Errors
/// The part that is not supported, for an error message.
pub fn of_operators(
    shape: &BucketShape,
    found: &LocatedItem,
    update: OperatorUpdate<'_>,
    mint: &mut dyn IdSource,
) -> Result<Planned, Unsupported> {
    let OperatorUpdate {
        operators,
        array_filters,
        collation,
    } = update;
    let mut translation = Translation {
        shape,
        found,
        operators: Vec::new(),
        changed: Vec::new(),
        is_of_place: false,
        is_of_name: false,
    };
    for (operator, paths) in operators.iter().flatten() {
        let paths = paths.as_document().into_iter().flat_map(RawDocument::iter).flatten();
        for (path, value) in paths {
            let failed = if operator.as_str() == "$rename" {
                translation.rename(path.as_str(), value)?
            } else {
                translation.one(operator.as_str(), path.as_str(), value)?
            };
            if let Some(error) = failed {
                // mongod renames a field at its new path.
                let at = match operator.as_str() {
                    "$rename" => value.as_str().unwrap_or_default(),
                    _ => path.as_str(),
                };
                let earlier = error_before(found, update, at, mint)?;
                return Ok(Planned::Failed(earlier.unwrap_or(error)));
            }
        }
    }
    if translation.is_of_place {
        return computed(shape, found, update, OF_PLACE, mint);
    }
    if translation.is_of_name {
        return computed(shape, found, update, OF_NAME, mint);
    }
    if !translation.keeps_order() {
        return computed(shape, found, update, OF_ORDER, mint);
    }
    let translated = translation.update();
    if translated.is_empty() {
        return Ok(Planned::Unchanged { counted: false });
    }
    let compares = array_filters.is_some_and(|filters| !filters.is_empty())
        || COMPARING.iter().any(|operator| get(operators, operator).is_some());
    let change = InPlace::new(translated);
    Ok(Planned::InPlace(InPlace {
        array_filters: array_filters.map(RawArray::to_owned),
        collation: collation.filter(|_| compares).map(RawDocument::to_owned),
        ..change
    }))
}

/// Computes the updated item, if mongod cannot update it in place. The result may belong on another
/// page.
fn computed(
    shape: &BucketShape,
    found: &LocatedItem,
    update: OperatorUpdate<'_>,
    reason: &str,
    mint: &mut dyn IdSource,
) -> Result<Planned, Unsupported> {
    match changed(&found.item, update, mint) {
        Ok(item) => {
            let planned = of_computed(shape, found, update.operators, &item, mint)?;
            Ok(match planned {
                Planned::Unchanged { .. } => Planned::Unchanged {
                    counted: computes_with_nan(&found.item, update.operators),
                },
                planned => planned,
            })
        }
        Err(UpsertError::Mongod(error)) => Ok(Planned::Failed(error)),
        Err(UpsertError::Unsupported(what)) => Err(not_computed(reason, &what)),
    }
}

fn not_computed(reason: &str, what: &Unsupported) -> Unsupported {
    match what.strip_prefix("an upsert ") {
        Some(rest) => format!("{reason} {rest}").into(),
        None => format!("{reason} ({what})").into(),
    }
}

/// mongod's error for a path that it handles before this one.
fn error_before(
    found: &LocatedItem,
    update: OperatorUpdate<'_>,
    path: &str,
    mint: &mut dyn IdSource,
) -> Result<Option<WriteError>, Unsupported> {
    let operators = operators_before(update.operators, path);
    if operators.is_empty() {
        return Ok(None);
    }
    let before = OperatorUpdate {
        operators: &operators,
        ..update
    };
    match changed(&found.item, before, mint) {
        Ok(_) => Ok(None),
        Err(UpsertError::Mongod(error)) => Ok(Some(error)),
        Err(UpsertError::Unsupported(what)) => Err(not_computed(OF_ID, &what)),
    }
}

/// The operators on paths that mongod handles before this one: it handles the paths of all operators in their
/// order, and renames a field at its new path.
pub(super) fn operators_before(operators: &RawDocument, path: &str) -> RawDocumentBuf {
    let mut before = RawDocumentBuf::new();
    for (operator, paths) in operators.iter().flatten() {
        let paths = paths.as_document().into_iter().flat_map(RawDocument::iter).flatten();
        let is_before = |(own, value): &(&CStr, RawBsonRef<'_>)| {
            let renamed = value.as_str().filter(|_| operator == "$rename");
            renamed.unwrap_or(own.as_str()).split('.').lt(path.split('.'))
        };
        let paths: RawDocumentBuf = paths.filter(is_before).collect();
        if !paths.is_empty() {
            before.append(operator, &paths);
        }
    }
    before
}

/// Whether an operator computes with a `NaN`. mongod counts the result as a change, because `NaN`
/// is not equal to itself.
fn computes_with_nan(item: &RawDocument, operators: &RawDocument) -> bool {
    let paths = ["$inc", "$mul"]
        .into_iter()
        .filter_map(|name| get(operators, name)?.as_document());
    let mut paths = paths.flat_map(RawDocument::iter).flatten();
    paths.any(|(path, _)| get_path(item, path.as_str()).is_some_and(is_nan))
}

struct Translation<'a> {
    shape: &'a BucketShape,
    found: &'a LocatedItem,
    /// For each operator, the paths in the bucket.
    operators: Vec<(String, RawDocumentBuf)>,
    /// The application's names of the changed fields. A field may occur several times.
    changed: Vec<String>,
    /// Whether a key field or the time may change.
    is_of_place: bool,
    /// Whether a top-level field may change whose name mongod would check in a plain document, but
    /// not in a bucket.
    is_of_name: bool,
}

impl Translation<'_> {
    /// Translates one path of an operator. Returns mongod's error, if there is one.
    fn one(&mut self, operator: &str, path: &str, value: RawBsonRef<'_>) -> Result<Option<WriteError>, Unsupported> {
        check_path(path)?;
        let root = root(path);
        self.is_of_name |= root.starts_with('$');
        if !self.is_of_the_items_place(root) {
            self.put(operator, path, value.into());
            return Ok(None);
        }
        let now = get(&self.found.item, root);
        let stays = match operator {
            // Nothing is inserted. mongod still fails if a positional operator has no array.
            "$setOnInsert" => !path.split('.').any(is_positional),
            "$set" if path == root => is_same(Some(value), now),
            // In a plain collection the item has an `_id`, even if the shape drops it.
            "$unset" => now.is_none() && root != "_id",
            _ => false,
        };
        if stays {
            return Ok(None);
        }
        if root == "_id" {
            if path == root && (operator == "$unset" || (operator == "$set" && now.is_some())) {
                return Ok(Some(immutable_id()));
            }
            return Err(format!("{operator} of '{path}'").into());
        }
        self.is_of_place = true;
        Ok(None)
    }

    fn rename(&mut self, from: &str, to: RawBsonRef<'_>) -> Result<Option<WriteError>, Unsupported> {
        let to = to.as_str().unwrap_or_default();
        check_path(from)?;
        check_path(to)?;
        self.is_of_name |= from.starts_with('$') || to.starts_with('$');
        if from == "_id" {
            // In a plain collection the item has an `_id`, even if the shape drops it.
            return Ok(Some(immutable_id()));
        }
        let RenameEffect::To(value) = renamed(&self.found.item, from, to)? else {
            return Ok(None);
        };
        let roots = [root(from), root(to)];
        if roots.contains(&"_id") {
            return if self.found.id().is_some() && [from, to].contains(&"_id") {
                Ok(Some(immutable_id()))
            } else {
                Err("$rename of '_id'".into())
            };
        }
        if roots.into_iter().any(|root| self.is_of_the_items_place(root)) {
            self.is_of_place = true;
            return Ok(None);
        }
        self.put("$set", to, value);
        self.put("$unset", from, RawBson::Boolean(true));
        Ok(None)
    }

    /// Whether the item's page, the page's bounds or an index of the layout depend on the field.
    fn is_of_the_items_place(&self, root: &str) -> bool {
        root == "_id" || self.shape.time() == Some(root) || key_position(self.shape, root).is_some()
    }

    fn put(&mut self, operator: &str, path: &str, value: RawBson) {
        let root = root(path);
        let stored = self.shape.rename().stored(root);
        self.changed.push(root.to_owned());
        let behind = path.get(root.len()..).unwrap_or_default();
        let path = format!("{}.{stored}{behind}", element(self.shape, self.found));
        let position = self.operators.iter().position(|(name, _)| name == operator);
        if let Some((_, paths)) = position.and_then(|position| self.operators.get_mut(position)) {
            put(paths, &path, value);
            return;
        }
        let mut paths = RawDocumentBuf::new();
        put(&mut paths, &path, value);
        self.operators.push((operator.to_owned(), paths));
    }

    /// mongod adds fields in the order of their names. Whether the stored names have the same order
    /// as the application's names.
    fn keeps_order(&self) -> bool {
        let rename = self.shape.rename();
        if self.changed.iter().all(|root| rename.stored(root) == root) {
            return true;
        }
        // A document may have thousands of fields, and an update may change all of them.
        let fields = self.found.item.iter().flatten();
        let there: HashSet<&str> = fields.map(|(name, _)| name.as_str()).collect();
        let added = self.changed.iter().filter(|root| !there.contains(root.as_str()));
        keep_order(added.map(|root| (root.as_str(), rename.stored(root))))
    }

    fn update(self) -> RawDocumentBuf {
        let mut update = RawDocumentBuf::new();
        for (operator, paths) in &self.operators {
            put(&mut update, operator, paths);
        }
        update
    }
}

fn root(path: &str) -> &str {
    path.split('.').next().unwrap_or_default()
}

fn check_path(path: &str) -> Result<(), Unsupported> {
    if path.split('.').any(str::is_empty) {
        return Err("an update of a field without a name".into());
    }
    if is_positional(root(path)) {
        return Err("an update of a positional operator".into());
    }
    Ok(())
}

fn immutable_id() -> WriteError {
    let message = "Performing an update on the path '_id' would modify the immutable field '_id'";
    WriteError::new(ErrorCode::ImmutableField, message)
}
