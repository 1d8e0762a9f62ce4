//! `cargo xtask page`: the operator's page under a workload, as pictures for the documents.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use proto_tests::{Mongod, Scripts};

use crate::picture::PictureOptions;
use crate::{load, picture};

/// File, colour scheme and width. The first has the whole page, the others its top.
const PICTURES: [(&str, &str, u32); 4] = [
    ("operators-page.png", "light", 1440),
    ("operators-page-dark.png", "dark", 1440),
    ("operators-page-phone.png", "light", 390),
    ("operators-page-phone-dark.png", "dark", 390),
];
/// The page draws its charts anew within this time.
const REDRAW: Duration = Duration::from_secs(3);

/// What `page` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds of work before the pictures are taken
    #[arg(long, default_value_t = 100)]
    seconds: u64,
    #[command(flatten)]
    picture: PictureOptions,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut browser = picture::browser()?;
    let mongod = Mongod::replica_set(1)?;
    let binary = options.picture.binary()?;
    let proxy = load::proxy(&mongod, &binary)?;
    browser.open(proxy.admin_address(), Scripts::On)?;
    println!("http://{}/ for {} s", proxy.admin_address(), options.seconds);
    load::during(&proxy, || {
        thread::sleep(Duration::from_secs(options.seconds));
        for (place, (name, scheme, width)) in PICTURES.into_iter().enumerate() {
            browser.screen(scheme, width)?;
            thread::sleep(REDRAW);
            let picture = match place {
                0 => browser.screenshot()?,
                _ => browser.screenshot_of_screen()?,
            };
            options.picture.write(name, &picture)?;
        }
        Ok(())
    })
}
