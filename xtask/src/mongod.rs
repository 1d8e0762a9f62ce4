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
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = mongod::find_binary()?;
    let folder = paths::target().join("mongod-data");
    fs::create_dir_all(&folder)?;
    println!(
        "mongod at 127.0.0.1:{}, until Ctrl-C; its data and its log stay in {}",
        options.port,
        folder.display()
    );
    let mut mongod = Command::new(binary);
    mongod.args(["--bind_ip", "127.0.0.1", "--port", &options.port.to_string()]);
    mongod
        .arg("--dbpath")
        .arg(&folder)
        .arg("--logpath")
        .arg(folder.join("log"));
    // It takes our place, and with it the terminal's Ctrl-C.
    Err(mongod.exec()).with_context(|| binary.display().to_string())
}
