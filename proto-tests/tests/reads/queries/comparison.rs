//! The same read on a plain collection and on a shaped one.

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sides::{COLLECTION, Sides};

/// What is different in every reply, or in every database.
const INCIDENTAL: [&str; 3] = ["$clusterTime", "operationTime", "electionId"];

/// A plain and a shaped collection with the same documents.
pub(crate) struct Comparison {
    pub sides: Sides,
}

impl Comparison {
    pub(crate) fn open(sides: Sides, items: &[Document]) -> Result<Self> {
        let mut comparison = Self { sides };
        if !items.is_empty() {
            comparison.insert(items)?;
        }
        Ok(comparison)
    }

    pub(crate) fn insert(&mut self, items: &[Document]) -> Result<()> {
        let insert = doc! { "insert": COLLECTION, "documents": items };
        let reply = self.sides.alike(&insert)?;
        ensure!(!reply.contains_key("writeErrors"), "{reply}");
        Ok(())
    }

    /// The replies, plain and shaped, without what is different in any two.
    pub(crate) fn replies(&mut self, command: &Document) -> Result<[Document; 2]> {
        let (plain, shaped) = (self.sides.plain_database(), self.sides.shaped_database());
        Ok([
            reply(&mut self.sides.plain, &plain, command)?,
            reply(&mut self.sides.shaped, &shaped, command)?,
        ])
    }

    /// A command that both answer alike, or refuse with the same code; what the plain one answers.
    pub(crate) fn alike(&mut self, command: &Document) -> Result<Document> {
        let [plain, shaped] = self.replies(command)?.map(without_words);
        let is_alike = plain == shaped && batch(&plain) == batch(&shaped);
        ensure!(is_alike, "{command}\n  plain:  {plain}\n  shaped: {shaped}");
        Ok(plain)
    }
}

fn reply(connection: &mut Connection, database: &str, command: &Document) -> Result<Document> {
    let mut command = command.clone();
    command.insert("$db", database);
    let mut reply = connection.command(&command)?;
    for name in INCIDENTAL {
        reply.remove(name);
    }
    if let Ok(cursor) = reply.get_document_mut("cursor") {
        cursor.remove("ns");
        // Whether it is open at the very end of what there is, mongod does not always know.
        cursor.remove("id");
    }
    Ok(reply)
}

/// The first batch as text. The order of fields in a document does not count.
fn batch(reply: &Document) -> String {
    let cursor = reply.get_document("cursor");
    cursor.map_or_else(|_| String::new(), |cursor| format!("{:?}", cursor.get("firstBatch")))
}

/// A reply without the texts of errors, which say more or less.
fn without_words(mut reply: Document) -> Document {
    reply.remove("errmsg");
    for error in reply.get_array_mut("writeErrors").into_iter().flatten() {
        if let Bson::Document(error) = error {
            error.remove("errmsg");
        }
    }
    reply
}
