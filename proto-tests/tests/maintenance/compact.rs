//! `mongoshape compact`: packs short pages during concurrent reads, writes and runs.

mod bulk_writes;
mod concurrent_clients;
mod delayed_commands;
mod interrupted;
mod model;
mod open_cursors;
mod packed;
mod sphere;
mod stale_catalog;
mod stress;
mod transfer;

use std::process::Output;

use anyhow::{Result, ensure};
use proto_tests::Proxy;

/// Runs the verb, which must succeed. Its output.
pub(crate) fn compact(proxy: &Proxy) -> Result<String> {
    successful_output(&proxy.run("compact")?)
}

/// The output of a run that must have succeeded.
fn successful_output(output: &Output) -> Result<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {text}", output.status);
    Ok(text)
}
