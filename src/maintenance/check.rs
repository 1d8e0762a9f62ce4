//! `check`: validates the configuration, then inspects the upstream through the driver. Changes
//! nothing.

pub(crate) mod collection;
mod invalid_items;
pub(crate) mod misfit;
mod observed;
pub(crate) mod outlier;
pub(crate) mod server;
mod unique_indexes;

use std::process::ExitCode;

use mongodb::Client;

use super::convert;
use super::finding::{Finding, Findings};
use super::misspelt;
use super::upstream::{self, ShapedCollection};
use crate::config::{Config, ConfigErrors};
use crate::server::tls;

/// Prints each finding; the exit code is 1 if one is an error.
pub(crate) async fn run(config: Result<Config, ConfigErrors>, unknown_variables: Vec<String>) -> ExitCode {
    let mut findings = Findings::default();
    let unknown = |variable| Finding::note(variable, "this variable does not set an option");
    findings.extend(unknown_variables.into_iter().map(unknown));
    match config {
        Err(errors) => {
            let mistakes = errors.iter().map(|error| {
                let text = format!("{}; {}", error.problem, error.remedy);
                Finding::error(error.place.to_string(), text)
            });
            findings.extend(mistakes);
        }
        Ok(config) => {
            findings.add(&Finding::fine("configuration", "no errors"));
            if let Some(Err(error)) = config.listen.tls.as_ref().map(tls::acceptor) {
                findings.add(&Finding::error("listen", error.to_string()));
            }
            if let Err(error) = config.admin.access() {
                findings.add(&Finding::error("admin", error.to_string()));
            }
            if let Some(exposure) = config.admin.exposure() {
                findings.add(&Finding::note("admin", format!("{}: {exposure}", config.admin.address)));
            }
            if let Err(error) = check_upstream(&config, &mut findings).await {
                findings.add(&Finding::error("upstream", format!("{error:#}")));
            }
        }
    }
    findings.exit_code()
}

/// The finding for plain documents in a collection with an automatic shape.
pub(crate) fn automatic_and_plain(target: &ShapedCollection) -> Finding {
    let text =
        "contains plain documents, so its commands are relayed; `mongoshape convert` stores the documents in pages";
    Finding::note(target.namespace(), text)
}

/// # Errors
/// If the upstream cannot be inspected further.
async fn check_upstream(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let client = upstream::client(&config.upstream).await?;
    let checked = check_through(&client, config, findings).await;
    upstream::close(client).await;
    checked
}

async fn check_through(client: &Client, config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    findings.extend(server::check(client, config, server::Purpose::Serve).await?);
    let targets = upstream::targets(client, &config.shapes).await?;
    for target in &targets {
        if let Some(finding) = misspelt::finding(target, &config.shapes).await {
            findings.add(&finding);
            continue;
        }
        findings.extend(collection::check(target).await);
        findings.extend(convert::recorded(target).await);
    }
    findings.extend(unique_indexes::check(client, &targets).await);
    for target in &upstream::plain_targets(client, &config.shapes).await? {
        findings.add(&automatic_and_plain(target));
        findings.extend(convert::recorded(target).await);
    }
    for target in &upstream::named_shadows(client, &config.shapes) {
        findings.extend(convert::recorded(target).await);
    }
    for target in upstream::observed(client, &config.shapes).await? {
        findings.extend(observed::check(&target).await);
    }
    Ok(())
}
