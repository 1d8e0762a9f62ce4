//! `advise`: inspects existing collections and their queries, and proposes shapes. Only reads.
//!
//! `queries` reads. `collection_stats`, `sample`, `runs` and `traffic` contain the results. `bucket` and
//! `outlier` decide without further reads; `forecast` has the sizes of a bucket shape. `analyze` runs these
//! steps for one collection. `report` and `configuration` format the result.

mod analyze;
mod bucket;
mod candidate;
mod change_streams;
mod collection_stats;
mod configuration;
mod cost;
mod evidence;
mod forecast;
mod outlier;
mod queries;
mod rename;
mod report;
mod rounding;
mod runs;
mod sample;
mod sizes;
mod traffic;

#[cfg(test)]
mod tests;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use bson::{Document, doc};
use mongodb::Client;

use self::analyze::CollectionAnalysis;
use self::collection_stats::CollectionStats;
use self::configuration::{Proposal, configuration, public};
use self::queries::{Ask, reason};
use self::traffic::Traffic;
use crate::config::Config;
use crate::maintenance::check::server::is_mongos;
use crate::maintenance::upstream;
use crate::pattern::bucket::pack::is_beside;
use crate::pattern::shapes::NamespacePattern;

/// Databases that no application uses.
const INTERNAL: [&str; 3] = ["admin", "config", "local"];

/// The options of `advise`.
#[derive(Debug)]
pub(crate) struct AdviseOptions<'a> {
    pub(crate) uri: &'a str,
    /// Each as `database.collection`. Empty: all collections.
    pub(crate) namespaces: &'a [String],
    /// Maximum number of documents to read from a collection.
    pub(crate) sample: u64,
    /// Whether only the configuration is printed.
    pub(crate) is_toml: bool,
}

/// Prints the proposals.
///
/// # Errors
/// If the upstream cannot be reached, its databases cannot be listed, or a named collection does
/// not exist.
pub(crate) async fn run(advise: &AdviseOptions<'_>) -> anyhow::Result<ExitCode> {
    let uri = toml::Value::String(advise.uri.to_owned());
    let text = format!("upstream.uri = {uri}\nlisten.address = \"127.0.0.1:27018\"\n");
    let config = Config::parse(&text, "--uri", &|_| None);
    let config = config.map_err(|errors| anyhow::anyhow!("the connection string cannot be used\n{errors}"))?;
    let client = upstream::client(&config.upstream).await?;
    let advised = through(&client, advise).await;
    upstream::close(client).await;
    advised?;
    Ok(ExitCode::SUCCESS)
}

async fn through(client: &Client, advise: &AdviseOptions<'_>) -> anyhow::Result<()> {
    let hello = client.database("admin").run_command(doc! { "hello": 1 }).await;
    let hello =
        hello.map_err(|error| anyhow::anyhow!("the server did not answer hello: {}", upstream::explain(&error)))?;
    let is_sharded = is_mongos(&hello);
    let mut ask = Ask::new(client);
    let watched = ask.watched().await;
    let (mut proposals, mut looked_at) = (Vec::new(), 0_u64);
    for name in databases(client, advise).await? {
        let database = client.database(&name);
        let collections = match ask.collections(&database).await {
            Ok(collections) => collections,
            Err(error) if advise.namespaces.is_empty() => {
                ask.note(format!("collections cannot be listed: {}", reason(&error)), &name);
                continue;
            }
            Err(error) => bail!("collections of {name} cannot be listed: {}", upstream::explain(&error)),
        };
        let wanted = wanted(&name, &collections, advise)?;
        if wanted.is_empty() {
            continue;
        }
        let beside: Vec<String> = collections
            .iter()
            .map(|described| named(described).to_owned())
            .collect();
        let profile = ask.profile(&database, &beside).await;
        for described in wanted {
            let mut facts = CollectionStats::of(&name, described);
            facts.beside.clone_from(&beside);
            if is_sharded {
                facts
                    .unfit
                    .push("is behind a mongos, where existing documents cannot be packed".to_owned());
            }
            let mut traffic = traffic_of(&facts.namespace, &profile);
            if watched.iter().any(|watched| watched.has(&facts.namespace)) {
                traffic.add_change_stream();
            }
            let mut look = CollectionAnalysis {
                ask: &mut ask,
                database: &database,
                sample: advise.sample,
            };
            let report = look.at(facts, traffic).await;
            looked_at += 1;
            if !advise.is_toml {
                say(&report.text());
            }
            proposals.extend(report.proposal.map(|proposal| (report.namespace, proposal)));
        }
    }
    finish(&ask, advise, looked_at, &proposals)
}

/// Prints the notes about facts that could not be determined, and the configuration.
fn finish(
    ask: &Ask<'_>,
    advise: &AdviseOptions<'_>,
    looked_at: u64,
    proposals: &[(String, Proposal)],
) -> anyhow::Result<()> {
    for note in ask.notes() {
        let note = format!("note: {note}\n").replace(
            |character: char| character.is_control() && character != '\n',
            "\u{fffd}",
        );
        if advise.is_toml {
            let _ = io::stderr().write_all(note.as_bytes());
        } else {
            say(&note);
        }
    }
    let text = configuration(&public(advise.uri), proposals);
    if let Err(errors) = Config::parse(&text, "proposal", &|_| None) {
        bail!("the proposed configuration is invalid; this is a bug in mongoshape\n{errors}");
    }
    if advise.is_toml {
        say(&text);
    } else if proposals.is_empty() {
        say(&format!("\n{looked_at} collections inspected; no shape is proposed\n"));
    } else {
        say(&format!(
            "\n{looked_at} collections inspected; initial configuration:\n\n{text}"
        ));
    }
    Ok(())
}

/// A closed pipe is ignored.
fn say(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

/// The names of the databases to inspect, in order.
async fn databases(client: &Client, advise: &AdviseOptions<'_>) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for namespace in advise.namespaces {
        let pattern = NamespacePattern::parse(namespace);
        let database = pattern.as_ref().and_then(NamespacePattern::database);
        let database = database.with_context(|| format!("--namespace {namespace}: write database.collection"))?;
        names.push(database.to_owned());
    }
    if names.is_empty() {
        names = client.list_database_names().await.map_err(|error| {
            let why = upstream::explain(&error);
            anyhow::anyhow!("databases cannot be listed: {why}; name the collections with --namespace")
        })?;
        names.retain(|name| !INTERNAL.contains(&name.as_str()));
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// The collections of a database to inspect, in order.
fn wanted<'a>(database: &str, there: &'a [Document], advise: &AdviseOptions<'_>) -> anyhow::Result<Vec<&'a Document>> {
    let of_database = |namespace: &String| namespace.split_once('.').is_some_and(|(name, _)| name == database);
    let mut wanted: Vec<&Document> = if advise.namespaces.is_empty() {
        there
            .iter()
            .filter(|described| !named(described).starts_with("system.") && !is_beside(named(described)))
            .collect()
    } else {
        let mut wanted = Vec::new();
        for namespace in advise.namespaces.iter().filter(|namespace| of_database(namespace)) {
            let is_it = |described: &&Document| format!("{database}.{}", named(described)) == *namespace;
            wanted.push(
                there
                    .iter()
                    .find(is_it)
                    .with_context(|| format!("collection {namespace} does not exist"))?,
            );
        }
        wanted
    };
    wanted.sort_by_key(|described| named(described));
    wanted.dedup_by_key(|described| named(described));
    Ok(wanted)
}

fn named(described: &Document) -> &str {
    described.get_str("name").unwrap_or_default()
}

fn traffic_of(namespace: &str, profile: &[Document]) -> Traffic {
    let mut traffic = Traffic::default();
    let of_it = profile
        .iter()
        .filter(|entry| entry.get_str("ns").is_ok_and(|name| name == namespace));
    of_it.for_each(|entry| traffic.add_profiled(entry));
    traffic
}
