//! `mongod`: starts a server to try mongoshape with.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::Args;
use proto_tests::{mongod, paths};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The port on 127.0.0.1
    #[arg(long, default_value_t = 27017)]
    port: u16,
    /// Fetches and starts this version, such as 6.0.27; otherwise `MONGOSHAPE_MONGOD`, an installed one, or 6.0.5
    #[arg(long)]
    version: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let (program, folder) = match &options.version {
        Some(version) => (&mongod::program_of_version(version)?, format!("mongod-{version}-data")),
        None => (mongod::find_program()?, "mongod-data".to_owned()),
    };
    let folder = paths::target().join(folder);
    fs::create_dir_all(&folder)?;
    println!(
        "mongod at 127.0.0.1:{}, until Ctrl-C; its data and its log stay in {}",
        options.port,
        folder.display()
    );
    let mut mongod = Command::new(&program.path);
    mongod.args(["--bind_ip", "127.0.0.1", "--port", &options.port.to_string()]);
    mongod
        .arg("--dbpath")
        .arg(&folder)
        .arg("--logpath")
        .arg(folder.join("log"));
    // It takes our place, and with it the terminal's Ctrl-C.
    Err(mongod.exec()).with_context(|| program.path.display().to_string())
}
