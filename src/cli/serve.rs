//! `serve`: runs the proxy until a signal ends it.

mod listeners;
pub(super) mod reload;
mod shown;
mod signals;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwap;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::listeners::Sockets;
use self::reload::Reload;
use self::shown::Shown;
use self::signals::Signals;
use super::readiness::UpstreamProbe;
use super::{ConfigFile, RecordedEnvironment};
use crate::config::Config;
use crate::maintenance::conversion_watch::{ConversionWatch, WatchedConversions};
use crate::maintenance::expiry::Expiry;
use crate::maintenance::shadow_reads::ShadowReads;
use crate::maintenance::shape_fit::{self, SharedFit};
use crate::maintenance::unique_index_record::UniqueIndexRecord;
use crate::maintenance::upstream;
use crate::pattern::shapes::Shapes;
use crate::server::Server;
use crate::server::admission::Admission;
use crate::server::listener::Listener;
use crate::server::metrics::ServerMetrics;
use crate::server::topology;
use crate::session::Shared;
use crate::session::command_trace::CommandTracer;
use crate::session::metrics::SessionMetrics;
use crate::session::shadow::{MAX_WAITING, ShadowRead};
use crate::telemetry::Telemetry;
use crate::telemetry::admin::{Access, Admin, OperatorPage};
use crate::telemetry::recent_warnings::RecentWarnings;
use crate::telemetry::traces::Traces;

/// The longest time that `/readyz` waits for the selection of a server.
const SELECTION_TIMEOUT: Duration = Duration::from_secs(1);
/// The driver's heartbeat interval, for servers without streaming `hello` and for unreachable
/// servers.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT, then waits for running commands and returns. SIGHUP reloads the
/// configuration. `recent`: the warnings that the log records.
///
/// # Errors
/// If an address cannot be bound, or a certificate cannot be used.
pub(super) async fn run(
    config: Config,
    file: &ConfigFile,
    environment: &RecordedEnvironment,
    recent: RecentWarnings,
) -> anyhow::Result<()> {
    // Before any address is bound, because a signal may arrive as soon as the port is open.
    let mut signals = Signals::catch()?;
    let telemetry = Telemetry::new()?;
    let (stopping, admin_stopping) = (CancellationToken::new(), CancellationToken::new());
    let (queue, shadow_reads) = mpsc::channel(MAX_WAITING);
    let session_metrics = SessionMetrics::register(&telemetry.registry)?;
    let traces = config.traces.as_ref().map(Traces::start).transpose()?;
    let shared = Shared::new(reload::settings(&config), session_metrics).with_shadow_reads(queue);
    let shared = Arc::new(shared.with_tracer(traces.as_ref().map(tracer)));
    let admission = Arc::new(Admission::new(reload::admission(&config)?));
    let access = Arc::new(ArcSwap::from_pointee(config.admin.access()?));
    let sockets = listeners::bind(&config).await?;
    let admin_listener = listeners::bind_one(config.admin.address, "admin.address").await?;
    log_start(&config, &sockets, admin_listener.local_addr()?);
    let options = driver_options(&config).await?;
    let dialing = upstream::dialing(&options, &stopping)?;
    let watched = topology::watch(options, dialing.clone(), ServerMetrics::register(&telemetry.registry)?)?;
    let driver = watched.client.clone();
    let secret = format!("{:032x}", rand::random::<u128>());
    let internal = Listener::internal(&watched.upstreams, reload::admission(&config)?, &secret).await?;
    let internal_address = internal.socket.local_addr()?;
    let listeners = sockets.listeners(&dialing, &watched.upstreams)?;
    let server = Server {
        listeners: listeners.into_iter().chain([internal]).collect(),
        admission: Arc::clone(&admission),
        shared: Arc::clone(&shared),
        workers: workers(&config),
        drain_timeout: config.listen.drain_timeout,
    };
    let (fit, conversions) = (SharedFit::default(), WatchedConversions::default());
    let (shapes, current) = watch::channel(config.shapes.clone());
    let inputs = TaskInputs {
        listener: internal_address,
        secret,
        shapes: current,
        fit: Arc::clone(&fit),
        shadow_reads,
        conversions: Arc::clone(&conversions),
        stop: stopping.clone(),
    };
    let tasks = tasks(&config, &shared, inputs);
    let shown = Shown {
        shared: Arc::clone(&shared),
        conversions,
        fit,
        watched,
        stopping: stopping.clone(),
    };
    let admin = admin(telemetry, Arc::clone(&access), shown, recent);
    let parts = Parts {
        admin: tokio::spawn(admin.serve(admin_listener, admin_stopping.clone())),
        server: tokio::spawn(server.run(stopping.clone())),
        tasks,
        traces,
        stopping,
        admin_stopping,
        driver,
    };
    let reload = Reload {
        running: config,
        admission,
        access,
        shared,
        shapes,
    };
    let name = signals
        .until_the_end(async || reload.run(file, environment).await)
        .await;
    parts.stop(name).await
}

/// The parts of a running proxy.
struct Parts {
    stopping: CancellationToken,
    tasks: JoinSet<()>,
    server: JoinHandle<io::Result<()>>,
    traces: Option<Traces>,
    admin_stopping: CancellationToken,
    admin: JoinHandle<()>,
    driver: mongodb::Client,
}

impl Parts {
    /// Stops all parts. `signal`: the name of the signal, for the log.
    async fn stop(self, signal: &str) -> anyhow::Result<()> {
        info!(signal, "stopping");
        self.stopping.cancel();
        self.tasks.join_all().await;
        self.server.await.context("the server failed")??;
        if let Some(traces) = self.traces {
            let stopped = spawn_blocking(|| traces.stop()).await;
            stopped.context("the export of traces failed")?;
        }
        // Last, so that metrics are available during a drain.
        self.admin_stopping.cancel();
        self.admin.await.context("the admin endpoints failed")?;
        upstream::close(self.driver).await;
        info!("stopped");
        Ok(())
    }
}

fn tracer(traces: &Traces) -> CommandTracer {
    CommandTracer::new(traces.tracer(), Box::new(TraceContextPropagator::new()))
}

/// The admin endpoints, which read their content from `shown`.
fn admin(
    telemetry: Telemetry,
    access: Arc<ArcSwap<Access>>,
    shown: Shown,
    recent: RecentWarnings,
) -> Admin<UpstreamProbe> {
    let driver = shown.watched.client.clone();
    let probe = UpstreamProbe::new(driver, shown.stopping.clone(), Arc::clone(&shown.fit));
    Admin::new(
        telemetry,
        access,
        probe,
        OperatorPage::new(move || shown.rows(), recent),
    )
}

/// What the tasks share with the rest of the proxy.
struct TaskInputs {
    /// The proxy's own listener, and the text that it demands of its clients.
    listener: SocketAddr,
    secret: String,
    shapes: watch::Receiver<Shapes>,
    fit: SharedFit,
    shadow_reads: mpsc::Receiver<ShadowRead>,
    conversions: WatchedConversions,
    stop: CancellationToken,
}

/// Starts the tasks that use the credentials of `upstream.uri`.
fn tasks(config: &Config, shared: &Arc<Shared>, inputs: TaskInputs) -> JoinSet<()> {
    let (upstream, metrics, stop) = (&config.upstream, shared.metrics(), &inputs.stop);
    let watch = ConversionWatch {
        upstream: upstream.clone(),
        shapes: inputs.shapes.clone(),
        shared: Arc::clone(shared),
        found: inputs.conversions,
        stop: stop.clone(),
    };
    let record = UniqueIndexRecord {
        upstream: upstream.clone(),
        shared: Arc::clone(shared),
        stop: stop.clone(),
    };
    let reads = ShadowReads {
        config: config.clone(),
        metrics: metrics.shadow.clone(),
        queue: inputs.shadow_reads,
        stop: stop.clone(),
    };
    let expiry = Expiry {
        upstream: upstream.clone(),
        listener: inputs.listener,
        secret: inputs.secret,
        shapes: inputs.shapes.clone(),
        metrics: metrics.expiry.clone(),
        stop: stop.clone(),
    };
    let fit = shape_fit::watch(upstream.clone(), inputs.shapes, inputs.fit, stop.clone());
    // Not awaited: it may wait for an unreachable server.
    tokio::spawn(fit);
    let mut tasks = JoinSet::new();
    tasks.spawn(expiry.run());
    tasks.spawn(record.run());
    tasks.spawn(watch.run());
    tasks.spawn(reads.run());
    tasks
}

fn log_start(config: &Config, sockets: &Sockets<'_>, admin: SocketAddr) {
    info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = sockets.names(),
        %admin,
        upstream = config.upstream.hosts.join(","),
        shapes = config.shapes.iter().count(),
        "serving"
    );
    if let Some(exposure) = config.admin.exposure() {
        warn!(address = %config.admin.address, "`admin.address`: {exposure}");
    }
}

/// Options of the driver's client that watches the upstream. Without credentials, because `hello`
/// requires none.
async fn driver_options(config: &Config) -> anyhow::Result<mongodb::options::ClientOptions> {
    let mut options = upstream::options(&config.upstream).await?;
    options.credential = None;
    options.server_selection_timeout = Some(SELECTION_TIMEOUT);
    options.heartbeat_freq = Some(HEARTBEAT);
    options.max_pool_size = Some(1);
    Ok(options)
}

fn workers(config: &Config) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    config.listen.workers.unwrap_or_else(processors)
}
