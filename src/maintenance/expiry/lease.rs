//! The lease of the proxy that deletes the expired items of a collection: a document in the database
//! `mongoshape`.

use std::time::Duration;

use anyhow::anyhow;
use bson::{Bson, DateTime, Document, bson, doc};
use mongodb::Client;
use mongodb::error::{Error, ErrorKind};

use crate::maintenance::upstream::explain;

/// The collection of the lease, in [`DATABASE`].
const COLLECTION: &str = "leases";
const DATABASE: &str = "mongoshape";
/// The `_id` of a lease begins with this. The namespace follows.
const PURPOSE: &str = "expiry of ";
/// Seconds that a lease lasts beyond the interval in which it is renewed.
const GRACE: Duration = Duration::from_secs(10);
/// The server's code if another proxy has inserted the same lease.
const DUPLICATE_KEY: i32 = 11000;

/// The leases of a proxy.
#[derive(Debug)]
pub(super) struct Leases {
    /// Distinguishes the proxies.
    owner: String,
    duration: Duration,
}

impl Leases {
    /// Leases that are renewed at this interval.
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            owner: format!("{:016x}", rand::random::<u64>()),
            duration: interval.saturating_add(GRACE),
        }
    }

    /// Takes or renews the lease of a collection. Returns the server's time: items expire by the clock of the
    /// server, as the lease does. `None`: another proxy has the lease.
    ///
    /// # Errors
    /// If the server cannot be reached, or the user must not write to the database.
    pub(super) async fn take(&self, client: &Client, namespace: &str) -> anyhow::Result<Option<DateTime>> {
        // A lease that does not exist has ended, too: a missing field is less than any date.
        let is_free = doc! { "$or": [{ "$eq": ["$owner", &self.owner] }, { "$lt": ["$until", "$$NOW"] }] };
        let unless_held = |value: Bson, field: &str| doc! { "$cond": [is_free.clone(), value, field] };
        let until = bson!({ "$add": ["$$NOW", self.millis()] });
        let taken =
            doc! { "owner": unless_held(self.owner.as_str().into(), "$owner"), "until": unless_held(until, "$until") };
        let command = doc! {
            "findAndModify": COLLECTION,
            "query": { "_id": format!("{PURPOSE}{namespace}") },
            "update": [{ "$set": taken }],
            "upsert": true,
            "new": true,
        };
        match client.database(DATABASE).run_command(command).await {
            Ok::<Document, _>(reply) => Ok(self.taken_at(&reply)),
            // Another proxy has just made the lease.
            Err(error) if is_duplicate(&error) => Ok(None),
            Err(error) => {
                let reason = explain(&error);
                Err(anyhow!(
                    "the lease in {DATABASE}.{COLLECTION} cannot be taken: {reason}"
                ))
            }
        }
    }

    /// The length of a lease in milliseconds.
    fn millis(&self) -> i64 {
        i64::try_from(self.duration.as_millis()).unwrap_or(i64::MAX)
    }

    /// The server's time when this proxy took the lease. `None`: another proxy has it.
    fn taken_at(&self, reply: &Document) -> Option<DateTime> {
        let lease = reply.get_document("value").ok()?;
        lease.get_str("owner").ok().filter(|owner| *owner == self.owner)?;
        let until = lease.get_datetime("until").ok()?.timestamp_millis();
        Some(DateTime::from_millis(until.saturating_sub(self.millis())))
    }
}

fn is_duplicate(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if command.code == DUPLICATE_KEY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_the_time_of_the_server() {
        let leases = Leases::new(Duration::from_secs(20));
        let reply = |owner: &str| doc! { "value": { "owner": owner, "until": DateTime::from_millis(31_000) } };
        assert_eq!(
            leases.taken_at(&reply(&leases.owner)),
            Some(DateTime::from_millis(1000))
        );
        assert_eq!(leases.taken_at(&reply("another")), None);
        assert_eq!(leases.taken_at(&doc! { "value": null }), None);
    }
}
