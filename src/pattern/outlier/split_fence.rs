//! The split fence: the validator by which mongod refuses that a document becomes an outlier, while a
//! collection is converted to plain documents, and after that.
//!
//! With the level `moderate` mongod does not validate an update of a document that is invalid already. So an
//! outlier may be changed as before, and may become inline. No document may become an outlier, whichever
//! proxy or program writes it. A proxy that reads the fence stores long arrays whole.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::layout::is_typical;
use crate::command::collection::VALIDATION;
use crate::command::document::get;
use crate::pattern::shapes::OutlierShape;

/// The option of a collection that has the fence.
pub const VALIDATOR: &str = "validator";

/// The validator of a fenced collection.
#[must_use]
pub fn validator(shape: &OutlierShape) -> RawDocumentBuf {
    is_typical(shape)
}

/// Whether a collection is fenced. `options` are those that `listCollections` returns.
#[must_use]
pub fn is_fenced(shape: &OutlierShape, options: &RawDocument) -> bool {
    get(options, VALIDATOR).and_then(RawBsonRef::as_document) == Some(&*validator(shape))
}

/// The options without the fence, as applications see them.
#[must_use]
pub fn without_fence(shape: &OutlierShape, options: &RawDocument) -> RawDocumentBuf {
    if !is_fenced(shape, options) {
        return options.to_owned();
    }
    let mut rest = RawDocumentBuf::new();
    for (name, value) in options.iter().flatten() {
        if !VALIDATION.contains(&name.as_str()) {
            rest.append(name, value);
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::outlier::sample;

    #[test]
    fn only_the_fence_is_hidden() {
        let mut fenced = rawdoc! { "storageEngine": {} };
        fenced.append(bson::raw::cstr!("validator"), validator(&sample()));
        fenced.append(bson::raw::cstr!("validationLevel"), "moderate");
        fenced.append(bson::raw::cstr!("validationAction"), "error");
        assert!(is_fenced(&sample(), &fenced));
        assert_eq!(without_fence(&sample(), &fenced), rawdoc! { "storageEngine": {} });
        let other = rawdoc! { "validator": { "title": { "$type": "string" } }, "validationLevel": "moderate" };
        assert!(!is_fenced(&sample(), &other));
        assert_eq!(without_fence(&sample(), &other), other);
        assert!(!is_fenced(&sample(), &rawdoc! {}));
    }
}
