//! `create`, `collMod`, `validate` and `planCacheClear`: finds options that buckets do not support, and
//! unknown options.

use std::collections::BTreeMap;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::arguments::CommandField;
use super::document::{as_flag, get, single};
use super::error::CommandError;

/// The option that clusters a collection.
pub const CLUSTERED: &str = "clusteredIndex";

/// The option that makes mongod store every document before and after each change.
pub const IMAGES: &str = "changeStreamPreAndPostImages";

/// The options of a collection for the validation of its documents.
pub const VALIDATION: [&str; 3] = ["validator", "validationLevel", "validationAction"];

/// Whether two collections have equal options. An option with mongod's default value equals an absent one, except
/// the level and the action of the validation, which mongod records only if they are given.
#[must_use]
pub fn has_equal_options(one: &RawDocument, other: &RawDocument) -> bool {
    options_without_defaults(one) == options_without_defaults(other)
}

fn options_without_defaults(options: &RawDocument) -> BTreeMap<&str, RawBsonRef<'_>> {
    let is_default = |name: &str, value: RawBsonRef<'_>| match value {
        RawBsonRef::Null | RawBsonRef::Undefined | RawBsonRef::Boolean(false) => true,
        RawBsonRef::Document(value) if name == "collation" => !is_of_a_language(value),
        RawBsonRef::Document(value) if name == IMAGES => get(value, "enabled").and_then(as_flag) != Some(true),
        RawBsonRef::Document(value) => value.is_empty(),
        // mongod creates the index on `_id` whatever this flag of earlier versions is.
        _ => name == "autoIndexId",
    };
    let fields = options.iter().flatten();
    fields
        .map(|(name, value)| (name.as_str(), value))
        // mongod does not compare the index on `_id`, which all collections have.
        .filter(|(name, value)| *name != "idIndex" && !is_default(name, *value))
        .collect()
}

/// The first option of a `create` that buckets do not support, such as `capped`.
/// mongod checks the options that mean the same for buckets and for items.
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
            // Images of pages serve the same change streams. The caller rewrites the validator for pages.
            IMAGES | "validator" => {
                field.document()?;
                false
            }
            // mongod refuses `size` and `max` for a collection that is not capped.
            "size" | "max" | "storageEngine" | "indexOptionDefaults" | "validationLevel" | "validationAction"
            // Buckets can be clustered like items. The caller refuses the option if the shape does
            // not keep `_id`s unique.
            | "clusteredIndex" => false,
            "encryptedFields" | "expireAfterSeconds" | "flags" | "pipeline" | "recordPreImages" | "timeseries"
            | "viewOn" => true,
            _ => return Err(field.unknown()),
        })
    })
}

/// The index by which a `create` clusters the collection. `None` if it does not, or if mongod
/// refuses it.
#[must_use]
pub fn clustered_index(body: &RawDocument) -> Option<&RawDocument> {
    get(body, CLUSTERED)?.as_document()
}

/// Whether a command, or the options of a collection, enable or disable the images. `None`: neither.
#[must_use]
pub fn images(options: &RawDocument) -> Option<bool> {
    as_flag(get(get(options, IMAGES)?.as_document()?, "enabled")?)
}

/// The value of the [option](IMAGES) that enables the images.
#[must_use]
pub fn enabled_images() -> RawDocumentBuf {
    single("enabled", true)
}

/// The first option of a `collMod` that buckets do not support. None of the other options names a
/// field of items.
///
/// # Errors
/// An option that `collMod` does not have, or one of the wrong type, with mongod's codes.
pub fn impossible_in_coll_mod(body: &RawDocument) -> Result<Option<&str>, CommandError> {
    find("collMod", body, |name, field| {
        Ok(match name {
            IMAGES | "index" | "validator" => {
                field.document()?;
                false
            }
            // A collection that is not capped has no size to change.
            "validationLevel" | "validationAction" | "cappedSize" | "cappedMax" => false,
            "clusteredIndex"
            | "dryRun"
            | "expireAfterSeconds"
            | "isTimeseriesNamespace"
            | "pipeline"
            | "recordPreImages"
            | "timeseries"
            | "viewOn" => true,
            _ => return Err(field.unknown()),
        })
    })
}

/// Whether a `collMod` changes the validator, its level or its action.
#[must_use]
pub fn has_validation(body: &RawDocument) -> bool {
    VALIDATION.iter().any(|name| given(body, name).is_some())
}

/// An option of a command. mongod ignores `null` and `undefined` (`checkAndAssertTypeSlowPath`).
#[must_use]
pub fn given<'a>(body: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    get(body, name).filter(|value| !matches!(value, RawBsonRef::Null | RawBsonRef::Undefined))
}

/// The first option of a `validate` that changes stored data, or has an unknown effect on the
/// reply.
///
/// # Errors
/// An option of the wrong type, with mongod's code.
pub fn impossible_in_validate(body: &RawDocument) -> Result<Option<&str>, CommandError> {
    find("validate", body, |name, field| {
        Ok(match name {
            "full" | "background" | "scandata" => false,
            "checkBSONConformance" | "enforceFastCount" | "fixMultikey" | "metadata" | "repair" => field.flag()?,
            // This version of mongod ignores unknown options, but another version may not.
            _ => true,
        })
    })
}

/// The first option of a `planCacheClear` that selects only some plans of the collection.
///
/// # Errors
/// Malformed BSON.
pub fn part_in_plan_cache_clear(body: &RawDocument) -> Result<Option<&str>, CommandError> {
    find("planCacheClear", body, |_, _| Ok(true))
}

/// The first option that is not supported. All options are checked, because mistakes are reported
/// first.
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

/// Whether a collation compares strings by the rules of a language, and not by their bytes. mongod refuses
/// one without a locale.
#[must_use]
pub fn is_of_a_language(collation: &RawDocument) -> bool {
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
            &rawdoc! { "create": "c", "capped": 1, "size": 4096, "viewOn": "x" },
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
    fn options_with_default_values_equal_absent_ones() {
        let none = RawDocumentBuf::new();
        let defaults = rawdoc! {
            "capped": false, "autoIndexId": true, "idIndex": { "key": { "_id": 1 }, "name": "_id_" }, "storageEngine": {},
            "collation": { "locale": "simple" }, "changeStreamPreAndPostImages": { "enabled": false },
        };
        assert!(has_equal_options(&defaults, &none));
        for other in [
            rawdoc! { "validationLevel": "strict" },
            rawdoc! { "changeStreamPreAndPostImages": { "enabled": true } },
            rawdoc! { "clusteredIndex": { "key": { "_id": 1 }, "unique": true } },
        ] {
            assert!(!has_equal_options(&other, &none), "{other:?}");
        }
        let one = rawdoc! { "validator": { "a": 1 }, "validationLevel": "strict" };
        assert!(has_equal_options(
            &one,
            &rawdoc! { "validationLevel": "strict", "validator": { "a": 1 } }
        ));
    }

    #[test]
    fn a_mistake_is_reported_before_a_refusal() {
        let error = impossible_in_create(&rawdoc! { "create": "c", "viewOn": "x", "nonsense": 1 }).unwrap_err();
        assert!(error.is(ErrorCode::UnknownField));
        let error = impossible_in_coll_mod(&rawdoc! { "collMod": "c", "nonsense": 1 }).unwrap_err();
        assert!(error.is(ErrorCode::UnknownField));
    }
}
