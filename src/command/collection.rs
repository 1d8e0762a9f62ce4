//! `create`, `collMod`, `validate` and `planCacheClear`: which options a command gives that cannot hold for
//! buckets, or of which it is not known whether they can.

use bson::raw::{RawBsonRef, RawDocument};

use super::arguments::CommandField;
use super::document::get;
use super::error::CommandError;

/// The option by which a collection is clustered.
pub const CLUSTERED: &str = "clusteredIndex";

/// An option of a `create` under which buckets cannot stand for items, such as `capped` or `validator`. What
/// means for buckets what it means for items is mongod's to check.
///
/// # Errors
/// An option that `create` does not have, or one of the wrong type, with mongod's codes.
pub fn impossible_in_create(body: &RawDocument) -> Result<Option<&str>, CommandError> {
    find("create", body, |name, field| {
        Ok(match name {
            "capped" | "temp" => field.flag()?,
            "autoIndexId" => !field.flag()?,
            "collation" => field.document()?.is_some_and(is_of_a_language),
            "idIndex" => field.document()?.is_some_and(|index| get(index, "collation").is_some()),
            // Change streams, which alone show the images, are refused.
            "changeStreamPreAndPostImages" => {
                field.document()?;
                false
            }
            // Of a collection that is not capped the two are an error, and without a validator its options
            // mean nothing.
            "size" | "max" | "storageEngine" | "indexOptionDefaults" | "validationLevel" | "validationAction"
            // What is stored can be clustered as well as the items, where each of these has an `_id` of its
            // own.
            | "clusteredIndex" => false,
            "encryptedFields" | "expireAfterSeconds" | "flags" | "pipeline" | "recordPreImages" | "timeseries"
            | "validator" | "viewOn" => true,
            _ => return Err(field.unknown()),
        })
    })
}

/// The index that a `create` makes the collection clustered by; `None` where it does not, or mongod refuses
/// it.
#[must_use]
pub fn clustered_index(body: &RawDocument) -> Option<&RawDocument> {
    get(body, CLUSTERED)?.as_document()
}

/// An option that a `collMod` gives and buckets cannot have. Nothing of what is left names a field of items.
///
/// # Errors
/// An option that `collMod` does not have, or one of the wrong type, with mongod's codes.
pub fn impossible_in_coll_mod(body: &RawDocument) -> Result<Option<&str>, CommandError> {
    find("collMod", body, |name, field| {
        Ok(match name {
            "changeStreamPreAndPostImages" => {
                field.document()?;
                false
            }
            // Without a validator they mean nothing (but see `weakening_in_coll_mod`), and a collection that
            // is not capped has no size to be changed.
            "validationLevel" | "validationAction" | "cappedSize" | "cappedMax" => false,
            "clusteredIndex"
            | "dryRun"
            | "expireAfterSeconds"
            | "index"
            | "isTimeseriesNamespace"
            | "pipeline"
            | "recordPreImages"
            | "timeseries"
            | "validator"
            | "viewOn" => true,
            _ => return Err(field.unknown()),
        })
    })
}

/// An option of a `collMod` by which a validator would let something pass.
#[must_use]
pub fn weakening_in_coll_mod(body: &RawDocument) -> Option<&'static str> {
    let is = |field, values: &[&str]| {
        let value = get(body, field).and_then(RawBsonRef::as_str);
        value.is_some_and(|value| values.contains(&value)).then_some(field)
    };
    is("validationLevel", &["off", "moderate"]).or_else(|| is("validationAction", &["warn"]))
}

/// An option of a `validate` that changes what is stored, or of which the answer would not be known.
///
/// # Errors
/// An option of the wrong type, with mongod's code.
pub fn impossible_in_validate(body: &RawDocument) -> Result<Option<&str>, CommandError> {
    find("validate", body, |name, field| {
        Ok(match name {
            "full" | "background" | "scandata" => false,
            "checkBSONConformance" | "enforceFastCount" | "fixMultikey" | "metadata" | "repair" => field.flag()?,
            // mongod gives no thought to what it does not know, but another one may.
            _ => true,
        })
    })
}

/// What a `planCacheClear` names, if not all plans of the collection.
///
/// # Errors
/// Bytes that are no BSON.
pub fn part_in_plan_cache_clear(body: &RawDocument) -> Result<Option<&str>, CommandError> {
    find("planCacheClear", body, |_, _| Ok(true))
}

/// The first option for which that is so. All of them are looked at: a mistake is told before what cannot be.
fn find<'a>(
    command: &'static str,
    body: &'a RawDocument,
    is_impossible: impl Fn(&str, CommandField<'a>) -> Result<bool, CommandError>,
) -> Result<Option<&'a str>, CommandError> {
    let mut found = None;
    for field in CommandField::all(command, body) {
        let (name, field) = field?;
        if is_impossible(name, field)? && found.is_none() {
            found = Some(name);
        }
    }
    Ok(found)
}

/// One without a locale is mongod's to refuse.
fn is_of_a_language(collation: &RawDocument) -> bool {
    get(collation, "locale").is_some_and(|locale| locale != RawBsonRef::String("simple"))
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::command::error::ErrorCode;

    #[test]
    fn options_that_mean_the_same_for_buckets_are_possible() {
        let check = |body: &RawDocument, expected: Option<&str>| {
            assert_eq!(impossible_in_create(body).unwrap(), expected, "{body:?}");
        };
        check(&rawdoc! { "create": "c", "$db": "d", "writeConcern": { "w": 1 } }, None);
        check(
            &rawdoc! { "create": "c", "capped": false, "validationLevel": "off" },
            None,
        );
        check(&rawdoc! { "create": "c", "collation": { "locale": "simple" } }, None);
        check(
            &rawdoc! { "create": "c", "collation": { "locale": "de" } },
            Some("collation"),
        );
        check(
            &rawdoc! { "create": "c", "capped": 1, "size": 4096, "validator": {} },
            Some("capped"),
        );
        check(
            &rawdoc! { "create": "c", "changeStreamPreAndPostImages": { "enabled": true } },
            None,
        );
        let clustered = rawdoc! { "create": "c", "clusteredIndex": { "key": { "_id": 1 }, "unique": true } };
        check(&clustered, None);
        assert!(clustered_index(&clustered).is_some());
        assert!(clustered_index(&rawdoc! { "create": "c", "clusteredIndex": true }).is_none());
    }

    #[test]
    fn a_mistake_is_told_before_what_is_impossible() {
        let error = impossible_in_create(&rawdoc! { "create": "c", "viewOn": "x", "nonsense": 1 }).unwrap_err();
        assert!(error.is(ErrorCode::UnknownField));
        let error = impossible_in_coll_mod(&rawdoc! { "collMod": "c", "nonsense": 1 }).unwrap_err();
        assert!(error.is(ErrorCode::UnknownField));
    }
}
