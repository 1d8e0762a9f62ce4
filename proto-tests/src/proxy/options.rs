//! What a test says about the proxy that it wants.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What to start the proxy with. The harness itself writes the addresses, the upstream's URI and the log's format.
#[derive(Debug, Clone, Default)]
pub struct ProxyOptions {
    upstream: String,
    config: String,
    listen: String,
    filter: Option<String>,
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

    /// The whole configuration file.
    pub(super) fn file(&self, listen: SocketAddr, admin: SocketAddr) -> String {
        let filter = self.filter.as_deref().unwrap_or("info");
        format!(
            "[listen]\naddress = \"{listen}\"\n{}\n[upstream]\nuri = \"{}\"\n\n[admin]\naddress = \"{admin}\"\n\n\
             [log]\nfilter = \"{filter}\"\nformat = \"json\"\n\n{}",
            self.listen, self.upstream, self.config
        )
    }
}
