//! The collection, its proxies, and the applications.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, ensure};
use bson::doc;
use proto_tests::cluster::{Cluster, Kind};
use proto_tests::crash::expect_cuts;
use proto_tests::raw::Connection;
use proto_tests::retrying::Retries;
use proto_tests::threads::{self, Answered};
use proto_tests::{ItemIds, Proxy, ProxyOptions, Shape, database_name, invariants, mongod};

use crate::buckets::application::Application;
use crate::buckets::ledger::Ledger;

pub(crate) const COLLECTION: &str = "items";
/// Keys that all share.
pub(crate) const KEYS: i32 = 10;
const APPLICATIONS: usize = 16;

/// Where it happens.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) database: String,
    pub(crate) retries: Retries,
    /// Items that all applications change and none deletes.
    pub(crate) kept: Mutex<Vec<i64>>,
    /// Items that all change; some of them are gone.
    pub(crate) shared: Mutex<Vec<i64>>,
    /// Whether the collection is sharded. Then every write of one item names its key, which never changes, and no
    /// `findAndModify` changes the time.
    pub(crate) is_sharded: bool,
    shape: Shape,
    uri: String,
    /// The server with the pages.
    stored: SocketAddr,
}

impl Fixture {
    pub(crate) fn new(upstream: SocketAddr) -> Self {
        Self::with(upstream, Retries::None)
    }

    pub(crate) fn retrying(upstream: SocketAddr) -> Self {
        Self::with(upstream, Retries::Writes)
    }

    /// A collection that is sharded by its key. `upstream`: the address before the routers.
    pub(crate) fn sharded(cluster: &Cluster, upstream: SocketAddr) -> Result<Self> {
        let mut fixture = Self::retrying(upstream);
        fixture.is_sharded = true;
        fixture.shape.item_ids = ItemIds::Stored;
        fixture.uri = format!("mongodb://{upstream}/");
        fixture.stored = cluster.router_addresses()[0];
        cluster.shard_collection(&fixture.namespace(), &doc! { "k": 1 }, Kind::Ranged)?;
        Ok(fixture)
    }

    pub(crate) fn namespace(&self) -> String {
        format!("{}.{COLLECTION}", self.database)
    }

    fn with(upstream: SocketAddr, retries: Retries) -> Self {
        let shape = Shape {
            time: Some("at".to_owned()),
            items_change: true,
            ..Shape::new(&["k"])
        };
        Self {
            database: database_name(),
            retries,
            kept: Mutex::default(),
            shared: Mutex::default(),
            is_sharded: false,
            shape,
            uri: format!("mongodb://{upstream}/?directConnection=true"),
            stored: mongod::shared_replica_set().address(),
        }
    }

    pub(crate) fn proxies(&self) -> Result<[Proxy; 2]> {
        let toml = self.shape.toml(&self.namespace());
        let start = || -> Result<Proxy> {
            let proxy = Proxy::start(&ProxyOptions::new(&self.uri).config(&toml))?;
            if self.retries == Retries::Writes {
                expect_cuts(&proxy);
            }
            Ok(proxy)
        };
        Ok([start()?, start()?])
    }

    /// Runs applications for as long as `disturb` takes.
    pub(crate) fn run(
        &self,
        seed: u64,
        addresses: &[SocketAddr],
        disturb: impl FnOnce(&Answered) -> Result<()>,
    ) -> Result<Ledger> {
        let (done, answered) = (AtomicBool::new(false), Answered::default());
        thread::scope(|scope| {
            let running: Vec<_> = (0..APPLICATIONS)
                .map(|number| {
                    let (done, answered) = (&done, &answered);
                    scope.spawn(move || {
                        let ran = Application::new(self, number, seed, addresses).run(done, answered);
                        // The others need not go on.
                        done.fetch_or(ran.is_err(), Ordering::Relaxed);
                        ran
                    })
                })
                .collect();
            let disturbed = disturb(&answered);
            done.store(true, Ordering::Relaxed);
            let mut ledger = Ledger::default();
            for application in threads::join(running)? {
                ledger.add(application);
            }
            disturbed.map(|()| ledger)
        })
    }

    /// Everything is as in the ledger, and the buckets are in order, but for violations that hold one of
    /// these words.
    pub(crate) fn judge(&self, ledger: &Ledger, tolerated: &[&str]) -> Result<()> {
        let proxies = self.proxies()?;
        let mut application = Connection::open(proxies[0].address())?;
        let items = application.find(&self.database, COLLECTION, doc! {})?;
        let judged = ledger.judge(&items);
        let mut mongod = Connection::open(self.stored)?;
        let mut found = invariants::violations(&mut mongod, &self.database, COLLECTION, &self.shape)?;
        found.retain(|violation| !tolerated.iter().any(|part| violation.contains(part)));
        found.extend(judged.err().map(|error| format!("{error:#}")));
        ensure!(found.is_empty(), "{}:\n{}", self.database, found.join("\n"));
        Ok(())
    }
}
