//! `serve`: runs the proxy until it is told to stop.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::readiness::UpstreamProbe;
use super::upstream;
use crate::config::Config;
use crate::server::{Server, ServerOptions};
use crate::session::metrics::SessionMetrics;
use crate::session::{SessionLimits, Shared};
use crate::telemetry::Telemetry;
use crate::telemetry::admin::Admin;
use crate::wire::limits::MAX_MESSAGE_BYTES;

/// Serves until SIGTERM or SIGINT, then lets running commands finish and returns.
///
/// # Errors
/// When an address cannot be bound.
pub(super) async fn run(config: Config) -> anyhow::Result<()> {
    // Before anything is bound: whoever sees the port open may already send the signal.
    let signalled = termination()?;
    let telemetry = Telemetry::new()?;
    let stopping = CancellationToken::new();
    let admin_stopping = CancellationToken::new();
    let clients = bind(config.listen.address, "listen.address").await?;
    let admin_listener = bind(config.admin.address, "admin.address").await?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = %clients.local_addr()?,
        admin = %admin_listener.local_addr()?,
        upstream = config.upstream.address,
        shapes = config.shapes.iter().count(),
        "serving"
    );
    let server = server(&config, clients, SessionMetrics::register(&telemetry.registry)?);
    let probe = UpstreamProbe::new(&config.upstream, stopping.clone()).await?;
    let driver = probe.client();
    let admin = Admin::new(telemetry, probe);
    let admin = tokio::spawn(admin.serve(admin_listener, admin_stopping.clone()));
    let server = tokio::spawn(server.run(stopping.clone()));

    let name = signalled.await;
    info!(signal = name, "stopping");
    stopping.cancel();
    server.await.context("the server failed")?;
    // Last, so that a drain can be watched.
    admin_stopping.cancel();
    admin.await.context("the admin endpoints failed")?;
    upstream::close(driver).await;
    info!("stopped");
    Ok(())
}

fn server(config: &Config, listener: TcpListener, metrics: SessionMetrics) -> Server {
    let limits = SessionLimits {
        max_message_bytes: MAX_MESSAGE_BYTES,
        frame_timeout: config.listen.frame_timeout,
        connect_timeout: config.upstream.connect_timeout,
    };
    let options = ServerOptions {
        max_connections: config.listen.max_connections,
        drain_timeout: config.listen.drain_timeout,
        upstream: config.upstream.address.clone(),
    };
    Server::new(
        listener,
        options,
        Arc::new(Shared::new(config.shapes.clone(), limits, metrics)),
    )
}

async fn bind(address: SocketAddr, option: &str) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.with_context(|| format!("cannot listen on {address} (`{option}`)"))
}

/// Catches the signals from now on; resolves to the name of the first one.
fn termination() -> anyhow::Result<impl Future<Output = &'static str>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}
