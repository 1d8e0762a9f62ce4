//! Updates a located item in place: at its position in the bucket, if it is unchanged.
//!
//! An unchanged item still matches what it was found by, whatever the filter was. So the filter needs no
//! translation, and the change is one statement that mongod executes in one step or not at all.

mod compare_and_set;
mod operators;
mod plan;
mod positional;
mod rename;
mod replacement;
pub mod retime;
mod time;

use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::expression::{call, field};
use super::item_lookup::LocatedItem;
use super::layout::path;
use crate::command::document::{first_field, put, single};
use crate::command::error::WriteError;
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

pub use self::operators::of_operators;
pub use self::plan::{Demand, Elsewhere, InPlace, Planned};
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

/// The arguments of a `findAndModify` on the bucket of an item, if that is as it was found, which changes
/// nothing but what the bucket says of the last item that was changed: mongod then keeps what the bucket is.
///
/// # Errors
/// Why there are none, for a message.
pub fn claim(shape: &BucketShape, found: &LocatedItem) -> Result<RawDocumentBuf, Unsupported> {
    let place = i32::try_from(found.place).unwrap_or(i32::MAX);
    // mongod remembers a change, and so it must be one: of the type, if not of the value.
    let is_long = call("$eq", single("$type", field(path::CHANGED).as_str()), "long");
    let mut value = single("if", is_long);
    put(&mut value, "then", place);
    put(&mut value, "else", i64::from(place));
    let mut stages = RawArrayBuf::new();
    stages.push(single("$set", single(path::CHANGED, single("$cond", &value))));
    let mut arguments = single("query", compare_and_set::filter(shape, found, Demand::Item, false)?);
    put(&mut arguments, "update", &stages);
    put(&mut arguments, "collation", single("locale", "simple"));
    Ok(arguments)
}

/// Whether it is the error of a [statement that misses](InPlace::statement_or_miss).
#[must_use]
pub fn is_miss(error: &WriteError) -> bool {
    error.code == CONVERSION_FAILURE
}

/// What an expression fails with that is there for nothing else.
const CONVERSION_FAILURE: i32 = 241;

#[cfg(test)]
mod tests;
