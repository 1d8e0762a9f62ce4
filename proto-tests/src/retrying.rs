//! An application's connection that resends a command without a reply.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bson::{Document, doc};

use crate::raw::Connection;
use crate::sessions::lsid;

/// How long a command is sent again for.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(40);
/// mongod's and the proxy's code for a write conflict after all retries: nothing was changed.
const WRITE_CONFLICT: i32 = 112;
/// The proxy's code for a `findAndModify` that was executed and whose reply is lost.
const ILLEGAL_OPERATION: i32 = 20;

/// The errors that report that the proxy is not ready, or that there is no primary.
const NAMES_OF_NO_PRIMARY: [&str; 4] = [
    "PrimarySteppedDown",
    "NotWritablePrimary",
    "InterruptedDueToReplStateChange",
    "NotPrimaryNoSecondaryOk",
];
/// Their codes.
const NO_PRIMARY: [i32; 4] = [189, 10107, 11602, 13435];

/// Whether commands are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retries {
    /// A connection that breaks is a failure.
    None,
    /// As retryable writes.
    Writes,
}

/// The outcome of a write.
#[derive(Debug)]
pub enum Answer {
    /// The reply.
    Reply(Document),
    /// It was executed, and its reply is lost.
    ReplyLost,
}

/// One application's connection to the proxies.
#[derive(Debug)]
pub struct Client<'a> {
    addresses: &'a [SocketAddr],
    turn: usize,
    connection: Option<Connection>,
    database: &'a str,
    /// What it does when a connection breaks.
    pub retries: Retries,
    session: Document,
    number: i64,
    /// Commands that failed with a write conflict and were sent again as new ones.
    pub conflicts: u64,
    /// Commands that were sent more than once.
    pub resent: u64,
    /// The commands among them whose reply is lost.
    pub forgotten: u64,
}

impl<'a> Client<'a> {
    /// The client with this number. The number selects the address of its first connection.
    #[must_use]
    pub fn new(number: usize, addresses: &'a [SocketAddr], (database, retries): (&'a str, Retries)) -> Self {
        Self {
            addresses,
            turn: number,
            connection: None,
            database,
            retries,
            session: lsid(&format!("{database} {number}")),
            number: 0,
            conflicts: 0,
            resent: 0,
            forgotten: 0,
        }
    }

    /// A write of single items, which must succeed.
    pub fn write(&mut self, command: &Document) -> Result<Answer> {
        self.until_won(command, self.retries == Retries::Writes)
    }

    /// The same for a command whose reply is never lost.
    pub fn write_with_reply(&mut self, command: &Document) -> Result<Document> {
        match self.write(command)? {
            Answer::Reply(reply) => Ok(reply),
            Answer::ReplyLost => bail!("{command}: its reply is lost"),
        }
    }

    /// A retryable write that may fail with other errors than a write conflict. Returns the reply.
    pub fn write_or_fail(&mut self, command: &Document) -> Result<Document> {
        for _ in 0..20 {
            let mut command = command.clone();
            self.number += 1;
            command.insert("lsid", self.session.clone());
            command.insert("txnNumber", self.number);
            command.insert("$db", self.database);
            let reply = self.until_answered(&command)?;
            if codes(&reply) != [WRITE_CONFLICT] {
                return Ok(reply);
            }
            self.conflicts += 1;
        }
        bail!("{command}\n  had a write conflict too often")
    }

    /// A write of many items: not retryable. Where connections break, it must be safe to execute it twice.
    pub fn write_many(&mut self, command: &Document) -> Result<Document> {
        match self.until_won(command, false)? {
            Answer::Reply(reply) => Ok(reply),
            Answer::ReplyLost => bail!("{command}: its reply is lost"),
        }
    }

    /// Documents that match.
    pub fn find(&mut self, collection: &str, filter: &Document) -> Result<Vec<Document>> {
        self.all(&doc! { "find": collection, "filter": filter.clone() })
    }

    /// All documents of a command that opens a cursor.
    pub fn all(&mut self, command: &Document) -> Result<Vec<Document>> {
        let mut command = command.clone();
        command.insert("$db", self.database);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.open().and_then(|connection| connection.all(&command)) {
                Ok(items) => return Ok(items),
                Err(error) if self.retries == Retries::None => return Err(error),
                Err(error) => {
                    let text = error.to_string();
                    let is_refused = text.starts_with("the server refused")
                        && !NAMES_OF_NO_PRIMARY.iter().any(|name| text.contains(name));
                    ensure!(!is_refused, "{command}: {text}");
                    self.broken(deadline, &command)?;
                }
            }
        }
    }

    fn until_won(&mut self, command: &Document, is_numbered: bool) -> Result<Answer> {
        for _ in 0..20 {
            let mut command = command.clone();
            command.insert("lsid", self.session.clone());
            if is_numbered {
                self.number += 1;
                command.insert("txnNumber", self.number);
            }
            command.insert("$db", self.database);
            let reply = self.until_answered(&command)?;
            match codes(&reply).as_slice() {
                [] if reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) && !reply.contains_key("writeConcernError") => {
                    return Ok(Answer::Reply(reply));
                }
                [WRITE_CONFLICT] => self.conflicts += 1,
                [ILLEGAL_OPERATION] if is_numbered && command.contains_key("findAndModify") => {
                    self.forgotten += 1;
                    return Ok(Answer::ReplyLost);
                }
                _ => bail!("{command}\n  got the reply {reply}"),
            }
        }
        bail!("{command}\n  had a write conflict too often")
    }

    fn until_answered(&mut self, command: &Document) -> Result<Document> {
        let deadline = Instant::now() + PATIENCE;
        for sent in 0.. {
            let answer = self.open().and_then(|connection| connection.command(command));
            match answer {
                Ok(reply) if !is_to_be_sent_again(command, &reply) => {
                    self.resent += u64::from(sent > 0);
                    return Ok(reply);
                }
                Err(error) if self.retries == Retries::None => {
                    return Err(error.context(format!("{command} got no reply")));
                }
                Ok(reply) if self.retries == Retries::None => bail!("{command}\n  got the reply {reply}"),
                Ok(_) | Err(_) => self.broken(deadline, command)?,
            }
        }
        bail!("never sent")
    }

    fn broken(&mut self, deadline: Instant, command: &Document) -> Result<()> {
        self.connection = None;
        self.turn += 1;
        ensure!(Instant::now() < deadline, "{command} got no reply in {PATIENCE:?}");
        thread::sleep(Duration::from_millis(2));
        Ok(())
    }

    fn open(&mut self) -> Result<&mut Connection> {
        if self.connection.is_none() {
            let opened = Connection::open(self.addresses[self.turn % self.addresses.len()])?;
            opened.stream().set_read_timeout(Some(ANSWER_LIMIT))?;
            self.connection = Some(opened);
        }
        self.connection.as_mut().context("just opened")
    }
}

/// Whether the command is resent: by a driver because of the label, or by the application because there is no primary.
/// The error of an unnumbered command has no label. Such a command may be executed twice.
fn is_to_be_sent_again(command: &Document, reply: &Document) -> bool {
    let labels = reply.get_array("errorLabels").map(Vec::as_slice).unwrap_or_default();
    labels.iter().any(|label| label.as_str() == Some("RetryableWriteError"))
        || (!command.contains_key("txnNumber") && lacks_primary(reply))
}

/// Whether a reply has errors, and all of them report that there is no primary.
fn lacks_primary(reply: &Document) -> bool {
    let concern = reply.get_document("writeConcernError").ok();
    let concern = concern.and_then(|error| error.get_i32("code").ok());
    let mut codes = codes(reply).into_iter().chain(concern).peekable();
    codes.peek().is_some() && codes.all(|code| NO_PRIMARY.contains(&code))
}

/// The codes of a reply's errors.
fn codes(reply: &Document) -> Vec<i32> {
    let errors = reply.get_array("writeErrors").map(Vec::as_slice).unwrap_or_default();
    let errors = errors.iter().filter_map(|error| error.as_document());
    let errors = errors.chain([reply]);
    errors.filter_map(|error| error.get_i32("code").ok()).collect()
}
