//! The images of a document that a change event contains.

use bson::raw::{RawBsonRef, RawDocument};

use crate::command::document::get;

/// The option `fullDocument` of `$changeStream`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FullDocument {
    /// Only `insert` and `replace` contain the document.
    #[default]
    Default,
    /// An `update` contains the document as it is when the event is read.
    UpdateLookup,
    /// An `update` contains the document after the change.
    PostImage,
}

/// The option `fullDocumentBeforeChange` of `$changeStream`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BeforeChange {
    /// No event contains the document before the change.
    #[default]
    Off,
    /// `update`, `replace` and `delete` contain it.
    PreImage,
}

/// The images that a client requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Images {
    /// The document after the change.
    pub full_document: FullDocument,
    /// The document before the change.
    pub before_change: BeforeChange,
}

impl Images {
    /// Reads the options of a `$changeStream`, which mongod has checked.
    #[must_use]
    pub fn of(options: &RawDocument) -> Self {
        let text = |name| get(options, name).and_then(RawBsonRef::as_str);
        Self {
            full_document: match text("fullDocument") {
                Some("updateLookup") => FullDocument::UpdateLookup,
                Some("whenAvailable" | "required") => FullDocument::PostImage,
                _ => FullDocument::Default,
            },
            before_change: match text("fullDocumentBeforeChange") {
                Some("whenAvailable" | "required") => BeforeChange::PreImage,
                _ => BeforeChange::Off,
            },
        }
    }
}
