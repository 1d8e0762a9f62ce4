//! Updates one item in place: the client's own operators, on the paths of the item's fields in its
//! bucket.
//!
//! The item is named by its `_id`, and the client's whole filter stays in the statement, so mongod
//! finds and changes the item in one step. Key fields and the time are not changed this way,
//! because the item's page and the page's bounds depend on them. An update that sets them to a
//! value demands that they have this value already.

mod error_text;
mod operators;
mod replacement;

use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::index;
use super::item::IdSource;
use super::layout::{VERSION, path};
use super::predicate_pushdown::BucketPredicate;
use crate::command::document::{array_of, first_field, get, put, single};
use crate::command::unused_name::unused_name;
use crate::command::update::{UpdateStatement, is_replacement};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

pub use self::error_text::in_terms_of_items;

/// An update that a client requests.
#[derive(Clone, Copy, Debug)]
pub struct UpdateRequest<'a> {
    /// The filter.
    pub filter: Option<&'a RawDocument>,
    /// Operators, a replacement, or a pipeline.
    pub change: RawBsonRef<'a>,
    /// The filters of `$[identifier]` in paths.
    pub array_filters: Option<&'a RawArray>,
    /// The collation of filter and update.
    pub collation: Option<&'a RawDocument>,
}

impl<'a> From<&UpdateStatement<'a>> for UpdateRequest<'a> {
    fn from(statement: &UpdateStatement<'a>) -> Self {
        Self {
            filter: Some(statement.filter),
            change: statement.change,
            array_filters: statement.array_filters,
            collation: statement.collation,
        }
    }
}

/// An update of one item, translated to its bucket.
#[derive(Clone, Debug)]
pub struct ItemUpdateById {
    /// The `_id` of the item.
    pub id: RawBson,
    /// The filter that the item's bucket matches.
    pub filter: RawDocumentBuf,
    /// The operators on the bucket.
    pub update: RawDocumentBuf,
    /// The client's array filters, and the one that identifies the item.
    pub array_filters: RawArrayBuf,
    /// The client's own filter on the bucket: of any layout version, and without
    /// [`demands`](Self::has_demands).
    pub condition: RawDocumentBuf,
    /// Whether the filter demands values that the update would set.
    pub has_demands: bool,
    /// Whether mongod counts a modification even if nothing changes. It does so for a replacement
    /// whose first field is not `_id`, because it compares before it adds or moves the `_id`
    /// (`object_replacement_executor.cpp`).
    pub always_modifies: bool,
}

/// Values that an update sets to key fields, the time or the `_id`. The filter demands them, and
/// the update leaves them out.
#[derive(Clone, Debug, Default)]
struct Demands {
    of_bucket: Vec<RawDocumentBuf>,
    of_item: Vec<RawDocumentBuf>,
}

impl ItemUpdateById {
    /// Translates an update.
    ///
    /// # Errors
    /// The part of the update that cannot be done in place, for an error message.
    pub fn of(shape: &BucketShape, request: UpdateRequest<'_>, mint: &mut dyn IdSource) -> Result<Self, Unsupported> {
        if !shape.item_ids().are_indexed() {
            return Err("an update where items have no indexed `_id`".into());
        }
        if request.collation.is_some() {
            return Err("an update under a collation".into());
        }
        let narrowing = BucketPredicate::of(shape, request.filter);
        let Some(id) = narrowing.exactly_one_id() else {
            let message = "an update of other than one item by its `_id` with plain conditions";
            return Err(message.into());
        };
        let place = ItemIdentifier::of(shape, request);
        let mut demands = Demands::default();
        let update = match request.change {
            RawBsonRef::Document(operators)
                if first_field(operators).is_some_and(|(name, _)| name.starts_with('$')) =>
            {
                operators::translate(shape, operators, id, &place, &mut demands)?
            }
            RawBsonRef::Document(replacement) => {
                let item = replacement::stored(shape, replacement, id, mint, &mut demands)?;
                single("$set", single(&place.element(shape), &item))
            }
            _ => return Err("an update by a pipeline".into()),
        };
        let condition = single("$and", array_of(narrowing.clauses()));
        Ok(Self {
            id: id.clone(),
            array_filters: place.array_filters(request.array_filters, &update, id),
            update,
            filter: of_this_layout(demands.added_to(shape, &condition, id)),
            has_demands: !demands.is_empty(),
            condition: narrowing.on_buckets(),
            always_modifies: moves_id(request.change),
        })
    }

    /// The statement of an `update`.
    #[must_use]
    pub fn statement(&self, multi: bool) -> RawDocumentBuf {
        let mut statement = single("q", &self.filter);
        statement.append(cstr!("u"), &self.update);
        if multi {
            statement.append(cstr!("multi"), true);
        }
        self.append_options(&mut statement);
        statement
    }

    /// A statement that fails if it matches nothing, so that an ordered command stops there. It is an
    /// upsert of a bucket that mongod refuses, so it needs the right to insert.
    #[must_use]
    pub fn statement_or_failure(&self) -> RawDocumentBuf {
        // The filter demands a number in this field, so an upsert cannot set a field inside of it.
        let invalid = format!("{}.none", path::VERSION);
        let mut update = RawDocumentBuf::new();
        let mut is_added = false;
        for (operator, paths) in self.update.iter().flatten() {
            match paths {
                RawBsonRef::Document(paths) if operator.as_str() == "$setOnInsert" => {
                    let mut paths = paths.to_owned();
                    put(&mut paths, &invalid, 1);
                    is_added = true;
                    update.append(operator, &paths);
                }
                paths => update.append(operator, paths),
            }
        }
        if !is_added {
            put(&mut update, "$setOnInsert", single(&invalid, 1));
        }
        let mut statement = single("q", &self.filter);
        statement.append(cstr!("u"), &update);
        statement.append(cstr!("upsert"), true);
        self.append_options(&mut statement);
        statement
    }

    /// Appends the arguments that `update` and `findAndModify` share.
    pub fn append_options(&self, to: &mut RawDocumentBuf) {
        if !self.array_filters.is_empty() {
            to.append(cstr!("arrayFilters"), &self.array_filters);
        }
        to.append(cstr!("hint"), index::ITEM_ID);
    }
}

/// Adds the layout's version, so that a page of another version is not changed. A lookup of its
/// item then fails.
fn of_this_layout(mut filter: RawDocumentBuf) -> RawDocumentBuf {
    put(&mut filter, path::VERSION, VERSION);
    filter
}

/// Whether mongod adds the `_id` to a replacement, or moves it to the first position.
fn moves_id(change: RawBsonRef<'_>) -> bool {
    let first = change.as_document().and_then(first_field);
    is_replacement(change) && first.is_none_or(|(name, _)| name != "_id")
}

impl Demands {
    fn is_empty(&self) -> bool {
        self.of_bucket.is_empty() && self.of_item.is_empty()
    }

    /// Adds the demands to a filter.
    fn added_to(&self, shape: &BucketShape, condition: &RawDocument, id: &RawBson) -> RawDocumentBuf {
        if self.is_empty() {
            return condition.to_owned();
        }
        let mut clauses = vec![condition.to_owned()];
        clauses.extend(self.of_bucket.iter().cloned());
        if !self.of_item.is_empty() {
            let mut of_item = vec![single("_id", single("$eq", id))];
            of_item.extend(self.of_item.iter().cloned());
            let all = single("$and", array_of(&of_item));
            clauses.push(single(shape.items(), single("$elemMatch", &all)));
        }
        single("$and", array_of(&clauses))
    }
}

/// The reference to the item's element in the array.
struct ItemIdentifier {
    /// The identifier of the array filter. None of the client's filters uses it.
    identifier: String,
}

impl ItemIdentifier {
    fn of(shape: &BucketShape, request: UpdateRequest<'_>) -> Self {
        let filters = request.array_filters.map(RawArray::as_bytes).unwrap_or_default();
        let identifier = unused_name("mongoshapeItem", [filters, shape.items().as_bytes()]);
        Self { identifier }
    }

    /// The path of the item.
    fn element(&self, shape: &BucketShape) -> String {
        format!("{}.$[{}]", shape.items(), self.identifier)
    }

    /// The client's array filters, and the one for the item if the update refers to it.
    fn array_filters(&self, own: Option<&RawArray>, update: &RawDocument, id: &RawBson) -> RawArrayBuf {
        let mut filters = RawArrayBuf::new();
        for filter in own.into_iter().flatten().flatten() {
            filters.push(filter);
        }
        // mongod refuses an array filter that no path refers to.
        let is_used = update.iter().flatten().any(|(_, paths)| {
            let mut paths = paths.as_document().into_iter().flat_map(RawDocument::iter).flatten();
            paths.any(|(path, _)| path.as_str().contains(&self.identifier))
        });
        if is_used {
            filters.push(single(&format!("{}._id", self.identifier), single("$eq", id)));
        }
        filters
    }
}

/// The item's element in a bucket that mongod returned. The bucket may have been projected to this
/// element.
#[must_use]
pub fn element_of<'a>(shape: &BucketShape, bucket: &'a RawDocument, id: &RawBson) -> Option<&'a RawDocument> {
    place_of(shape, bucket, id).map(|(_, item)| item)
}

/// The item's element, with its position in the array.
#[must_use]
pub fn place_of<'a>(shape: &BucketShape, bucket: &'a RawDocument, id: &RawBson) -> Option<(usize, &'a RawDocument)> {
    let items = get(bucket, shape.items())?.as_array()?;
    let items = items.into_iter().flatten().filter_map(RawBsonRef::as_document);
    let wanted = super::key::canonical(id.as_raw_bson_ref());
    items.enumerate().find(|(_, item)| {
        get(item, "_id").is_some_and(|own| {
            let own = super::key::canonical(own);
            super::key::same_bytes(own.as_raw_bson_ref(), wanted.as_raw_bson_ref())
        })
    })
}

/// The projection to a bucket's key and the item.
#[must_use]
pub fn only_item(shape: &BucketShape, id: &RawBson) -> RawDocumentBuf {
    let condition = single("$elemMatch", single("_id", single("$eq", id)));
    let mut projection = single(shape.items(), &condition);
    for field in shape.key() {
        put(&mut projection, field, 1);
    }
    projection
}

#[cfg(test)]
mod tests;
