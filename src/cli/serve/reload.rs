//! SIGHUP: reads the configuration again, and exchanges everything that can change at run time, or
//! nothing.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::cli::{ConfigFile, RecordedEnvironment};
use crate::config::Config;
use crate::maintenance::shape_fit::{self, Fit};
use crate::pattern::shapes::Shapes;
use crate::server::admission::{Admission, AdmissionLimits};
use crate::server::tls;
use crate::session::{Settings, Shared};
use crate::telemetry::admin::Access;

/// The running configuration, and the parts that can be exchanged.
pub(super) struct Reload {
    pub(super) running: Config,
    pub(super) admission: Arc<Admission>,
    pub(super) access: Arc<ArcSwap<Access>>,
    pub(super) shared: Arc<Shared>,
    /// Publishes the current shapes.
    pub(super) shapes: watch::Sender<Shapes>,
}

impl Reload {
    /// Reads the configuration and exchanges shapes, limits, certificates and the admin token. If
    /// the file has mistakes, or a collection does not fit its new shape, nothing changes and the
    /// reason is logged.
    pub(super) async fn run(&self, file: &ConfigFile, environment: &RecordedEnvironment) {
        let read = file
            .load_or_fail(environment)
            .and_then(|config| Ok((admission(&config)?, config.admin.access()?, config)));
        let (limits, access, config) = match read {
            Ok(read) => read,
            Err(error) => {
                error!("not reloaded, the configuration is unchanged: {error:#}");
                return;
            }
        };
        let compared = shape_fit::look(&self.running.upstream, &config.shapes).await;
        match compared.map(|compared| compared.fit) {
            Ok(Fit::Misfits(lines)) => {
                error!("not reloaded, the configuration is unchanged: {}", lines.join("; "));
                return;
            }
            Ok(Fit::Fits | Fit::Unknown) => {}
            Err(error) => warn!("the shapes could not be compared with the collections before the reload: {error:#}"),
        }
        for option in fixed(&self.running, &config) {
            warn!(
                option,
                "the option has changed; the new value takes effect at the next start"
            );
        }
        self.admission.exchange(limits);
        self.access.store(Arc::new(access));
        self.shared.exchange(settings(&config));
        self.shapes.send_replace(config.shapes.clone());
        info!(shapes = config.shapes.iter().count(), "reloaded");
    }
}

/// Changed options that are only read at the start.
fn fixed(running: &Config, read: &Config) -> Vec<&'static str> {
    let differ = [
        (
            "listen.address, member, present_as, advertise",
            running.listen.listeners != read.listen.listeners,
        ),
        ("listen.memory_mib", running.listen.memory_mib != read.listen.memory_mib),
        ("listen.workers", running.listen.workers != read.listen.workers),
        (
            "listen.drain_timeout_ms",
            running.listen.drain_timeout != read.listen.drain_timeout,
        ),
        ("upstream.uri", running.upstream.uri != read.upstream.uri),
        (
            "upstream.expire_interval_ms",
            running.upstream.expire_interval != read.upstream.expire_interval,
        ),
        ("admin.address", running.admin.address != read.admin.address),
        (
            "log.filter, format",
            running.log.filter != read.log.filter || running.log.format != read.log.format,
        ),
        ("traces", running.traces != read.traces),
    ];
    differ
        .into_iter()
        .filter(|(_, differs)| *differs)
        .map(|(option, _)| option)
        .collect()
}

/// The shapes and the limits of sessions.
pub(super) fn settings(config: &Config) -> Settings {
    Settings::new(config.shapes.clone(), config.session_limits())
}

/// The limits for clients before they have a session.
///
/// # Errors
/// If a certificate cannot be used.
pub(super) fn admission(config: &Config) -> anyhow::Result<AdmissionLimits> {
    Ok(AdmissionLimits {
        max_connections: config.listen.max_connections,
        handshake_timeout: config.listen.handshake_timeout,
        tls: config.listen.tls.as_ref().map(tls::acceptor).transpose()?,
    })
}

#[cfg(test)]
mod tests;
