//! What of a reply can be compared with another server's, or with that of another database.

use bson::Document;

/// The fields of these names, in the reply's order, with no database's name in the texts of `writeErrors`.
#[must_use]
pub fn said(reply: &Document, names: &[&str], database: &str) -> Document {
    let fields = reply.iter().filter(|(name, _)| names.contains(&name.as_str()));
    let mut said: Document = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
    for error in said.get_array_mut("writeErrors").into_iter().flatten() {
        if let Some(error) = error.as_document_mut() {
            let text = error.get_str("errmsg").unwrap_or_default();
            let text = text.replace(database, "DATABASE");
            error.insert("errmsg", text);
        }
    }
    said
}
