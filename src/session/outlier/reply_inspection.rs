//! Finds outliers in mongod's replies.

use bson::raw::RawDocument;

use crate::command::document::elements;
use crate::command::reply::CursorReply;
use crate::pattern::shapes::OutlierShape;

/// Whether a document in a reply has the proxy's own fields.
pub(in crate::session) fn shows_outliers(shape: &OutlierShape, reply: &RawDocument) -> bool {
    let Some(cursor) = CursorReply::parse(reply) else {
        return false;
    };
    cursor.documents().any(|document| shows_own(shape, document))
}

/// Whether a document has the proxy's own fields.
pub(super) fn shows_own(shape: &OutlierShape, document: &RawDocument) -> bool {
    let [flag, control] = [shape.flag().as_bytes(), shape.control().as_bytes()];
    elements(document).any(|element| element.name == flag || element.name == control)
}
