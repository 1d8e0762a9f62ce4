//! Updates one item in place: the client's own operators, on the paths of the item's fields in its bucket.
//!
//! The item is named by its `_id`, and the client's whole filter stays in the statement, so mongod finds and
//! changes it in one step. Key fields and the time are not changed this way, because the page's position and
//! bounds depend on them; an update that sets them to their present values demands these.

mod error_text;
mod operators;
mod replacement;

use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::index;
use super::item::IdSource;
use super::layout::{VERSION, path};
use super::predicate_pushdown::BucketPredicate;
use crate::command::document::{array_of, first_field, get, put, single};
use crate::command::update::UpdateStatement;
use crate::pattern::shapes::{BucketShape, ItemIds};
use crate::pattern::unsupported::Unsupported;

pub use self::error_text::in_terms_of_items;

/// What a client asks to be done to the items that match.
#[derive(Clone, Copy, Debug)]
pub struct UpdateRequest<'a> {
    /// What to match.
    pub filter: Option<&'a RawDocument>,
    /// Operators or a replacement, or a pipeline.
    pub change: RawBsonRef<'a>,
    /// Which elements `$[identifier]` means.
    pub array_filters: Option<&'a RawArray>,
    /// How strings compare.
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

/// A change of one item, as one on its bucket.
#[derive(Clone, Debug)]
pub struct ItemUpdateById {
    /// The item's `_id`.
    pub id: RawBson,
    /// Met by the item's bucket.
    pub filter: RawDocumentBuf,
    /// The operators.
    pub update: RawDocumentBuf,
    /// The client's array filters, and the one that names the item.
    pub array_filters: RawArrayBuf,
    /// What the client's own filter says of the bucket: without the layout's version, and without
    /// [`demands`](Self::has_demands).
    pub condition: RawDocumentBuf,
    /// Whether the filter demands that nothing but the item's operators would change.
    pub has_demands: bool,
    /// Whether mongod counts it as a modification though nothing may be different: a replacement that does
    /// not name the `_id` (`object_replacement_executor.cpp`, which compares without adding it).
    pub always_modifies: bool,
}

/// What an update demands to be in the item already: it is then no change, and left out.
#[derive(Clone, Debug, Default)]
struct Demands {
    of_bucket: Vec<RawDocumentBuf>,
    of_item: Vec<RawDocumentBuf>,
}

impl ItemUpdateById {
    /// Translates what is asked.
    ///
    /// # Errors
    /// What in it cannot be done in place, for a message.
    pub fn of(shape: &BucketShape, asked: UpdateRequest<'_>, mint: &mut dyn IdSource) -> Result<Self, Unsupported> {
        if shape.item_ids() != ItemIds::Unique {
            return Err("an update where items have no unique `_id`".into());
        }
        if asked.collation.is_some() {
            return Err("an update under a collation".into());
        }
        let narrowing = BucketPredicate::of(shape, asked.filter);
        let Some(id) = narrowing.exactly_one_id() else {
            let message = "an update but of one item by its `_id`, with plain conditions beside it";
            return Err(message.into());
        };
        let place = ItemIdentifier::of(shape, asked);
        let mut demands = Demands::default();
        let update = match asked.change {
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
        let condition = narrowing.on_buckets();
        Ok(Self {
            id: id.clone(),
            array_filters: place.array_filters(asked.array_filters, &update, id),
            update,
            filter: of_this_layout(demands.added_to(shape, &condition, id)),
            has_demands: !demands.is_empty(),
            condition,
            always_modifies: is_replacement_without_id(asked.change),
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

    /// Appends what `update` and `findAndModify` name alike.
    pub fn append_options(&self, to: &mut RawDocumentBuf) {
        if !self.array_filters.is_empty() {
            to.append(cstr!("arrayFilters"), &self.array_filters);
        }
        to.append(cstr!("hint"), index::ITEM_ID);
    }
}

/// A page of another layout is met by no statement: its item is then looked for, and found where none may be
/// changed.
fn of_this_layout(mut filter: RawDocumentBuf) -> RawDocumentBuf {
    put(&mut filter, path::VERSION, VERSION);
    filter
}

fn is_replacement_without_id(change: RawBsonRef<'_>) -> bool {
    change.as_document().is_some_and(|change| {
        let is_replacement = first_field(change).is_none_or(|(name, _)| !name.starts_with('$'));
        is_replacement && get(change, "_id").is_none()
    })
}

impl Demands {
    fn is_empty(&self) -> bool {
        self.of_bucket.is_empty() && self.of_item.is_empty()
    }

    /// The condition with the demands.
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

/// How the statement names the item's place among the others.
struct ItemIdentifier {
    /// The identifier of the array filter, which is none of the client's.
    identifier: String,
}

impl ItemIdentifier {
    fn of(shape: &BucketShape, asked: UpdateRequest<'_>) -> Self {
        let mut identifier = "mongoshapeItem".to_owned();
        let taken = |identifier: &str| {
            let filters = asked.array_filters.map(RawArray::as_bytes).unwrap_or_default();
            let mut parts = filters.windows(identifier.len());
            parts.any(|part| part == identifier.as_bytes()) || shape.items() == identifier
        };
        while taken(&identifier) {
            identifier.push('x');
        }
        Self { identifier }
    }

    /// The path of the item.
    fn element(&self, shape: &BucketShape) -> String {
        format!("{}.$[{}]", shape.items(), self.identifier)
    }

    /// The client's array filters and, where the update needs it, that for the item.
    fn array_filters(&self, own: Option<&RawArray>, update: &RawDocument, id: &RawBson) -> RawArrayBuf {
        let mut filters = RawArrayBuf::new();
        for filter in own.into_iter().flatten().flatten() {
            filters.push(filter);
        }
        // One that nothing refers to is an error.
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

/// The item's fields in the bucket of an image that mongod answered: the element itself where it is the only
/// one.
#[must_use]
pub fn element_of<'a>(shape: &BucketShape, bucket: &'a RawDocument, id: &RawBson) -> Option<&'a RawDocument> {
    place_of(shape, bucket, id).map(|(_, item)| item)
}

/// The same, and its place among the others.
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

/// The projection that leaves of a bucket its key and the item.
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
