//! A command for each row of the document.

mod collections;
mod indexes;
mod reads;
mod writes;

use bson::{Bson, DateTime, Document, doc};
use proto_tests::sides::COLLECTION;

/// How much of two answers must be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    /// All that is not a server's own.
    Whole,
    /// Whether it succeeds, or else the code: the note says what differs, or the words do.
    Success,
    /// All, where items have unique `_id`s; it is not tried where they have not.
    WholeIfUnique,
    /// Nothing: this is the part of an option that is refused.
    Refused,
}

/// A command that tries an option.
#[derive(Debug)]
pub(crate) struct Probe {
    pub command: &'static str,
    pub option: &'static str,
    pub sent: Document,
    pub compared: Compared,
}

/// Those of one command.
struct Of {
    command: &'static str,
    base: Document,
    compared: Compared,
    probes: Vec<Probe>,
}

impl Of {
    fn new(command: &'static str, base: Document) -> Self {
        Self {
            command,
            base,
            compared: Compared::Whole,
            probes: Vec::new(),
        }
    }

    fn compared(mut self, compared: Compared) -> Self {
        self.compared = compared;
        self
    }

    /// An option given this value.
    fn with(self, option: &'static str, value: impl Into<Bson>) -> Self {
        let mut sent = self.base.clone();
        sent.insert(option, value);
        self.sent(option, sent)
    }

    /// An option given beside others.
    fn beside(self, option: &'static str, others: Document) -> Self {
        let mut sent = self.base.clone();
        sent.extend(others);
        self.sent(option, sent)
    }

    fn sent(self, option: &'static str, sent: Document) -> Self {
        let compared = self.compared;
        self.told(option, sent, compared)
    }

    /// Of whose answers only the success or the code is the same.
    fn loosely(self, option: &'static str, others: Document) -> Self {
        let mut sent = self.base.clone();
        sent.extend(others);
        self.told(option, sent, Compared::Success)
    }

    /// A part of an option that is refused.
    fn but(self, option: &'static str, others: Document) -> Self {
        let mut sent = self.base.clone();
        sent.extend(others);
        self.told(option, sent, Compared::Refused)
    }

    fn told(mut self, option: &'static str, sent: Document, compared: Compared) -> Self {
        let command = self.command;
        self.probes.push(Probe {
            command,
            option,
            sent,
            compared,
        });
        self
    }
}

/// All of them, in an order in which they can be sent one after the other.
pub(crate) fn all() -> Vec<Probe> {
    let of = [
        every_command(),
        reads::find(),
        reads::count(),
        reads::distinct(),
        reads::aggregate(),
        reads::stages(),
        writes::insert(),
        writes::update(),
        writes::delete(),
        writes::find_and_modify(),
        reads::explain(),
        indexes::indexes(),
        indexes::list_indexes(),
        indexes::drop_indexes(),
        reads::cursors(),
        reads::kill_cursors(),
        collections::collection(),
        collections::coll_mod(),
        collections::statistics(),
        collections::data_size(),
        collections::validate(),
        collections::compact(),
        collections::plan_cache(),
        collections::list_collections(),
        collections::db_stats(),
        collections::rename(),
        collections::drop(),
    ];
    of.into_iter().flat_map(|of| of.probes).collect()
}

fn every_command() -> Of {
    Of::new("every command", doc! { "find": COLLECTION, "sort": { "q": 1 }, "limit": 3 })
        .with("comment", "c")
        .with("maxTimeMS", 10_000)
        .with("readConcern", doc! { "level": "majority" })
        .with("$readPreference", doc! { "mode": "primaryPreferred" })
        .with("apiVersion", "1")
        .beside("apiStrict", doc! { "apiVersion": "1", "apiStrict": true })
        .beside("apiDeprecationErrors", doc! { "apiVersion": "1", "apiDeprecationErrors": true })
        .with("lsid", doc! {})
        .sent("startTransaction", doc! { "find": COLLECTION, "filter": { "_id": 3 }, "lsid": doc! {}, "txnNumber": 1_i64, "autocommit": false, "startTransaction": true })
        .sent("autocommit", doc! { "find": COLLECTION, "filter": { "k": 1 }, "lsid": doc! {}, "txnNumber": 1_i64, "autocommit": false })
        .sent("txnNumber", doc! { "abortTransaction": 1, "lsid": doc! {}, "txnNumber": 1_i64, "autocommit": false, "$db": "admin" })
        .sent("txnNumber", doc! { "insert": COLLECTION, "documents": [item(101, 1)], "lsid": doc! {}, "txnNumber": 2_i64 })
        .sent("txnNumber", doc! { "insert": COLLECTION, "documents": [item(101, 1)], "lsid": doc! {}, "txnNumber": 2_i64 })
        .sent("writeConcern", doc! { "insert": COLLECTION, "documents": [{ "_id": 100, "k": 1, "at": DateTime::from_millis(100_000), "q": 100 }], "writeConcern": { "w": "majority" } })
}

fn item(id: i32, k: i32) -> Document {
    doc! { "_id": id, "k": k, "at": DateTime::from_millis(i64::from(id) * 1000), "q": id }
}

fn uuid() -> bson::Binary {
    bson::Binary {
        subtype: bson::spec::BinarySubtype::Uuid,
        bytes: vec![7; 16],
    }
}
