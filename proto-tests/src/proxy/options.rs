//! Options of a test's proxy.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::addresses::Addresses;
use crate::certificates::{Certificates, Clients, Tls};
use crate::ports;

/// The time between two deletions of expired items, unless a test sets it: none in the time of a test. A proxy whose
/// shape is for every database would see collections of other tests, in other shapes.
const EXPIRE_INTERVAL_MS: u32 = 3_600_000;

/// What to start the proxy with. The harness itself writes the addresses, the upstream's URI and the log's
/// format.
#[derive(Debug, Clone, Default)]
pub struct ProxyOptions {
    upstream: String,
    expire_interval_ms: Option<u32>,
    config: String,
    listen: String,
    admin: String,
    pub(super) token: Option<String>,
    filter: Option<String>,
    slow_command_ms: u32,
    members: Vec<SocketAddr>,
    pub(super) tls: Option<Tls>,
    pub(super) binary: Option<PathBuf>,
}

impl ProxyOptions {
    /// A proxy without shapes before `upstream`, a connection string.
    #[must_use]
    pub fn new(upstream: &str) -> Self {
        Self {
            upstream: upstream.to_owned(),
            ..Self::default()
        }
    }

    /// Adds TOML tables, such as `[[bucket]]`.
    #[must_use]
    pub fn config(mut self, toml: &str) -> Self {
        self.config.push_str(toml);
        self.config.push('\n');
        self
    }

    /// Adds lines to the `[listen]` table, such as `max_connections = 3`.
    #[must_use]
    pub fn listen(mut self, toml: &str) -> Self {
        self.listen.push_str(toml);
        self.listen.push('\n');
        self
    }

    /// Sets the time between two deletions of expired items.
    #[must_use]
    pub fn expire_every(mut self, milliseconds: u32) -> Self {
        self.expire_interval_ms = Some(milliseconds);
        self
    }

    /// Adds lines to the `[admin]` table, such as `token_file = "/run/token"`.
    #[must_use]
    pub fn admin(mut self, toml: &str) -> Self {
        self.admin.push_str(toml);
        self.admin.push('\n');
        self
    }

    /// Demands this token at the admin address, where the harness sends it too.
    #[must_use]
    pub fn token(self, token: &str) -> Self {
        let mut with = self.admin(&format!("token = \"{token}\""));
        with.token = Some(token.to_owned());
        with
    }

    /// Listens on one port for each of these members of a replica set (see [`Proxy::member_addresses`]), and
    /// on no other.
    ///
    /// [`Proxy::member_addresses`]: crate::Proxy::member_addresses
    #[must_use]
    pub fn members(mut self, members: &[SocketAddr]) -> Self {
        members.clone_into(&mut self.members);
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

    /// Logs commands that take at least so many milliseconds.
    #[must_use]
    pub fn slow_command_ms(mut self, milliseconds: u32) -> Self {
        self.slow_command_ms = milliseconds;
        self
    }

    /// Sets another log filter than `info`.
    #[must_use]
    pub fn filter(mut self, filter: &str) -> Self {
        self.filter = Some(filter.to_owned());
        self
    }

    /// Takes this binary, not the one of our own build.
    #[must_use]
    pub fn binary(mut self, binary: &Path) -> Self {
        self.binary = Some(binary.to_owned());
        self
    }

    /// Free addresses for all that it is to listen on.
    pub(super) fn addresses(&self) -> Result<Addresses> {
        let members: Vec<_> = self
            .members
            .iter()
            .map(|_| ports::free_address())
            .collect::<Result<_, _>>()?;
        Ok(Addresses {
            listen: members.first().copied().map_or_else(ports::free_address, Ok)?,
            admin: ports::free_address()?,
            members,
        })
    }

    /// The whole configuration file.
    pub(super) fn file(&self, addresses: &Addresses) -> String {
        let filter = self.filter.as_deref().unwrap_or("info");
        format!(
            "{}\n[upstream]\nuri = \"{}\"\n{}\n[admin]\naddress = \"{}\"\n{}\n\
             [log]\nfilter = \"{filter}\"\nformat = \"json\"\nslow_command_ms = {}\n\n{}",
            self.listen_table(addresses),
            self.upstream,
            format_args!(
                "expire_interval_ms = {}\n",
                self.expire_interval_ms.unwrap_or(EXPIRE_INTERVAL_MS)
            ),
            addresses.admin,
            self.admin,
            self.slow_command_ms,
            self.config
        )
    }

    fn listen_table(&self, addresses: &Addresses) -> String {
        let mut lines = vec!["[listen]".to_owned()];
        if self.members.is_empty() {
            lines.push(format!("address = \"{}\"", addresses.listen));
        }
        lines.extend(self.tls.as_ref().map(tls_line));
        lines.push(self.listen.clone());
        for (upstream, address) in self.members.iter().zip(&addresses.members) {
            lines.push("[[listen.member]]".to_owned());
            lines.push(format!("address = \"{address}\""));
            lines.push(format!("upstream = \"{upstream}\""));
        }
        lines.join("\n")
    }
}

fn tls_line(tls: &Tls) -> String {
    let certificates = &tls.certificates;
    let client_ca = match tls.clients {
        Clients::Any => String::new(),
        Clients::Certified => format!(", client_ca = \"{}\"", certificates.ca().display()),
    };
    format!(
        "tls = {{ cert = \"{}\", key = \"{}\"{client_ca} }}",
        certificates.server().display(),
        certificates.server_key().display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: &ProxyOptions, expected: &str) {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let addresses = Addresses {
            listen: address(1),
            admin: address(2),
            members: vec![address(1), address(3)],
        };
        let file = options.file(&addresses);
        assert!(file.starts_with(expected), "{file}");
    }

    #[test]
    fn the_listen_table_has_an_address_or_members() {
        let plain = ProxyOptions::new("mongodb://h").listen("max_connections = 3");
        check(
            &plain,
            "[listen]\naddress = \"127.0.0.1:1\"\nmax_connections = 3\n\n[upstream]\n",
        );
        let members = [11, 12].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        check(
            &ProxyOptions::new("mongodb://h").members(&members),
            "[listen]\n\n[[listen.member]]\naddress = \"127.0.0.1:1\"\nupstream = \"127.0.0.1:11\"\n\
             [[listen.member]]\naddress = \"127.0.0.1:3\"\nupstream = \"127.0.0.1:12\"\n[upstream]\n",
        );
    }
}
