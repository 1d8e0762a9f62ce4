//! A proxy inside a maintenance command: by it, the command reads and writes pages as an application does.

use std::sync::Arc;
use std::time::Duration;

use mongodb::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::upstream;
use crate::config::Config;
use crate::pattern::shapes::Shapes;
use crate::server::Server;
use crate::server::admission::{Admission, AdmissionLimits};
use crate::server::listener::Listener;
use crate::server::metrics::ServerMetrics;
use crate::server::topology::{self, WatchedUpstream};
use crate::session::metrics::SessionMetrics;
use crate::session::{Settings, Shared};
use crate::telemetry::Telemetry;

/// Connections of the command.
const MAX_CONNECTIONS: usize = 100;
/// The longest wait for running commands at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A running proxy. It must be [stopped](Self::stop).
pub(crate) struct EmbeddedProxy {
    client: Client,
    /// Watches the upstream.
    driver: Client,
    server: JoinHandle<std::io::Result<()>>,
    stop: CancellationToken,
}

impl EmbeddedProxy {
    /// Starts a proxy with these shapes, on a port of 127.0.0.1 that only this process can use. `name`: the
    /// application's name that the server lists.
    ///
    /// # Errors
    /// If no port is free, or the configuration's certificates cannot be used.
    pub(crate) async fn start(config: &Config, shapes: Shapes, name: &str) -> anyhow::Result<Self> {
        let telemetry = Telemetry::new()?;
        let stop = CancellationToken::new();
        let mut options = upstream::options(&config.upstream).await?;
        let dialing = upstream::dialing(&options, &stop)?;
        // `hello` requires no credentials.
        options.credential = None;
        let metrics = ServerMetrics::register(&telemetry.registry)?;
        let WatchedUpstream { client, upstreams, .. } = topology::watch(options, dialing, metrics)?;
        let secret = format!("{:032x}", rand::random::<u128>());
        let limits = || AdmissionLimits {
            max_connections: MAX_CONNECTIONS,
            handshake_timeout: config.listen.handshake_timeout,
            tls: None,
        };
        let listener = Listener::internal(&upstreams, limits(), &secret).await?;
        let address = listener.socket.local_addr()?;
        let metrics = SessionMetrics::register(&telemetry.registry)?;
        let server = Server {
            listeners: vec![listener],
            admission: Arc::new(Admission::new(limits())),
            shared: Arc::new(Shared::new(Settings::new(shapes, config.session_limits()), metrics)),
            workers: 1,
            drain_timeout: DRAIN_TIMEOUT,
        };
        Ok(Self {
            client: upstream::client_of_listener(&config.upstream, address, &secret, name).await?,
            driver: client,
            server: tokio::spawn(server.run(stop.clone())),
            stop,
        })
    }

    /// The client whose commands the proxy executes.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Closes all connections.
    pub(crate) async fn stop(self) {
        upstream::close(self.client).await;
        self.stop.cancel();
        let _ = self.server.await;
        upstream::close(self.driver).await;
    }
}
