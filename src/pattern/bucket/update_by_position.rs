//! Updates a located item in place: at its position in the bucket, if it is unchanged.
//!
//! An unchanged item still matches what it was found by, whatever the filter was. So the filter needs no
//! translation, and the change is one statement that mongod executes in one step or not at all.

mod compare_and_set;
mod operators;
mod positional;
mod rename;
mod replacement;
pub mod retime;
mod time;

use bson::raw::{BindRawBsonRef, RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::expression::{call, field, literal, miss};
use super::item_lookup::LocatedItem;
use super::layout::path;
use crate::command::arguments::with_replaced;
use crate::command::document::{first_field, get, put, single};
use crate::command::error::WriteError;
use crate::pattern::shapes::BucketShape;

pub use self::operators::of_operators;
pub use self::positional::{Positional, Probe, not_found};
pub use self::replacement::{of_pipeline, of_replacement};
pub use self::time::with_time;

/// What a client asks to be done to items.
#[derive(Clone, Copy, Debug)]
pub enum Wish<'a> {
    /// Update operators.
    Operators(&'a RawDocument),
    /// Another document.
    Replacement(&'a RawDocument),
    /// The stages that make another document of it.
    Pipeline(&'a RawArray),
}

impl<'a> Wish<'a> {
    /// Reads it. `None` for what mongod refuses.
    #[must_use]
    pub fn of(change: RawBsonRef<'a>) -> Option<Self> {
        match change {
            RawBsonRef::Document(change) if first_field(change).is_some_and(|(name, _)| name.starts_with('$')) => {
                Some(Self::Operators(change))
            }
            RawBsonRef::Document(change) => Some(Self::Replacement(change)),
            RawBsonRef::Array(stages) => Some(Self::Pipeline(stages)),
            _ => None,
        }
    }
}

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
    update: RawDocumentBuf,
    /// Stages in place of operators.
    stages: Option<RawArrayBuf>,
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
    fn new(update: RawDocumentBuf) -> Self {
        Self {
            update,
            stages: None,
            array_filters: None,
            collation: None,
            counted: false,
        }
    }

    fn by_stages(stages: RawArrayBuf) -> Self {
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
    ) -> Result<RawDocumentBuf, String> {
        compare_and_set::filter(shape, found, (demand, self.collation.is_some()))
    }

    /// The statement of an `update`.
    ///
    /// # Errors
    /// Those of [`InPlace::filter`].
    pub fn statement(&self, shape: &BucketShape, found: &LocatedItem) -> Result<RawDocumentBuf, String> {
        let mut statement = single("q", self.filter(shape, found, Demand::Item)?);
        statement.append(cstr!("u"), self.update());
        self.append_options(&mut statement);
        if statement.as_bytes().len() > MAX_STATEMENT_BYTES {
            return Err("an update, other than by its `_id`, of an item of that size".to_owned());
        }
        Ok(statement)
    }

    /// The same, which fails (error 241) where the item is not as it was found: an ordered command then ends
    /// with it. Where the bucket is gone it meets nothing.
    ///
    /// # Errors
    /// Those of [`InPlace::filter`].
    pub fn statement_or_miss(&self, shape: &BucketShape, found: &LocatedItem) -> Result<RawDocumentBuf, String> {
        let statement = self.statement(shape, found)?;
        let query = get(&statement, "q").and_then(RawBsonRef::as_document);
        let Some((query, condition)) = query.and_then(|query| Some((query, get(query, "$expr")?))) else {
            return Err("an update without a condition".to_owned());
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

/// The arguments of a `findAndModify` on the bucket of an item, if that is as it was found, which changes
/// nothing but what the bucket says of the last item that was changed: mongod then keeps what the bucket is.
///
/// # Errors
/// Why there are none, for a message.
pub fn claim(shape: &BucketShape, found: &LocatedItem) -> Result<RawDocumentBuf, String> {
    let place = i32::try_from(found.place).unwrap_or(i32::MAX);
    // mongod remembers a change, and so it must be one: of the type, if not of the value.
    let is_long = call("$eq", single("$type", field(path::CHANGED).as_str()), "long");
    let mut value = single("if", is_long);
    put(&mut value, "then", place);
    put(&mut value, "else", i64::from(place));
    let mut stages = RawArrayBuf::new();
    stages.push(single("$set", single(path::CHANGED, single("$cond", &value))));
    let mut arguments = single("query", compare_and_set::filter(shape, found, (Demand::Item, false))?);
    put(&mut arguments, "update", &stages);
    put(&mut arguments, "collation", single("locale", "simple"));
    Ok(arguments)
}

/// `{$cond: {if, then, else}}`
fn choice(condition: impl BindRawBsonRef, then: bool, otherwise: RawDocumentBuf) -> RawDocumentBuf {
    let mut choice = single("if", condition);
    put(&mut choice, "then", then);
    put(&mut choice, "else", otherwise);
    single("$cond", &choice)
}

/// Whether it is the error of a [statement that misses](InPlace::statement_or_miss).
#[must_use]
pub fn is_miss(error: &WriteError) -> bool {
    error.code == CONVERSION_FAILURE
}

/// What an expression fails with that is there for nothing else.
const CONVERSION_FAILURE: i32 = 241;

/// A statement's bytes: a command has room for one and its own fields.
const MAX_STATEMENT_BYTES: usize = 16 * 1024 * 1024;

/// The path of the item in its bucket.
fn element(shape: &BucketShape, found: &LocatedItem) -> String {
    format!("{}.{}", shape.items(), found.place)
}

#[cfg(test)]
mod tests;
