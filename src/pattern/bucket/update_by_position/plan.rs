//! The planned update of one item.

use bson::raw::{BindRawBsonRef, RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::compare_and_set;
use crate::command::arguments::with_replaced;
use crate::command::document::{get, put, single};
use crate::command::error::WriteError;
use crate::pattern::bucket::expression::{call, literal, miss};
use crate::pattern::bucket::item::IdSource;
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::layout::path;
use crate::pattern::bucket::upsert::{OperatorUpdate, changed};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

/// The result of planning for one item.
#[derive(Clone, Debug)]
pub enum Planned {
    /// The item does not change.
    Unchanged {
        /// Whether mongod still counts it as modified.
        counted: bool,
    },
    /// The item changes at its position.
    InPlace(InPlace),
    /// The changed item belongs on another page.
    Elsewhere(Elsewhere),
    /// mongod's error for this item.
    Failed(WriteError),
}

/// The reason why an item must move, with the changed item as the application knows it.
#[derive(Clone, Debug)]
pub enum Elsewhere {
    /// A key field changes.
    Key(RawDocumentBuf),
    /// The time changes.
    Time(RawDocumentBuf),
}

impl Elsewhere {
    /// The changed item as the application knows it.
    #[must_use]
    pub fn into_item(self) -> RawDocumentBuf {
        let (Self::Key(item) | Self::Time(item)) = self;
        item
    }
}

/// An update of an item at its position.
#[derive(Clone, Debug)]
pub struct InPlace {
    /// Operators on the bucket.
    pub(super) update: RawDocumentBuf,
    /// Pipeline stages in place of operators.
    pub(super) stages: Option<RawArrayBuf>,
    /// The client's array filters, which are about arrays inside the item.
    pub array_filters: Option<RawArrayBuf>,
    /// The collation of the comparing operators. `None`: values are compared bit by bit.
    pub collation: Option<RawDocumentBuf>,
    /// Whether mongod counts the item as modified even if it reports no modification.
    pub counted: bool,
}

/// The part of the bucket that must be unchanged.
#[derive(Clone, Copy, Debug)]
pub enum Demand<'a> {
    /// The item must be unchanged.
    Item,
    /// All items of the bucket must be these.
    Items(&'a RawArray),
}

impl InPlace {
    pub(super) fn new(update: RawDocumentBuf) -> Self {
        Self {
            update,
            stages: None,
            array_filters: None,
            collation: None,
            counted: false,
        }
    }

    pub(super) fn by_stages(stages: RawArrayBuf) -> Self {
        Self {
            stages: Some(stages),
            ..Self::new(RawDocumentBuf::new())
        }
    }

    /// The memory of the planned update, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let arrays = [&self.stages, &self.array_filters].into_iter().flatten();
        let arrays = arrays.map(|array| array.as_bytes().len());
        let collation = self.collation.iter().map(|collation| collation.as_bytes().len());
        arrays
            .chain(collation)
            .fold(self.update.as_bytes().len(), usize::saturating_add)
    }

    /// The operators or the stages.
    #[must_use]
    pub fn update(&self) -> RawBsonRef<'_> {
        match &self.stages {
            Some(stages) => RawBsonRef::Array(stages),
            None => RawBsonRef::Document(&self.update),
        }
    }

    /// The filter that the item's bucket matches while the item is unchanged.
    ///
    /// # Errors
    /// The reason why there is no such filter, for an error message.
    pub fn filter(
        &self,
        shape: &BucketShape,
        found: &LocatedItem,
        demand: Demand<'_>,
    ) -> Result<RawDocumentBuf, Unsupported> {
        compare_and_set::filter(shape, found, demand, self.collation.is_some())
    }

    /// The statement of an `update`.
    ///
    /// # Errors
    /// Those of [`InPlace::filter`].
    pub fn statement(&self, shape: &BucketShape, found: &LocatedItem) -> Result<RawDocumentBuf, Unsupported> {
        let mut statement = single("q", self.filter(shape, found, Demand::Item)?);
        statement.append(cstr!("u"), self.update());
        self.append_options(&mut statement);
        if statement.as_bytes().len() > MAX_STATEMENT_BYTES {
            return Err("an update, other than by its `_id`, of an item of this size".into());
        }
        Ok(statement)
    }

    /// The same statement, but it fails (error 241) if the item has changed, so that an ordered
    /// command stops there. If the bucket is gone, the statement matches nothing.
    ///
    /// # Errors
    /// Those of [`InPlace::filter`].
    pub fn statement_or_miss(&self, shape: &BucketShape, found: &LocatedItem) -> Result<RawDocumentBuf, Unsupported> {
        let statement = self.statement(shape, found)?;
        let query = get(&statement, "q").and_then(RawBsonRef::as_document);
        let Some((query, condition)) = query.and_then(|query| Some((query, get(query, "$expr")?))) else {
            return Err("an update without a condition".into());
        };
        // mongod may use the index on the key, and evaluate the expression on other pages of the
        // key.
        let is_other = call("$ne", "$_id", literal(&found.bucket));
        let condition = choice(condition, true, choice(&is_other, false, miss()));
        let query = with_replaced(query, &[("$expr", Some(RawBsonRef::Document(&condition)))]);
        Ok(with_replaced(&statement, &[("q", Some(RawBsonRef::Document(&query)))]))
    }

    /// Appends the arguments that `update` and `findAndModify` share.
    pub fn append_options(&self, to: &mut RawDocumentBuf) {
        if let Some(filters) = &self.array_filters {
            to.append(cstr!("arrayFilters"), filters);
        }
        // The collection's default collation must not decide whether the item is unchanged.
        let simple = single("locale", "simple");
        to.append(cstr!("collation"), self.collation.as_ref().unwrap_or(&simple));
    }

    /// The item after the change, as stored. `None`: the proxy cannot compute it.
    #[must_use]
    pub fn stored_after(
        &self,
        shape: &BucketShape,
        found: &LocatedItem,
        mint: &mut dyn IdSource,
    ) -> Option<RawDocumentBuf> {
        if self.stages.is_some() {
            return None;
        }
        // The operators' paths lead through the item's position, here the name of a field.
        let place = found.place.to_string();
        let bucket = single(shape.items(), single(&place, &found.stored));
        let update = OperatorUpdate {
            operators: &self.update,
            array_filters: self.array_filters.as_deref(),
            collation: self.collation.as_deref(),
        };
        let bucket = changed(&bucket, update, mint).ok()?;
        let items = get(&bucket, shape.items())?.as_document()?;
        get(items, &place)?.as_document().map(RawDocument::to_owned)
    }

    /// Makes the bucket record the position of the changed item.
    pub fn record_place(&mut self, found: &LocatedItem) {
        let path = path::CHANGED;
        let place = i64::try_from(found.place).unwrap_or(i64::MAX);
        if let Some(stages) = &mut self.stages {
            stages.push(single("$set", single(path, place)));
            return;
        }
        let mut update = RawDocumentBuf::new();
        let mut is_recorded = false;
        for (operator, paths) in self.update.iter().flatten() {
            match paths {
                RawBsonRef::Document(paths) if operator.as_str() == "$set" => {
                    let mut paths = paths.to_owned();
                    put(&mut paths, path, place);
                    is_recorded = true;
                    update.append(operator, &paths);
                }
                paths => update.append(operator, paths),
            }
        }
        if !is_recorded {
            put(&mut update, "$set", single(path, place));
        }
        self.update = update;
    }
}

/// `{$cond: {if, then, else}}`
fn choice(condition: impl BindRawBsonRef, then: bool, otherwise: RawDocumentBuf) -> RawDocumentBuf {
    let mut choice = single("if", condition);
    put(&mut choice, "then", then);
    put(&mut choice, "else", otherwise);
    single("$cond", &choice)
}

/// The most bytes of a statement: a command has room for one such statement and its other fields.
const MAX_STATEMENT_BYTES: usize = 16 * 1024 * 1024;

/// The path of the item in its bucket.
pub(super) fn element(shape: &BucketShape, found: &LocatedItem) -> String {
    format!("{}.{}", shape.items(), found.place)
}
