//! The addresses of a proxy's listeners, and their connection strings.

use std::net::SocketAddr;

use super::Proxy;
use crate::certificates::Tls;
use crate::mongod::SET_NAME;
use crate::uri::Uri;

/// What it listens on.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    /// For applications; the first member's where there are members.
    pub(super) listen: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) members: Vec<SocketAddr>,
}

impl Proxy {
    /// Where applications connect: with [`ProxyOptions::members`](super::ProxyOptions::members), the first
    /// member's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.addresses.listen
    }

    /// The addresses of the members, in the order of [`ProxyOptions::members`](super::ProxyOptions::members);
    /// empty without them.
    #[must_use]
    pub fn member_addresses(&self) -> &[SocketAddr] {
        &self.addresses.members
    }

    /// The connection string for applications that use this address only.
    #[must_use]
    pub fn uri(&self) -> String {
        self.direct().to_string()
    }

    /// As [`Proxy::uri`], as a user of the database `admin`.
    #[must_use]
    pub fn uri_as(&self, user: &str, password: &str) -> String {
        self.direct().user(user, password).to_string()
    }

    /// The connection string for applications that let the driver find out what it talks to: the members as a
    /// replica set, or the one address.
    #[must_use]
    pub fn discovery_uri(&self) -> String {
        if self.addresses.members.is_empty() {
            return self.named(&[self.address()]).to_string();
        }
        self.named(self.member_addresses())
            .option("replicaSet", SET_NAME)
            .to_string()
    }

    fn direct(&self) -> Uri {
        self.named(&[self.address()]).option("directConnection", "true")
    }

    fn named(&self, hosts: &[SocketAddr]) -> Uri {
        Uri::of(hosts).options(self.tls.as_ref().map(Tls::uri_options).unwrap_or_default())
    }

    /// Where `/metrics`, `/livez` and `/readyz` are.
    #[must_use]
    pub fn admin_address(&self) -> SocketAddr {
        self.addresses.admin
    }
}
