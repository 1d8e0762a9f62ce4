//! Options of a test's mongod.

use anyhow::{Result, ensure};

use super::member::Member;
use super::{Mongod, Role};
use crate::certificates::{Certificates, Clients, Tls};

/// The user that [`Options::auth`] creates, with all privileges, and the password.
pub(super) const ADMIN: (&str, &str) = ("admin", "secret");

/// How to start a mongod.
#[derive(Debug, Clone)]
pub struct Options {
    /// `WiredTiger`'s cache in GB, per member.
    pub cache_gb: f32,
    /// Further `--setParameter` values, each `name=value`.
    pub parameters: Vec<String>,
    pub(super) tls: Option<Tls>,
    pub(super) auth: bool,
}

impl Default for Options {
    /// A small cache, and no background writes of diagnostic data.
    fn default() -> Self {
        Self {
            cache_gb: 0.25,
            parameters: vec!["diagnosticDataCollectionEnabled=false".to_owned()],
            tls: None,
            auth: false,
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
