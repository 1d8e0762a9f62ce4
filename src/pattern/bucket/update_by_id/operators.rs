//! Update operators on the paths of an item's fields in its bucket.

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::replacement::type_of;
use super::{Demands, ItemIdentifier};
use crate::command::document::{put, single};
use crate::pattern::bucket::added_fields::keep_order;
use crate::pattern::bucket::key::{canonical, same_bytes};
use crate::pattern::bucket::predicate_pushdown::key_position;
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

/// Operators that add no field to an existing document.
const NEVER_ADD: [&str; 5] = ["$pop", "$pull", "$pullAll", "$setOnInsert", "$unset"];

/// Translates operators to the item at `place`. Setting a key field, the time or the `_id` becomes
/// a demand for that value.
pub(super) fn translate(
    shape: &BucketShape,
    operators: &RawDocument,
    id: &RawBson,
    place: &ItemIdentifier,
    demands: &mut Demands,
) -> Result<RawDocumentBuf, Unsupported> {
    let mut translated = RawDocumentBuf::new();
    let mut demanded: Vec<&str> = Vec::new();
    // mongod applies all operators in the order of their paths.
    let mut added: Vec<(&str, &str)> = Vec::new();
    for (operator, paths) in operators.iter().flatten() {
        if operator.as_str() == "$rename" {
            return Err("$rename".into());
        }
        // mongod refuses an operand that is not a document.
        let RawBsonRef::Document(paths) = paths else {
            translated.append(operator, paths);
            continue;
        };
        let mut moved = RawDocumentBuf::new();
        for (path, value) in paths.iter().flatten() {
            let change = PathUpdate {
                operator: operator.as_str(),
                path: path.as_str(),
                value,
            };
            if change.is_of_the_items_place(shape) {
                // mongod refuses two changes of one field, but both would be left out of the
                // statement.
                if demanded.contains(&change.path) {
                    return Err(format!("two changes of '{}'", change.path).into());
                }
                demanded.push(change.path);
                change.demand(shape, id, demands)?;
                continue;
            }
            change.check()?;
            let (root, rest) = change.path.split_at(change.root().len());
            let stored = shape.rename().stored(root);
            if !NEVER_ADD.contains(&change.operator) {
                added.push((root, stored));
            }
            put(&mut moved, &format!("{}.{stored}{rest}", place.element(shape)), value);
        }
        translated.append(operator, &moved);
    }
    if !keep_order(added) {
        return Err(
            "an update that may add several fields, one of them renamed (mongod would add them in the order of their stored names)".into(),
        );
    }
    Ok(translated)
}

/// The change of one operator at one path.
#[derive(Clone, Copy)]
struct PathUpdate<'a> {
    operator: &'a str,
    path: &'a str,
    value: RawBsonRef<'a>,
}

impl<'a> PathUpdate<'a> {
    fn root(&self) -> &'a str {
        self.path.split('.').next().unwrap_or_default()
    }

    /// Whether the item's page, the page's bounds or an index of the layout depend on the field.
    fn is_of_the_items_place(&self, shape: &BucketShape) -> bool {
        let root = self.root();
        root == "_id" || shape.time() == Some(root) || key_position(shape, root).is_some()
    }

    fn check(&self) -> Result<(), Unsupported> {
        if self.path.split('.').any(|part| part == "$") {
            return Err("the positional operator $ in an update".into());
        }
        if self.path.is_empty() || self.path.split('.').any(str::is_empty) {
            return Err("an update of a field without a name".into());
        }
        // mongod checks such a name if the field changes, which depends on the item.
        if self.path.starts_with('$') {
            return Err("an update of a field whose name begins with $".into());
        }
        Ok(())
    }

    /// Demands that the field has the value that the update sets.
    fn demand(&self, shape: &BucketShape, id: &RawBson, demands: &mut Demands) -> Result<(), Unsupported> {
        match self.operator {
            // Nothing is inserted. mongod validates a longer path, which would be left out of the statement.
            "$setOnInsert" if !self.path.contains('.') => return Ok(()),
            "$set" if !self.path.contains('.') => {}
            operator => return Err(format!("{operator} of '{}'", self.path).into()),
        }
        if self.path == "_id" {
            if !same_bytes(self.value, id.as_raw_bson_ref()) {
                return Err("an update of '_id'".into());
            }
            // The item's `_id` may be equal and still of another type, like 7.0 and 7.
            demands
                .of_item
                .push(single("_id", single("$type", type_of(self.value)?)));
            return Ok(());
        }
        if shape.time() == Some(self.path) {
            return demand_time(shape, self.value, demands);
        }
        // Only a value of these types is equal to the lifted value exactly if its bytes are. An
        // item with its own key value keeps it, so the item must not have one.
        let is_plain = matches!(
            self.value,
            RawBsonRef::String(_)
                | RawBsonRef::ObjectId(_)
                | RawBsonRef::Int32(_)
                | RawBsonRef::Int64(_)
                | RawBsonRef::Boolean(_)
                | RawBsonRef::DateTime(_)
        );
        if !is_plain || !same_bytes(canonical(self.value).as_raw_bson_ref(), self.value) {
            return Err(format!("$set of the key field '{}' to a value of such a type", self.path).into());
        }
        demands.of_bucket.push(single(self.path, single("$eq", self.value)));
        demands.of_item.push(single(self.path, single("$exists", false)));
        Ok(())
    }
}

/// Demands that the item's time is `value`.
pub(super) fn demand_time(
    shape: &BucketShape,
    value: RawBsonRef<'_>,
    demands: &mut Demands,
) -> Result<(), Unsupported> {
    let time = shape.time().unwrap_or_default();
    if !matches!(value, RawBsonRef::DateTime(_)) {
        return Err(format!("an update of the time '{time}' to a value that is not a date").into());
    }
    let mut condition = single("$eq", value);
    // An array that contains the date would match, too.
    put(&mut condition, "$not", single("$type", "array"));
    demands.of_item.push(single(shape.rename().stored(time), &condition));
    Ok(())
}
