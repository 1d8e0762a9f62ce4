//! An application's connection without a driver, whose own cost would hide the server's. Requests are built
//! before the clock starts, and replies are checked after it has stopped.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, Uuid, doc};
use proto_tests::{frame, raw};

use super::model::Write;

/// How long mongod may take over a command: by hand, a thousand trades of a customer with very many pages
/// take long.
const LIMIT: Duration = Duration::from_mins(5);

/// How drivers send writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Retries {
    /// To a standalone, which cannot recognise a retry; or to a replica set with `retryWrites=false`
    None,
    /// To a replica set. Each write has a session and a number: mongod recognises its retry
    Numbered,
}

/// A connection after its `hello`.
#[derive(Debug)]
pub(super) struct Client {
    connection: raw::Connection,
    database: String,
    /// What it adds to a write: the database, and where writes are numbered its session and the number.
    fields: Vec<u8>,
    /// How many writes it has numbered, if it does.
    writes: Option<i64>,
}

impl Client {
    /// Connects and sends `hello`; commands are sent to this database.
    pub(super) fn open(address: SocketAddr, database: &str, retries: Retries) -> Result<Self> {
        let mut connection = raw::Connection::open(address)?;
        connection.stream().set_read_timeout(Some(LIMIT))?;
        connection.command_ok(&doc! { "hello": 1, "$db": "admin" })?;
        Self::on(connection, database, retries)
    }

    fn on(connection: raw::Connection, database: &str, retries: Retries) -> Result<Self> {
        let mut own = doc! { "$db": database };
        let writes = (retries == Retries::Numbered).then_some(0_i64);
        if let Some(writes) = writes {
            own.extend(doc! { "lsid": { "id": Uuid::new() }, "txnNumber": writes });
        }
        Ok(Self {
            connection,
            database: database.to_owned(),
            fields: fields(&own)?,
            writes,
        })
    }

    /// Runs a command on the database.
    pub(super) fn command(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        self.connection.command_ok(&command)
    }

    /// A write as this connection sends it, once: each has a number of its own.
    pub(super) fn request(&mut self, write: &Write) -> Result<Request> {
        Ok(self.number(&Prepared::of(write)?))
    }

    /// The request of a command, which gets the next number: without making BSON, as the clock may run.
    pub(super) fn number(&mut self, prepared: &Prepared) -> Request {
        if let Some(writes) = &mut self.writes {
            *writes += 1;
            // The last field's value.
            let value = self.fields.len() - size_of::<i64>()..;
            self.fields[value].copy_from_slice(&writes.to_le_bytes());
        }
        let body = section_of_fields(&[&prepared.fields, &self.fields]);
        let sections: Vec<_> = [Some(body), prepared.documents.clone()].into_iter().flatten().collect();
        Request {
            frame: frame::message(1, 0, &sections),
            items: prepared.items,
        }
    }

    /// The frame of a command on the database that is no write.
    pub(super) fn frame(&self, mut command: Document) -> Result<Vec<u8>> {
        command.insert("$db", &self.database);
        raw::request(1, &command)
    }

    /// Sends a frame and waits for the frame of its reply, whose room is used again.
    pub(super) fn exchange_frames(&mut self, request: &[u8], reply: &mut Vec<u8>) -> Result<()> {
        self.connection.send(request)?;
        self.connection.read_frame(reply)
    }

    /// Sends a request and waits for its reply: the time between.
    pub(super) fn exchange(&mut self, request: &Request, reply: &mut Reply) -> Result<Duration> {
        let started = Instant::now();
        self.exchange_frames(&request.frame, &mut reply.0)?;
        Ok(started.elapsed())
    }

    /// Sends requests one after the other, each after the reply to the one before: the time that all took.
    pub(super) fn exchange_all(&mut self, requests: &[Request]) -> Result<Duration> {
        let mut replies: Vec<_> = requests.iter().map(|_| Reply::default()).collect();
        let mut taken = Duration::ZERO;
        for (request, reply) in requests.iter().zip(&mut replies) {
            taken += self.exchange(request, reply)?;
        }
        let mut judged = requests.iter().zip(&replies);
        judged.try_for_each(|(request, reply)| reply.judge(request))?;
        Ok(taken)
    }
}

/// A write without the fields that a connection adds.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The body's fields.
    fields: Vec<u8>,
    /// The section of its documents.
    documents: Option<Vec<u8>>,
    items: usize,
}

impl Prepared {
    /// A command whose documents follow its body.
    pub(super) fn of(write: &Write) -> Result<Self> {
        Ok(Self {
            fields: fields(&write.body)?,
            documents: Some(frame::sequence_section(write.field, &write.documents)?),
            items: write.documents.len(),
        })
    }

    /// A command that is all body, and about one trade: `findAndModify`.
    pub(super) fn of_one(body: &Document) -> Result<Self> {
        Ok(Self {
            fields: fields(body)?,
            documents: None,
            items: 1,
        })
    }
}

/// A document's fields, without the length before and the zero behind them.
fn fields(document: &Document) -> Result<Vec<u8>> {
    let bytes = document.to_vec()?;
    Ok(bytes[size_of::<i32>()..bytes.len() - 1].to_vec())
}

/// The body section of a document that has all these fields.
fn section_of_fields(fields: &[&[u8]]) -> Vec<u8> {
    let fields = fields.concat();
    let length = i32::try_from(size_of::<i32>() + fields.len() + 1).expect("a small document");
    [&[0], &length.to_le_bytes()[..], &fields, &[0]].concat()
}

/// A write as it is sent.
#[derive(Debug)]
pub(super) struct Request {
    frame: Vec<u8>,
    /// How many trades it stores or changes.
    items: usize,
}

/// The frame of a reply, empty until there is one.
#[derive(Debug, Default)]
pub(super) struct Reply(Vec<u8>);

impl Reply {
    /// Its bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The reply as a document.
    pub(super) fn document(&self) -> Result<Document> {
        raw::document(&self.0)
    }

    /// Fails unless the reply counts every item as stored, found or removed.
    pub(super) fn judge(&self, request: &Request) -> Result<()> {
        let reply = self.document()?;
        // As `findAndModify` has it.
        let counted = reply.get_document("lastErrorObject").unwrap_or(&reply);
        let stored = counted.get_i32("n").ok().and_then(|n| usize::try_from(n).ok());
        ensure!(
            reply.get_f64("ok").is_ok_and(|ok| ok > 0.0)
                && stored == Some(request.items)
                && !reply.contains_key("writeErrors")
                && !reply.contains_key("writeConcernError"),
            "not {} items, or an error: {reply}",
            request.items
        );
        Ok(())
    }
}

/// A number of a reply, which mongod gives in whichever type is the shortest, or in which it counted.
pub(super) fn number(reply: &Document, field: &str) -> Result<f64> {
    let value = reply.get(field).with_context(|| format!("no {field} in {reply}"))?;
    #[expect(
        clippy::cast_precision_loss,
        reason = "bytes and items of minutes are far below 2^52"
    )]
    let long = value.as_i64().map(|number| number as f64);
    let number = long
        .or_else(|| value.as_i32().map(f64::from))
        .or_else(|| value.as_f64());
    number.with_context(|| format!("{field} is no number: {reply}"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn number_in(request: &Request) -> i64 {
        let text = raw::document(&request.frame[..]).expect("a body").to_string();
        let (_, number) = text.rsplit_once("\"txnNumber\": ").expect("a number");
        number.trim_end_matches(" }").parse().expect("a number")
    }

    #[test]
    fn every_write_has_the_next_number() -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let connection = raw::Connection::open(listener.local_addr()?)?;
        let mut client = Client::on(connection, "d", Retries::Numbered)?;
        let write = Write::insert("c", vec![doc! { "_id": 1 }]);
        assert_eq!(number_in(&client.request(&write)?), 1);
        let prepared = Prepared::of(&write)?;
        assert_eq!(number_in(&client.number(&prepared)), 2);
        let one = Prepared::of_one(&doc! { "findAndModify": "c" })?;
        assert_eq!(number_in(&client.number(&one)), 3);
        Ok(())
    }
}
