//! `cargo xtask page`: the operator's page under a workload, as a picture for the documents.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use proto_tests::proxy::{Profile, build_binary};
use proto_tests::{Browser, Mongod, Scripts, browser, paths};

use crate::load;

/// What `page` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds of work before the picture is taken
    #[arg(long, default_value_t = 100)]
    seconds: u64,
    /// `light` or `dark`
    #[arg(long, default_value = "light")]
    scheme: String,
    /// A proxy to take, not one built for release
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Where to write the picture
    #[arg(long)]
    output: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut browser = Browser::start()?.with_context(|| format!("there is no Chromium here: {}", browser::INSTALL))?;
    let mongod = Mongod::replica_set(1)?;
    let binary = options.binary.clone();
    let binary = binary.map_or_else(|| build_binary(Profile::Release), Ok)?;
    let proxy = load::proxy(&mongod, &binary)?;
    browser.screen(&options.scheme, 1280)?;
    browser.open(proxy.admin_address(), Scripts::On)?;
    println!("http://{}/ for {} s", proxy.admin_address(), options.seconds);
    let picture = load::during(&proxy, || {
        thread::sleep(Duration::from_secs(options.seconds));
        browser.screenshot()
    })?;
    let output = options.output.clone();
    let output = output.unwrap_or_else(|| paths::workspace().join("docs/images/operators-page.png"));
    fs::create_dir_all(output.parent().context("a folder")?)?;
    fs::write(&output, picture)?;
    println!("{}", output.display());
    Ok(())
}
