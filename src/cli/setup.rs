//! `setup`: creates the indexes of every shape. Running it again changes nothing.

use std::process::ExitCode;

use anyhow::Context;
use bson::doc;

use super::finding::{Finding, Findings};
use super::upstream::{self, Target};
use crate::config::Config;
use crate::pattern::bucket::index::specs;

/// Creates what is missing, and prints what was done for each namespace; goes on with the next one after an error.
///
/// # Errors
/// When the upstream cannot be reached, or its databases not be listed.
pub(super) async fn run(config: &Config) -> anyhow::Result<ExitCode> {
    let client = upstream::client(&config.upstream).await?;
    let ping = client.database("admin").run_command(doc! { "ping": 1 }).await;
    ping.with_context(|| format!("the upstream {} cannot be reached", config.upstream.address))?;
    let targets = upstream::targets(&client, config).await?;
    let mut findings = Findings::default();
    if targets.is_empty() {
        findings.add(&Finding::note("setup", "no collection has a shape that is rewritten"));
    }
    for target in targets {
        findings.add(&create_indexes(&target).await);
    }
    Ok(findings.exit_code())
}

async fn create_indexes(target: &Target) -> Finding {
    let Some(shape) = target.bucket() else {
        return Finding::note(target.namespace(), "nothing to set up");
    };
    let specs = specs(shape);
    let asked = specs.len();
    let command = doc! { "createIndexes": &target.collection, "indexes": specs };
    match target.database.run_command(command).await {
        Ok(reply) => {
            let number = |field| reply.get(field).and_then(upstream::as_integer).unwrap_or(0);
            let created = number("numIndexesAfter") - number("numIndexesBefore");
            // A collection made by the command begins with its `_id` index already counted.
            let text = match created {
                0 => format!("all {asked} indexes were there"),
                _ => format!("{created} of {asked} indexes created"),
            };
            Finding::fine(target.namespace(), text)
        }
        Err(error) => Finding::error(target.namespace(), format!("indexes cannot be created: {error}")),
    }
}
