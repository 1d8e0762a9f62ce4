//! `setup`: adopts hand-written buckets, and creates the indexes of every shape. A second run
//! changes nothing.

mod adopt;
mod misspelt;
mod outlier;
mod pack;
mod split;

use std::process::ExitCode;

use bson::{Document, doc};
use mongodb::Client;
use mongodb::error::Error;

use super::check::{automatic_and_plain, collection, server};
use super::compact::stopped_by_signals;
use super::finding::{Finding, Findings};
use super::inspect::{ContentsCheck, Plain, SCAN_TIMEOUT, first_foreign, look};
use super::upstream::{self, ShapedCollection, description, explain, indexes};
use crate::command::collection::IMAGES;
use crate::config::Config;
use crate::pattern::bucket::index;
use crate::pattern::shape_marker;
use crate::pattern::shapes::BucketShape;

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
    /// The collection to set up. `None`: all that have a shape.
    pub(crate) namespace: Option<&'a str>,
}

impl SetupOptions<'_> {
    /// Whether the options request changes of documents, which the user expects to have been made
    /// afterwards.
    fn changes_documents(&self) -> bool {
        self.long != LongArrays::AsTheyAre || self.plain != PlainDocuments::AsTheyAre
    }
}

async fn set_up_through(client: &Client, config: &Config, options: SetupOptions<'_>) -> anyhow::Result<Findings> {
    let stop = stopped_by_signals()?;
    let mut findings = Findings::default();
    findings.extend(server::check(client, config).await?);
    if findings.failed() {
        return Ok(findings);
    }
    let mut targets = upstream::targets(client, &config.shapes).await?;
    targets.retain(|target| {
        options
            .namespace
            .is_none_or(|namespace| namespace == target.namespace())
    });
    let is_wanted = |target: &&ShapedCollection| {
        let namespace = options.namespace;
        namespace.is_none_or(|namespace| namespace == target.namespace())
    };
    let automatic = upstream::automatic(client, &config.shapes).await?;
    let plain: Vec<&ShapedCollection> = automatic.plain.iter().filter(is_wanted).collect();
    for target in &plain {
        findings.add(&automatic_and_plain(target));
    }
    if targets.is_empty() && plain.is_empty() {
        findings.add(&match options.namespace {
            Some(namespace) => Finding::error(
                namespace,
                "there is no such collection with a shape in mode = \"rewrite\"",
            ),
            None if options.changes_documents() => {
                let text = "nothing was done: no collection has a shape in mode = \"rewrite\"; set the mode";
                Finding::error("setup", text)
            }
            None => Finding::note("setup", "no collection has a shape in mode = \"rewrite\""),
        });
    }
    for target in targets {
        let plain = match target.bucket() {
            Some(shape) => look(&target, shape).await,
            None => Ok(Plain::Nothing),
        };
        let done = match (plain, target.outlier()) {
            (Ok(plain), _) if plain != Plain::Nothing => {
                if options.plain == PlainDocuments::Packed {
                    pack::run(&config.upstream, &target, &stop, &mut findings).await;
                } else {
                    findings.extend(plain.finding(&target));
                }
                Ok(())
            }
            (Err(error), _) => Err(error),
            (Ok(_), _) if let Some(finding) = misspelt::finding(&target, config).await => {
                findings.add(&finding);
                Ok(())
            }
            (Ok(_), Some(shape)) => outlier::set_up(&target, shape, options.long, &stop, &mut findings).await,
            (Ok(_), None) => set_up(&target, &mut findings).await,
        };
        if let Err(error) = done {
            findings.add(&collection::unreadable(&target, &error));
        }
        if stop.is_cancelled() {
            break;
        }
    }
    Ok(findings)
}

async fn set_up(target: &ShapedCollection, findings: &mut Findings) -> Result<(), Error> {
    let Some(shape) = target.bucket() else {
        return Ok(());
    };
    let mut missing = collection::wanted_indexes(shape);
    let asked = missing.len();
    let described = description(&target.database, &target.collection).await?;
    if let Some(described) = &described {
        let there = indexes(target).await?;
        let mut unfit = collection::unfit(target, described);
        unfit.extend(collection::index_findings(target, shape, &there));
        unfit.retain(Finding::is_error);
        if !unfit.is_empty() {
            findings.extend(unfit);
            return Ok(());
        }
        missing.retain(|wanted| !there.iter().any(|found| collection::serves_as(shape, wanted, found)));
        // Proxies trust a collection that has the page index, so the index is created only if the
        // collection contains nothing but pages.
        if !are_all_pages(target, shape, Trust::of(&there), findings).await? {
            return Ok(());
        }
    }
    // Proxies take a collection with an automatic shape for a plain one until it has the page index.
    let is_created_by_indexes = target.is_automatic() && described.is_none();
    if is_created_by_indexes {
        findings.add(&create_indexes(target, std::mem::take(&mut missing), asked).await);
    }
    if shape.change_streams() && !described.as_ref().is_some_and(collection::has_images) {
        findings.add(&enable_images(target, described.is_some() || is_created_by_indexes).await);
    }
    if is_created_by_indexes {
        return Ok(());
    }
    if missing.is_empty() {
        findings.add(&Finding::fine(target.namespace(), format!("all {asked} indexes exist")));
        return Ok(());
    }
    findings.add(&create_indexes(target, missing, asked).await);
    if described.is_some() {
        // A writer may have taken the collection for a plain one, so the content is checked again.
        are_all_pages(target, shape, Trust::Indexed, findings).await?;
    }
    Ok(())
}

/// How thoroughly a collection's documents are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// The collection has the page index and a matching shape marker. A quick check for other
    /// documents is enough.
    Indexed,
    /// One of them is missing. Every page is checked against the layout.
    None,
}

impl Trust {
    fn of(indexes: &[Document]) -> Self {
        let has = |wanted| {
            indexes
                .iter()
                .any(|index| index.get_str("name").is_ok_and(|name| name == wanted))
        };
        if has(index::PAGE) && has(shape_marker::INDEX) {
            Self::Indexed
        } else {
            Self::None
        }
    }
}

/// Adopts hand-written buckets. Returns whether the collection then contains only pages. If not,
/// findings have been reported.
async fn are_all_pages(
    target: &ShapedCollection,
    shape: &BucketShape,
    trust: Trust,
    findings: &mut Findings,
) -> Result<bool, Error> {
    if trust == Trust::Indexed {
        match first_foreign(target, shape, SCAN_TIMEOUT).await? {
            ContentsCheck::Pages => return Ok(true),
            ContentsCheck::Unfinished(finding) => {
                findings.add(&finding);
                return Ok(true);
            }
            ContentsCheck::Foreign(_) => {}
        }
    }
    adopt::run(target, shape, findings).await
}

/// Makes mongod store the images of pages for change streams. Creates the collection if it does not exist.
async fn enable_images(target: &ShapedCollection, exists: bool) -> Finding {
    let command = if exists { "collMod" } else { "create" };
    let command = doc! { command: &target.collection, IMAGES: { "enabled": true } };
    match target.database.run_command(command).await {
        Ok(_) => Finding::fine(
            target.namespace(),
            "pre- and post-images of pages enabled for change streams",
        ),
        Err(error) => {
            let text = format!("pre- and post-images of pages cannot be enabled: {}", explain(&error));
            Finding::error(target.namespace(), text)
        }
    }
}

/// Also creates the collection if it does not exist.
async fn create_indexes(target: &ShapedCollection, missing: Vec<Document>, asked: usize) -> Finding {
    let created = missing.len();
    let command = doc! { "createIndexes": &target.collection, "indexes": missing };
    match target.database.run_command(command).await {
        Ok(_) => Finding::fine(target.namespace(), format!("{created} of {asked} indexes created")),
        Err(error) => {
            let text = format!("indexes cannot be created: {}", explain(&error));
            Finding::error(target.namespace(), text)
        }
    }
}
