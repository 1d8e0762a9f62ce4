//! `mongoshape compact`: packs short pages during concurrent reads, writes and runs.

mod broken_off;
mod late;
mod model;
mod packed;
mod stale;
mod stress;
mod transfer;
mod working;
mod writing;

use std::process::Output;

use anyhow::{Result, ensure};
use proto_tests::Proxy;

/// Runs the verb, and gives what it said.
fn compact(proxy: &Proxy) -> Result<String> {
    said(&proxy.run("compact")?)
}

/// What a run said that succeeded.
fn said(output: &Output) -> Result<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {text}", output.status);
    Ok(text)
}
