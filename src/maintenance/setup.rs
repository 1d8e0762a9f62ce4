//! `setup`: adopts hand-written buckets, and creates the indexes of every shape. A second run
//! changes nothing.

mod adopt;
mod bucket;
mod direct_writes;
mod outlier;
pub(super) mod pack;
mod rights;
mod split;

use std::process::ExitCode;

use mongodb::Client;
use mongodb::error::Error;
use tokio_util::sync::CancellationToken;

use super::check::{automatic_and_plain, collection, server};
use super::compact::stopped_by_signals;
use super::finding::{Finding, Findings};
pub(crate) use super::inspect::MissingFields;
use super::inspect::{Plain, look};
use super::misspelt;
use super::privileges::Privileges;
use super::upstream::{self, ShapedCollection, explain};
use crate::config::{Config, suggest};

/// Creates missing indexes and prints the result for each namespace. After an error it continues
/// with the next one. Changes nothing on a server or in a collection for which `check` reports an
/// error.
///
/// # Errors
/// If the upstream cannot be reached, or its databases cannot be listed.
pub(crate) async fn run(config: &Config, options: SetupOptions<'_>) -> anyhow::Result<ExitCode> {
    let client = upstream::client(&config.upstream).await?;
    let findings = set_up_through(&client, config, options).await;
    upstream::close(client).await;
    Ok(findings?.exit_code())
}

/// The handling of documents with more elements than an outlier shape's threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LongArrays {
    /// They are left unchanged.
    AsTheyAre,
    /// Their further elements become extras.
    Split,
}

/// The handling of plain documents in a collection with a bucket shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlainDocuments {
    /// They are reported and left unchanged.
    AsTheyAre,
    /// They are packed into pages.
    Packed,
}

/// The options of `setup`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetupOptions<'a> {
    pub(crate) long: LongArrays,
    pub(crate) plain: PlainDocuments,
    pub(crate) missing: MissingFields,
    /// The collection to set up. `None`: all that have a shape.
    pub(crate) namespace: Option<&'a str>,
}

impl SetupOptions<'_> {
    /// Whether the options request changes of documents, which the user expects to have been made
    /// afterwards.
    fn changes_documents(&self) -> bool {
        self.long != LongArrays::AsTheyAre || self.plain != PlainDocuments::AsTheyAre
    }

    /// Whether the collection is to be set up.
    fn is_for(&self, target: &ShapedCollection) -> bool {
        self.namespace.is_none_or(|namespace| namespace == target.namespace())
    }
}

/// A run of `setup`.
struct SetupRun<'a> {
    config: &'a Config,
    options: SetupOptions<'a>,
    /// Those of the user of `upstream.uri`.
    privileges: Privileges,
    stop: CancellationToken,
}

/// The split of long arrays of one collection, as a part of `convert`.
pub(crate) struct OutlierSplit<'a> {
    pub(crate) client: &'a Client,
    pub(crate) config: &'a Config,
    pub(crate) missing: MissingFields,
    pub(crate) stop: &'a CancellationToken,
}

impl OutlierSplit<'_> {
    /// Creates the indexes of the extras, and splits long arrays.
    pub(crate) async fn run(&self, target: &ShapedCollection, findings: &mut Findings) -> Result<(), Error> {
        let run = SetupRun {
            config: self.config,
            options: SetupOptions {
                long: LongArrays::Split,
                plain: PlainDocuments::AsTheyAre,
                missing: self.missing,
                namespace: None,
            },
            privileges: Privileges::of(self.client).await?,
            stop: self.stop.clone(),
        };
        run.set_up(target, findings).await
    }
}

async fn set_up_through(client: &Client, config: &Config, options: SetupOptions<'_>) -> anyhow::Result<Findings> {
    let stop = stopped_by_signals()?;
    let mut findings = Findings::default();
    let purpose = if options.changes_documents() {
        server::Purpose::Exchange
    } else {
        server::Purpose::Serve
    };
    findings.extend(server::check(client, config, purpose).await?);
    if findings.failed() {
        return Ok(findings);
    }
    let mut targets = upstream::targets(client, &config.shapes).await?;
    targets.retain(|target| options.is_for(target));
    let plain = upstream::plain_targets(client, &config.shapes).await?;
    let plain = plain.iter().filter(|target| options.is_for(target));
    let plain: Vec<Finding> = plain.map(automatic_and_plain).collect();
    if targets.is_empty() && plain.is_empty() {
        findings.add(&without_targets(config, options));
    }
    findings.extend(plain);
    let unknown = |error| anyhow::anyhow!("the user's privileges cannot be read: {}", explain(&error));
    let run = SetupRun {
        config,
        options,
        privileges: Privileges::of(client).await.map_err(unknown)?,
        stop,
    };
    for target in targets {
        if let Err(error) = run.set_up(&target, &mut findings).await {
            findings.add(&collection::unreadable(&target, &error));
        }
        if run.stop.is_cancelled() {
            break;
        }
    }
    Ok(findings)
}

/// The finding if there is nothing to set up.
fn without_targets(config: &Config, options: SetupOptions<'_>) -> Finding {
    let none = "no collection has a shape in mode = \"rewrite\"";
    match options.namespace {
        Some(namespace) => {
            let names: Vec<String> = config
                .shapes
                .iter()
                .map(|shape| shape.namespace().to_string())
                .collect();
            let near = suggest::near_misses(namespace, names.iter().map(String::as_str));
            let remedy = near.first().map(|near| format!("; did you mean \"{near}\"?"));
            let text = "there is no such collection with a shape in mode = \"rewrite\"";
            Finding::error(namespace, format!("{text}{}", remedy.unwrap_or_default()))
        }
        None if options.changes_documents() => {
            Finding::error("setup", format!("nothing was done: {none}; set the mode"))
        }
        None => Finding::note("setup", none),
    }
}

impl SetupRun<'_> {
    async fn set_up(&self, target: &ShapedCollection, findings: &mut Findings) -> Result<(), Error> {
        let lacking = self.may_inspect(target);
        if !lacking.is_empty() {
            findings.extend(lacking);
            return Ok(());
        }
        let plain = match target.bucket() {
            Some(shape) => look(target, shape).await?,
            None => Plain::Nothing,
        };
        if plain != Plain::Nothing {
            return self.set_up_plain(target, plain, findings).await;
        }
        if let Some(finding) = misspelt::finding(target, &self.config.shapes).await {
            findings.add(&finding);
            return Ok(());
        }
        match (target.bucket(), target.outlier()) {
            (Some(shape), _) => {
                let setup = bucket::BucketSetup {
                    run: self,
                    target,
                    shape,
                };
                setup.set_up(findings).await
            }
            (_, Some(shape)) => {
                let setup = outlier::OutlierSetup {
                    run: self,
                    target,
                    shape,
                };
                setup.set_up(findings).await
            }
            (None, None) => Ok(()),
        }
    }

    /// Packs plain documents, or reports them.
    async fn set_up_plain(
        &self,
        target: &ShapedCollection,
        plain: Plain,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        if self.options.plain == PlainDocuments::Packed {
            pack::run(self, target, findings).await;
            return Ok(());
        }
        if let (Plain::Documents(_), Some(shape)) = (plain, target.bucket()) {
            findings.extend(collection::missing_fields(target, shape).await?);
        }
        findings.extend(plain.finding(target));
        Ok(())
    }
}
