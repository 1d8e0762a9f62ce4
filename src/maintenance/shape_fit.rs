//! Checks whether collections fit the configured shapes. If a collection does not fit, all commands
//! on it fail. The operator should learn this at the start or reload, not from the application.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use mongodb::Client;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::config::UpstreamConfig;
use crate::maintenance::check::misfit;
use crate::maintenance::finding::Finding;
use crate::maintenance::misspelt;
use crate::maintenance::upstream::{self, explain};
use crate::pattern::shapes::Shapes;

/// Maximum duration of a check of all collections.
const DEADLINE: Duration = Duration::from_secs(5);
/// Interval between checks, if the upstream did not reply or a collection did not fit.
const PAUSE: Duration = Duration::from_secs(2);

/// The result of the last check.
#[derive(Clone, Debug, Default)]
pub(crate) enum Fit {
    /// No check has finished.
    #[default]
    Unknown,
    /// Every collection fits, or cannot be read with the configured credentials.
    Fits,
    /// Some collections do not fit. One line for each.
    Misfits(Vec<String>),
}

/// The result of one check.
#[derive(Debug)]
pub(crate) struct FitReport {
    pub(crate) fit: Fit,
    /// Collections that do not exist beside one with nearly the same name. One line for each. Clients can
    /// work with the shape, so it is no misfit.
    misspelt: Vec<String>,
}

impl FitReport {
    fn of(fit: Fit) -> Self {
        let misspelt = Vec::new();
        Self { fit, misspelt }
    }
}

/// The last result, shared with `/readyz`.
pub(crate) type SharedFit = Arc<ArcSwap<Fit>>;

/// Checks the collections of shapes without a wildcard, with the credentials of `upstream.uri`.
/// Patterns such as `*.trades` are skipped, because any database may have a plain collection of
/// that name.
///
/// # Errors
/// The upstream cannot be reached.
pub(crate) async fn look(upstream: &UpstreamConfig, shapes: &Shapes) -> anyhow::Result<FitReport> {
    timeout(DEADLINE, look_through(upstream, shapes))
        .await
        .unwrap_or_else(|_| {
            let seconds = DEADLINE.as_secs();
            info!("the shapes were not compared with all collections within {seconds} s");
            Ok(FitReport::of(Fit::Fits))
        })
}

async fn look_through(upstream: &UpstreamConfig, shapes: &Shapes) -> anyhow::Result<FitReport> {
    let client = upstream::client(upstream).await?;
    let looked = misfits(&client, shapes).await;
    upstream::close(client).await;
    looked
}

async fn misfits(client: &Client, shapes: &Shapes) -> anyhow::Result<FitReport> {
    let (mut lines, mut misspelt) = (Vec::new(), Vec::new());
    for target in upstream::named_targets(client, shapes) {
        match misfit::of(&target).await {
            Ok(findings) => lines.extend(findings.iter().map(Finding::without_severity)),
            Err(error) if upstream::is_refused(&error) => {
                info!(
                    namespace = target.namespace(),
                    reason = explain(&error),
                    "the shape was not compared with the collection"
                );
            }
            Err(error) => return Err(anyhow::anyhow!(explain(&error))),
        }
        misspelt.extend(
            misspelt::finding(&target, shapes)
                .await
                .map(|finding| finding.without_severity()),
        );
    }
    let fit = if lines.is_empty() {
        Fit::Fits
    } else {
        Fit::Misfits(lines)
    };
    Ok(FitReport { fit, misspelt })
}

/// Repeats the check until every collection fits, and after each change of `shapes`. Records each
/// result, and logs each misfit and each misspelt namespace once.
pub(crate) async fn watch(
    upstream: UpstreamConfig,
    mut shapes: watch::Receiver<Shapes>,
    fit: SharedFit,
    stop: CancellationToken,
) {
    let (mut logged, mut warned): (Vec<String>, Vec<String>) = Default::default();
    loop {
        let current = shapes.borrow_and_update().clone();
        let looked = look(&upstream, &current)
            .await
            .unwrap_or_else(|_| FitReport::of(Fit::clone(&fit.load())));
        for line in looked.misspelt {
            if !warned.contains(&line) {
                warn!("a namespace is probably misspelt: {line}");
                warned.push(line);
            }
        }
        let looked = looked.fit;
        if let Fit::Misfits(lines) = &looked {
            for line in lines.iter().filter(|line| !logged.contains(line)) {
                error!("a collection does not have its shape: {line}");
            }
            logged.clone_from(lines);
        }
        let pause = if matches!(looked, Fit::Fits) {
            Duration::MAX
        } else {
            PAUSE
        };
        fit.store(Arc::new(looked));
        tokio::select! {
            () = sleep(pause) => {}
            changed = shapes.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}
