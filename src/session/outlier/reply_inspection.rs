//! Finds outliers in mongod's replies.

use bson::raw::RawDocument;

use super::merged_read::MissingPages;
use crate::command::document::elements;
use crate::command::reply::CursorReply;
use crate::pattern::shapes::OutlierShape;

/// Whether a reply is not the client's: a document in it has the proxy's own fields, or it is the error of a
/// pipeline that missed pages.
pub(in crate::session) fn shows_outliers(shape: &OutlierShape, reply: &RawDocument) -> bool {
    match CursorReply::parse(reply) {
        Some(cursor) => cursor.documents().any(|document| shows_own(shape, document)),
        None => MissingPages::of_reply(reply).is_some(),
    }
}

/// Whether a document has the proxy's own fields.
pub(super) fn shows_own(shape: &OutlierShape, document: &RawDocument) -> bool {
    let [flag, control] = [shape.flag().as_bytes(), shape.control().as_bytes()];
    elements(document).any(|element| element.name == flag || element.name == control)
}
