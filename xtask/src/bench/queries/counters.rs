//! mongod's counters: examined documents and index keys, received commands, and sent bytes. They include the
//! internal commands of mongoshape.

use std::net::SocketAddr;
use std::ops::{Add, Sub};

use anyhow::Result;
use bson::{Bson, Document, doc};

use crate::bench::client::{Client, Retries, number};

/// Commands of drivers' and proxies' monitors, and the one that reads the counters.
const NOT_COUNTED: [&str; 5] = ["serverStatus", "hello", "isMaster", "ismaster", "ping"];

/// Counters since mongod started, or differences.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) keys: f64,
    pub(super) documents: f64,
    pub(super) commands: f64,
    pub(super) bytes_sent: f64,
}

impl Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            keys: self.keys + other.keys,
            documents: self.documents + other.documents,
            commands: self.commands + other.commands,
            bytes_sent: self.bytes_sent + other.bytes_sent,
        }
    }
}

impl Sub for Counters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            keys: self.keys - before.keys,
            documents: self.documents - before.documents,
            commands: self.commands - before.commands,
            bytes_sent: self.bytes_sent - before.bytes_sent,
        }
    }
}

/// A connection to mongod that reads counters.
#[derive(Debug)]
pub(super) struct Reader {
    client: Client,
    /// Bytes that mongod sends between two readings by reading alone.
    own_bytes: f64,
}

impl Reader {
    /// Connects, and measures what reading itself adds to the counters.
    pub(super) fn open(mongod: SocketAddr) -> Result<Self> {
        let mut reader = Self {
            client: Client::open(mongod, "admin", Retries::None)?,
            own_bytes: 0.0,
        };
        reader.read()?;
        let before = reader.read()?;
        reader.own_bytes = (reader.read()? - before).bytes_sent;
        Ok(reader)
    }

    /// The counters now.
    pub(super) fn read(&mut self) -> Result<Counters> {
        let status = self.client.command(doc! {
            "serverStatus": 1, "wiredTiger": 0, "tcmalloc": 0, "locks": 0, "opLatencies": 0, "transactions": 0,
        })?;
        counters(&status)
    }

    /// What was counted between two readings, without the bytes of the readings.
    pub(super) fn between(&self, before: Counters, after: Counters) -> Counters {
        let mut spent = after - before;
        spent.bytes_sent = (spent.bytes_sent - self.own_bytes).max(0.0);
        spent
    }
}

fn counters(status: &Document) -> Result<Counters> {
    let metrics = status.get_document("metrics")?;
    let examined = metrics.get_document("queryExecutor")?;
    let mut commands = 0.0;
    for (name, counts) in metrics.get_document("commands")? {
        if let (false, Bson::Document(counts)) = (NOT_COUNTED.contains(&name.as_str()), counts) {
            commands += number(counts, "total")?;
        }
    }
    Ok(Counters {
        keys: number(examined, "scanned")?,
        documents: number(examined, "scannedObjects")?,
        commands,
        bytes_sent: number(status.get_document("network")?, "bytesOut")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_but_those_of_monitors() -> Result<()> {
        let commands = doc! {
            "<UNKNOWN>": 1_i64, "find": { "failed": 0_i64, "total": 3_i64 }, "hello": { "total": 9_i64 },
            "getMore": { "total": 2_i64 },
        };
        let status = doc! {
            "metrics": { "commands": commands, "queryExecutor": { "scanned": 4_i64, "scannedObjects": 5_i64 } },
            "network": { "bytesOut": 6_i64 },
        };
        let Counters {
            keys,
            documents,
            commands,
            bytes_sent,
        } = counters(&status)?;
        assert_eq!(format!("{keys} {documents} {commands} {bytes_sent}"), "4 5 5 6");
        Ok(())
    }
}
