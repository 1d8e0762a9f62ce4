//! `setup`: creates the indexes of every shape. Running it again changes nothing.

use std::process::ExitCode;

use bson::{Document, doc};
use mongodb::Client;
use mongodb::error::Error;

use super::check::{collection, server};
use super::finding::{Finding, Findings};
use super::upstream::{self, Target, description, explain, indexes, is_same_index};
use crate::config::Config;

/// Creates what is missing, and prints what was done for each namespace; goes on with the next one after an error.
/// Touches nothing where the proxy would not work: not on a server, nor in a collection, that `check` finds fault with.
///
/// # Errors
/// When the upstream cannot be reached, or its databases not be listed.
pub(super) async fn run(config: &Config) -> anyhow::Result<ExitCode> {
    let client = upstream::client(&config.upstream).await?;
    let findings = set_up_through(&client, config).await;
    upstream::close(client).await;
    Ok(findings?.exit_code())
}

async fn set_up_through(client: &Client, config: &Config) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    findings.extend(server::check(client, config).await?);
    if findings.failed() {
        return Ok(findings);
    }
    let targets = upstream::targets(client, config).await?;
    if targets.is_empty() {
        findings.add(&Finding::note(
            "setup",
            "there is no collection whose shape is rewritten",
        ));
    }
    for target in targets {
        let done = set_up(&target).await;
        findings.extend(done.unwrap_or_else(|error| vec![collection::unreadable(&target, &error)]));
    }
    Ok(findings)
}

async fn set_up(target: &Target) -> Result<Vec<Finding>, Error> {
    let mut missing = target.bucket().map(collection::wanted_indexes).unwrap_or_default();
    let asked = missing.len();
    if let Some(described) = description(&target.database, &target.collection).await? {
        let unfit = collection::unfit(target, &described);
        if !unfit.is_empty() {
            return Ok(unfit);
        }
        let there = indexes(target).await?;
        missing.retain(|wanted| !there.iter().any(|found| is_same_index(wanted, found)));
        if missing.is_empty() {
            return Ok(vec![Finding::fine(
                target.namespace(),
                format!("all {asked} indexes were there"),
            )]);
        }
        // Plain documents must not come under a unique index on fields that they lack.
        if let Some(strange) = collection::strange_documents(target).await?
            && strange.is_error()
        {
            return Ok(vec![strange]);
        }
    }
    Ok(vec![create_indexes(target, missing, asked).await])
}

/// Creates the collection too, if it is not there.
async fn create_indexes(target: &Target, missing: Vec<Document>, asked: usize) -> Finding {
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
