//! A real mongod on free ports, as a standalone or a replica set. It is stopped when dropped.

mod binary;
mod builds;
mod member;
mod options;
mod set;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::doc;
use rustix::process::Signal;

use crate::certificates::Tls;
use crate::raw::Connection;
use crate::uri::Uri;

pub use binary::{Program, Version, fetchable_versions, find as find_program, of_version as program_of_version};
use member::Member;
pub use options::Options;

/// The name of every replica set here.
pub const SET_NAME: &str = "rs0";
const LOG: &str = "mongod.log";
/// A start takes about a second on an idle machine; this is for one that builds at the same time.
const START_LIMIT: Duration = Duration::from_mins(1);
/// A shutdown by the command takes about a second on Wine.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(20);

/// What a mongod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Standalone,
    /// One of a replica set.
    Member,
}

/// A running standalone or replica set. Dropping it ends its processes and removes their files.
#[derive(Debug)]
pub struct Mongod {
    members: Vec<Member>,
    options: Options,
    role: Role,
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

    /// The connection string: for this very server if it stands alone, else the set's seed list. On a server
    /// that demands logins it names the user `admin`, on one with TLS the authority, and a certificate of
    /// ours if it demands one.
    #[must_use]
    pub fn uri(&self) -> String {
        self.with_admin(self.all_named())
    }

    /// As [`Mongod::uri`], as another user of the database `admin`.
    #[must_use]
    pub fn uri_as(&self, user: &str, password: &str) -> String {
        self.all_named().user(user, password).to_string()
    }

    /// The connection string for one member only.
    #[must_use]
    pub fn member_uri(&self, member: usize) -> String {
        self.with_admin(self.one_named(member))
    }

    fn all_named(&self) -> Uri {
        match self.role {
            Role::Standalone => self.one_named(0),
            Role::Member => self.named(&self.addresses()).option("replicaSet", SET_NAME),
        }
    }

    fn one_named(&self, member: usize) -> Uri {
        self.named(&[self.members[member].address])
            .option("directConnection", "true")
    }

    /// Whether it is a replica set.
    #[must_use]
    pub fn is_replica_set(&self) -> bool {
        self.role == Role::Member
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

    /// Ends one member as a power cut would. Its files stay, for [`Mongod::restart`]. On Wine, the member shuts down
    /// by itself, because the server of Wine keeps the connections of a killed process open.
    pub fn kill(&mut self, member: usize) -> Result<()> {
        if find_program()?.is_windows && !self.options.auth {
            let shutdown = doc! { "shutdown": 1, "force": true, "timeoutSecs": 0, "$db": "admin" };
            // The connection may end before the reply.
            let _ = Connection::open(self.addresses()[member])?.command(&shutdown);
            if self.members[member].process.wait(SHUTDOWN_LIMIT)?.is_some() {
                return Ok(());
            }
        }
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

    fn named(&self, hosts: &[SocketAddr]) -> Uri {
        let tls = self.options.tls.as_ref();
        Uri::of(hosts).options(tls.map(Tls::uri_options).unwrap_or_default())
    }

    fn with_admin(&self, uri: Uri) -> String {
        if !self.options.auth {
            return uri.to_string();
        }
        let (user, password) = options::ADMIN;
        uri.user(user, password).to_string()
    }
}

/// The standalone that all tests of this process share; each uses databases of its own.
///
/// # Panics
/// Fails with one line with what to install if there is no mongod.
#[must_use]
pub fn shared() -> &'static Mongod {
    static SHARED: OnceLock<Mongod> = OnceLock::new();
    SHARED.get_or_init(|| expect_server(Mongod::standalone()))
}

/// The replica set of one member that all tests of this process share: for transactions and retryable writes.
///
/// # Panics
/// Fails with one line with what to install if there is no mongod.
#[must_use]
pub fn shared_replica_set() -> &'static Mongod {
    static SHARED: OnceLock<Mongod> = OnceLock::new();
    SHARED.get_or_init(|| expect_server(Mongod::replica_set(1)))
}

/// Creates a collection that several clients of a test would create at the same time. mongod crashes then on Wine.
/// Does nothing on other servers.
pub fn create_on_wine(application: &mut Connection, database: &str, collection: &str) -> Result<()> {
    if find_program()?.is_windows {
        application.command_ok(&doc! { "create": collection, "$db": database })?;
    }
    Ok(())
}

fn expect_server(started: Result<Mongod>) -> Mongod {
    started.unwrap_or_else(|error| panic!("{error:#}"))
}
