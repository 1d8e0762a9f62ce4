//! A real mongod: alone or as a replica set, on free ports, gone when dropped.

mod binary;
mod member;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bson::doc;
use rustix::process::Signal;

use crate::guarded::POLL_INTERVAL;
use crate::raw;

pub use binary::find as find_binary;
use member::Member;

const SET_NAME: &str = "rs0";
const LOG: &str = "mongod.log";
/// A start takes about a second on an idle machine; this is for one that builds at the same time.
const START_LIMIT: Duration = Duration::from_mins(1);

/// How to start a mongod.
#[derive(Debug, Clone)]
pub struct Options {
    /// `WiredTiger`'s cache in GB, per member.
    pub cache_gb: f32,
    /// Further `--setParameter` values, each `name=value`.
    pub parameters: Vec<String>,
}

impl Default for Options {
    /// A small cache, and no background writes of diagnostic data.
    fn default() -> Self {
        Self {
            cache_gb: 0.25,
            parameters: vec!["diagnosticDataCollectionEnabled=false".to_owned()],
        }
    }
}

impl Options {
    /// Adds a `--setParameter name=value`, such as `enableTestCommands=1` for fail points.
    #[must_use]
    pub fn parameter(mut self, parameter: &str) -> Self {
        self.parameters.push(parameter.to_owned());
        self
    }

    /// Starts one mongod that is no member of a set.
    pub fn standalone(&self) -> Result<Mongod> {
        Ok(Mongod {
            members: vec![Member::start(self, false)?],
            set: false,
        })
    }

    /// Starts a replica set of 1 to 3 members and waits until it has a primary that takes writes.
    pub fn replica_set(&self, members: usize) -> Result<Mongod> {
        ensure!(
            (1..=3).contains(&members),
            "a replica set of one to three members, not {members}"
        );
        let members = (0..members)
            .map(|_| Member::start(self, true))
            .collect::<Result<Vec<_>>>()?;
        let mongod = Mongod { members, set: true };
        mongod.initiate()?;
        Ok(mongod)
    }
}

/// A running standalone or replica set. Dropping it ends its processes and removes their files.
#[derive(Debug)]
pub struct Mongod {
    members: Vec<Member>,
    set: bool,
}

impl Mongod {
    /// One mongod with [`Options::default`].
    pub fn standalone() -> Result<Self> {
        Options::default().standalone()
    }

    /// A replica set of 1 to 3 members with [`Options::default`].
    pub fn replica_set(members: usize) -> Result<Self> {
        Options::default().replica_set(members)
    }

    /// The connection string: for this very server if it stands alone, else the set's seed list.
    #[must_use]
    pub fn uri(&self) -> String {
        if !self.set {
            return self.member_uri(0);
        }
        let seeds: Vec<_> = self.addresses().iter().map(ToString::to_string).collect();
        format!("mongodb://{}/?replicaSet={SET_NAME}", seeds.join(","))
    }

    /// The connection string for one member only.
    #[must_use]
    pub fn member_uri(&self, member: usize) -> String {
        format!("mongodb://{}/?directConnection=true", self.members[member].address)
    }

    /// The members' addresses; a standalone has one.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.address).collect()
    }

    /// The address of the standalone, or of the first member (not always the primary).
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.members[0].address
    }

    /// The members' process ids.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.process.id()).collect()
    }

    /// The folders that the members keep their files in.
    #[must_use]
    pub fn folders(&self) -> Vec<&Path> {
        self.members.iter().map(|member| member.process.folder()).collect()
    }

    /// The member that says it is the primary. It waits for one, as in the middle of an election there is none.
    pub fn primary(&self) -> Result<usize> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let primary = self
                .members
                .iter()
                .position(|member| member.is_writable().unwrap_or(false));
            match primary {
                Some(primary) => return Ok(primary),
                None if Instant::now() > deadline => bail!("no primary after {START_LIMIT:?}"),
                None => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Ends one member as a power cut would.
    pub fn kill(&mut self, member: usize) -> Result<()> {
        let process = &mut self.members[member].process;
        process.signal(Signal::KILL)?;
        ensure!(process.wait(START_LIMIT)?.is_some(), "member {member} survived SIGKILL");
        Ok(())
    }

    /// The log of one member, as JSON lines.
    #[must_use]
    pub fn log(&self, member: usize) -> String {
        self.members[member].process.read(LOG)
    }

    fn initiate(&self) -> Result<()> {
        let members: Vec<_> = (0i32..)
            .zip(&self.members)
            .map(|(id, member)| doc! { "_id": id, "host": member.address.to_string() })
            .collect();
        // Members on one machine need no slow heartbeats, and an election after a kill is then a matter of seconds.
        let settings = doc! { "electionTimeoutMillis": 3000, "heartbeatIntervalMillis": 500 };
        let config = doc! { "_id": SET_NAME, "members": members, "settings": settings };
        let mut connection = raw::Connection::open(self.address())?;
        connection.stream().set_read_timeout(Some(START_LIMIT))?;
        connection
            .command_ok(&doc! { "replSetInitiate": config, "$db": "admin" })
            .context("replSetInitiate")?;
        self.primary()?;
        self.wait_for_secondaries()
    }

    /// Waits until every member is primary or secondary, so that a test does not begin in the middle of a first copy.
    fn wait_for_secondaries(&self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        for member in &self.members {
            loop {
                let hello = member.hello().unwrap_or_default();
                if ["isWritablePrimary", "secondary"]
                    .iter()
                    .any(|state| hello.get_bool(state).unwrap_or(false))
                {
                    break;
                }
                ensure!(
                    Instant::now() < deadline,
                    "a member is still neither primary nor secondary: {hello}"
                );
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        Ok(())
    }
}

/// The standalone that all tests of this process share; each uses databases of its own.
///
/// # Panics
/// With one line that says what to install, when no mongod can be had.
#[must_use]
pub fn shared() -> &'static Mongod {
    static SHARED: OnceLock<Mongod> = OnceLock::new();
    SHARED.get_or_init(|| expect_server(Mongod::standalone()))
}

/// The replica set of one member that all tests of this process share: for transactions and retryable writes.
///
/// # Panics
/// With one line that says what to install, when no mongod can be had.
#[must_use]
pub fn shared_replica_set() -> &'static Mongod {
    static SHARED: OnceLock<Mongod> = OnceLock::new();
    SHARED.get_or_init(|| expect_server(Mongod::replica_set(1)))
}

fn expect_server(started: Result<Mongod>) -> Mongod {
    started.unwrap_or_else(|error| panic!("{error:#}"))
}
