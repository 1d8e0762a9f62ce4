//! `cargo xtask page`: the operator's page under a workload, as a picture for the documents.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use proto_tests::{Mongod, Scripts};

use crate::picture::PictureOptions;
use crate::{load, picture};

/// What `page` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds of work before the picture is taken
    #[arg(long, default_value_t = 100)]
    seconds: u64,
    /// `light` or `dark`
    #[arg(long, default_value = "light")]
    scheme: String,
    #[command(flatten)]
    picture: PictureOptions,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut browser = picture::browser()?;
    let mongod = Mongod::replica_set(1)?;
    let binary = options.picture.binary()?;
    let proxy = load::proxy(&mongod, &binary)?;
    browser.screen(&options.scheme, 1280)?;
    browser.open(proxy.admin_address(), Scripts::On)?;
    println!("http://{}/ for {} s", proxy.admin_address(), options.seconds);
    let picture = load::during(&proxy, || {
        thread::sleep(Duration::from_secs(options.seconds));
        browser.screenshot()
    })?;
    options.picture.write("operators-page.png", &picture)
}
