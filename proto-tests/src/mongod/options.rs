//! Options of a test's mongod.

use anyhow::{Result, ensure};

use super::member::Member;
use super::{Mongod, Role};
use crate::certificates::{Certificates, Clients, Tls};

/// The user that [`Options::auth`] creates, with all privileges, and the password.
pub(super) const ADMIN: (&str, &str) = ("admin", "secret");

/// Time for which a test's mongod keeps former versions for snapshot reads. Tests delete and insert the same
/// keys again and again, and with mongod's default, five minutes, each read passes all former versions of them.
const HISTORY_SECONDS: u32 = 60;
/// Milliseconds between two writes of the journal of a test's mongod. Index builds and `dropDatabase` of a replica
/// set wait for the next one, and mongod's default is 100.
const JOURNAL_INTERVAL: u32 = 20;

/// The environment variable with further parameters of the mongods of tests, each `name=value`, separated by commas.
const PARAMETERS: &str = "MONGOSHAPE_MONGOD_PARAMETERS";

/// How to start a mongod.
#[derive(Debug, Clone)]
pub struct Options {
    /// `WiredTiger`'s cache in GB, per member.
    pub cache_gb: f32,
    /// Further `--setParameter` values, each `name=value`.
    pub parameters: Vec<String>,
    /// Milliseconds between two writes of the journal. `None`: mongod's default.
    pub(super) journal_interval: Option<u32>,
    /// Whether the files are in memory, if there is room. Writes then wait for no disk, and a killed server
    /// keeps them.
    pub(super) is_in_memory: bool,
    pub(super) tls: Option<Tls>,
    pub(super) auth: bool,
}

impl Default for Options {
    /// For tests: a small cache, short intervals, files in memory, and no background writes of diagnostic
    /// data.
    fn default() -> Self {
        let mut options = Self::for_measurements(0.25);
        options.journal_interval = Some(JOURNAL_INTERVAL);
        options.is_in_memory = true;
        let options = options.parameter(&format!("minSnapshotHistoryWindowInSeconds={HISTORY_SECONDS}"));
        let given = std::env::var(PARAMETERS).unwrap_or_default();
        let given = given.split(',').filter(|parameter| !parameter.is_empty());
        given.fold(options, Self::parameter)
    }
}

impl Options {
    /// For measurements: mongod's defaults, but for the cache and background writes of diagnostic data.
    #[must_use]
    pub fn for_measurements(cache_gb: f32) -> Self {
        Self {
            cache_gb,
            parameters: vec!["diagnosticDataCollectionEnabled=false".to_owned()],
            journal_interval: None,
            is_in_memory: false,
            tls: None,
            auth: false,
        }
    }

    /// Adds a `--setParameter name=value`, such as `enableTestCommands=1` for fail points.
    #[must_use]
    pub fn parameter(mut self, parameter: &str) -> Self {
        // mongod does not start if a parameter is there twice.
        if !self.parameters.iter().any(|given| given == parameter) {
            self.parameters.push(parameter.to_owned());
        }
        self
    }

    /// Takes TLS connections only, with the server's certificate; clients need none of their own.
    #[must_use]
    pub fn tls(self, certificates: &Certificates) -> Self {
        self.with_tls(certificates, Clients::Any)
    }

    /// Takes TLS connections only, from clients with a certificate of the same authority.
    #[must_use]
    pub fn mutual_tls(self, certificates: &Certificates) -> Self {
        self.with_tls(certificates, Clients::Certified)
    }

    fn with_tls(mut self, certificates: &Certificates, clients: Clients) -> Self {
        let certificates = certificates.clone();
        self.tls = Some(Tls { certificates, clients });
        self
    }

    /// Enables authentication, and creates a user `admin` with the role `root`, for SCRAM-SHA-1 and
    /// SCRAM-SHA-256. [`Mongod::uri`] then has this user.
    #[must_use]
    pub fn auth(mut self) -> Self {
        self.auth = true;
        self
    }

    /// Starts one mongod that is no member of a set.
    pub fn standalone(&self) -> Result<Mongod> {
        let mongod = Mongod {
            members: vec![Member::start(self, Role::Standalone)?],
            options: self.clone(),
            role: Role::Standalone,
        };
        mongod.create_admin()?;
        Ok(mongod)
    }

    /// Starts a replica set of 1 to 3 members and waits until it has a primary that takes writes.
    pub fn replica_set(&self, members: usize) -> Result<Mongod> {
        ensure!(
            (1..=3).contains(&members),
            "a replica set of one to three members, not {members}"
        );
        let members = (0..members)
            .map(|_| Member::start(self, Role::Member))
            .collect::<Result<Vec<_>>>()?;
        let mongod = Mongod {
            members,
            options: self.clone(),
            role: Role::Member,
        };
        mongod.initiate()?;
        mongod.create_admin()?;
        Ok(mongod)
    }
}
