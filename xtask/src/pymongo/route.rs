//! One route to the server: the proxy's presentation, and its shaped collections.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use proto_tests::Proxy;

use super::presentation::{Presentation, Server, Topology};
use super::shaped::{Shaping, check_layout};

/// The configuration of a proxy.
#[derive(Debug, Clone)]
pub(super) struct Route {
    pub(super) presentation: Presentation,
    /// All by one key, each with a run of its own for its tests. None: nothing is shaped.
    pub(super) shapings: Vec<Shaping>,
}

impl Route {
    /// As `standalone`, or `standalone by x` where collections are shaped by the key x.
    pub(super) fn name(&self) -> String {
        let presentation = self.presentation.name();
        match self.shapings.first() {
            None => presentation.to_owned(),
            Some(shaping) => format!("{presentation} {}", shaping.name()),
        }
    }

    pub(super) fn key(&self) -> Option<&'static str> {
        self.shapings.first()?.key()
    }

    /// What its runs are, one after the other.
    pub(super) fn runs(&self) -> Vec<Option<&Shaping>> {
        if self.shapings.is_empty() {
            return vec![None];
        }
        self.shapings.iter().map(Some).collect()
    }

    fn start(&self, shaping: Option<&Shaping>, server: &Server, binary: Option<&PathBuf>) -> Result<Proxy> {
        let mut options = self.presentation.options(server);
        if let Some(shaping) = shaping {
            options = options.config(&shaping.toml());
        }
        if let Some(binary) = binary {
            options = options.binary(binary);
        }
        Proxy::start(&options)
    }
}

/// The servers of one run, and their proxy, if any.
#[derive(Debug)]
pub(super) struct Deployment {
    // Before the servers in this order: it is stopped first.
    pub(super) proxy: Option<Proxy>,
    server: Server,
}

impl Deployment {
    pub(super) fn direct(topology: Topology, members: usize) -> Result<Self> {
        Ok(Self {
            proxy: None,
            server: topology.start(members)?,
        })
    }

    /// `shaping` is one of the route's, if it has any.
    pub(super) fn proxied(
        route: &Route,
        shaping: Option<&Shaping>,
        members: usize,
        binary: Option<&PathBuf>,
    ) -> Result<Self> {
        let server = route.presentation.topology().start(members)?;
        let proxy = route.start(shaping, &server, binary)?;
        Ok(Self {
            proxy: Some(proxy),
            server,
        })
    }

    /// Where the suite connects to.
    pub(super) fn address(&self) -> SocketAddr {
        self.proxy.as_ref().map_or(self.server.addresses()[0], Proxy::address)
    }

    /// Fails if a shaped collection violates its layout.
    pub(super) fn check(&self, shaping: &Shaping) -> Result<()> {
        check_layout(shaping, &self.server.addresses())
    }
}
