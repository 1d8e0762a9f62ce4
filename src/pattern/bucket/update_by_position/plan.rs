//! The planned change of one item.

use bson::raw::{BindRawBsonRef, RawArray, RawArrayBuf, RawBsonRef, RawDocumentBuf, cstr};

use super::compare_and_set;
use crate::command::arguments::with_replaced;
use crate::command::document::{get, put, single};
use crate::command::error::WriteError;
use crate::pattern::bucket::expression::{call, literal, miss};
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::layout::path;
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

/// What is to be done for one item.
#[derive(Clone, Debug)]
pub enum Planned {
    /// Nothing: it is what it would become.
    Unchanged {
        /// Whether mongod counts it as modified all the same.
        counted: bool,
    },
    /// This.
    InPlace(InPlace),
    /// It would have to lie elsewhere.
    Elsewhere(Elsewhere),
    /// What mongod says of it.
    Failed(WriteError),
}

/// Why an item cannot stay where it is, and what it will be.
#[derive(Clone, Debug)]
pub enum Elsewhere {
    /// A key field gets another value.
    Key(RawDocumentBuf),
    /// Its time gets another value.
    Time(RawDocumentBuf),
}

impl Elsewhere {
    /// The item as it will be, as the application knows it.
    #[must_use]
    pub fn into_item(self) -> RawDocumentBuf {
        let (Self::Key(item) | Self::Time(item)) = self;
        item
    }
}

/// A change of an item where it lies.
#[derive(Clone, Debug)]
pub struct InPlace {
    /// Operators on its bucket.
    pub(super) update: RawDocumentBuf,
    /// Stages in place of operators.
    pub(super) stages: Option<RawArrayBuf>,
    /// The client's, which are about what is inside the item.
    pub array_filters: Option<RawArrayBuf>,
    /// How strings compare; `None`: bit by bit.
    pub collation: Option<RawDocumentBuf>,
    /// Whether mongod counts it as modified though it may say that it is not.
    pub counted: bool,
}

/// How much of the bucket must be as it was found.
#[derive(Clone, Copy, Debug)]
pub enum Demand<'a> {
    /// The item.
    Item,
    /// All of its items: these.
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

    /// Operators on its bucket, or stages.
    #[must_use]
    pub fn update(&self) -> RawBsonRef<'_> {
        match &self.stages {
            Some(stages) => RawBsonRef::Array(stages),
            None => RawBsonRef::Document(&self.update),
        }
    }

    /// The condition that the item's bucket meets for as long as it is there as it was found.
    ///
    /// # Errors
    /// Why there is none, for a message.
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
            return Err("an update, other than by its `_id`, of an item of that size".into());
        }
        Ok(statement)
    }

    /// The same, which fails (error 241) where the item is not as it was found: an ordered command then ends
    /// with it. Where the bucket is gone it meets nothing.
    ///
    /// # Errors
    /// Those of [`InPlace::filter`].
    pub fn statement_or_miss(&self, shape: &BucketShape, found: &LocatedItem) -> Result<RawDocumentBuf, Unsupported> {
        let statement = self.statement(shape, found)?;
        let query = get(&statement, "q").and_then(RawBsonRef::as_document);
        let Some((query, condition)) = query.and_then(|query| Some((query, get(query, "$expr")?))) else {
            return Err("an update without a condition".into());
        };
        // mongod may plan it by the key, and evaluate the expression on the key's other pages.
        let is_other = call("$ne", "$_id", literal(&found.bucket));
        let condition = choice(condition, true, choice(&is_other, false, miss()));
        let query = with_replaced(query, &[("$expr", Some(RawBsonRef::Document(&condition)))]);
        Ok(with_replaced(&statement, &[("q", Some(RawBsonRef::Document(&query)))]))
    }

    /// Appends what `update` and `findAndModify` name alike.
    pub fn append_options(&self, to: &mut RawDocumentBuf) {
        if let Some(filters) = &self.array_filters {
            to.append(cstr!("arrayFilters"), filters);
        }
        // What the collection has by default may not decide what is the same.
        let simple = single("locale", "simple");
        to.append(cstr!("collation"), self.collation.as_ref().unwrap_or(&simple));
    }

    /// Lets the bucket say which item it was.
    pub fn tell_place(&mut self, found: &LocatedItem) {
        let path = path::CHANGED;
        let place = i64::try_from(found.place).unwrap_or(i64::MAX);
        if let Some(stages) = &mut self.stages {
            stages.push(single("$set", single(path, place)));
            return;
        }
        let mut update = RawDocumentBuf::new();
        let mut is_told = false;
        for (operator, paths) in self.update.iter().flatten() {
            match paths {
                RawBsonRef::Document(paths) if operator.as_str() == "$set" => {
                    let mut paths = paths.to_owned();
                    put(&mut paths, path, place);
                    is_told = true;
                    update.append(operator, &paths);
                }
                paths => update.append(operator, paths),
            }
        }
        if !is_told {
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

/// A statement's bytes: a command has room for one and its own fields.
const MAX_STATEMENT_BYTES: usize = 16 * 1024 * 1024;

/// The path of the item in its bucket.
pub(super) fn element(shape: &BucketShape, found: &LocatedItem) -> String {
    format!("{}.{}", shape.items(), found.place)
}
