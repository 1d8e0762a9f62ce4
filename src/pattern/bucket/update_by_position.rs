//! Updates a located item in place: at its position in the bucket, if it is unchanged.
//!
//! An unchanged item still matches the filter that found it. So the filter needs no translation,
//! and the update is one statement that mongod executes completely or not at all.

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
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

pub use self::operators::of_operators;
pub use self::plan::{Demand, Elsewhere, InPlace, Planned};
pub use self::positional::{ElementQuery, Positional, Probes, not_found};
pub use self::replacement::{of_pipeline, of_replacement};
pub use self::time::with_time;

/// An update that a client requests.
#[derive(Clone, Copy, Debug)]
pub enum Wish<'a> {
    /// Update operators.
    Operators(&'a RawDocument),
    /// A replacement document.
    Replacement(&'a RawDocument),
    /// The stages of a pipeline.
    Pipeline(&'a RawArray),
}

impl<'a> Wish<'a> {
    /// Parses an update. `None` if mongod would refuse its type.
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

/// The arguments of a `findAndModify` that claims an item, if its bucket is as it was read. It
/// changes only `control.changed`. mongod then keeps the image of the bucket for a retry.
///
/// # Errors
/// The reason why the item cannot be claimed, for an error message.
pub fn claim(shape: &BucketShape, found: &LocatedItem) -> Result<RawDocumentBuf, Unsupported> {
    let place = i32::try_from(found.place).unwrap_or(i32::MAX);
    // mongod keeps an image only of a real change. So the value's type changes if the value does
    // not.
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

/// Whether the error is that of a [statement that misses](InPlace::statement_or_miss).
#[must_use]
pub fn is_miss(error: &WriteError) -> bool {
    error.code == ErrorCode::ConversionFailure.number()
}

#[cfg(test)]
mod tests;
