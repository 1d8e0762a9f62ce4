//! The command line: `serve`, `check`, `setup`. The only floor that reads the process's arguments and environment.

mod check;
mod finding;
mod readiness;
mod serve;
mod setup;
mod upstream;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};

use crate::config::{Config, ConfigErrors};

/// Names the configuration when `--config` does not.
const CONFIG_VARIABLE: &str = "MONGOSHAPE_CONFIG";

/// A proxy that stores MongoDB collections in the bucket or outlier pattern while applications see plain ones.
#[derive(Debug, Parser)]
#[command(name = "mongoshape", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Runs the proxy until SIGTERM or SIGINT.
    Serve(ConfigFile),
    /// Validates the configuration and the upstream, and prints each finding; exits with 1 if one is an error.
    Check(ConfigFile),
    /// Creates the indexes of every shape; may be run again at any time.
    Setup(ConfigFile),
}

#[derive(Debug, Args)]
struct ConfigFile {
    /// The configuration (TOML); else the one that `MONGOSHAPE_CONFIG` names.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    fn path(self) -> anyhow::Result<PathBuf> {
        let path = self
            .config
            .or_else(|| std::env::var_os(CONFIG_VARIABLE).map(PathBuf::from));
        path.with_context(|| format!("no configuration: give --config FILE, or set {CONFIG_VARIABLE}"))
    }
}

fn load(path: &Path) -> Result<Config, ConfigErrors> {
    // What is not UTF-8 is shown as a mistake in its value, not passed over.
    let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    Config::load(path, &variable)
}

/// Runs the program and gives its exit code: 0, 1 after an error, 2 for arguments that are none.
#[must_use]
pub fn main() -> ExitCode {
    run(Arguments::parse().verb).unwrap_or_else(|error| {
        #[expect(
            clippy::print_stderr,
            reason = "the last word of a program that fails, possibly before it has a log"
        )]
        {
            eprintln!("mongoshape: {error:#}");
        }
        ExitCode::FAILURE
    })
}

fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match verb {
        Verb::Serve(file) => {
            let config = load_or_fail(&file.path()?)?;
            crate::telemetry::log::init(&config.log.filter, config.log.format)?;
            runtime.block_on(serve::run(config))?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Check(file) => Ok(runtime.block_on(check::run(load(&file.path()?)))),
        Verb::Setup(file) => runtime.block_on(setup::run(&load_or_fail(&file.path()?)?)),
    }
}

/// Each mistake stands on a line of its own in the error's message.
fn load_or_fail(path: &Path) -> anyhow::Result<Config> {
    load(path).map_err(|errors| anyhow::anyhow!("the configuration has mistakes\n{errors}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn each_verb_takes_a_file_or_leaves_it_to_the_environment() {
        for verb in ["serve", "check", "setup"] {
            assert!(Arguments::try_parse_from(["mongoshape", verb, "--config", "m.toml"]).is_ok());
            assert!(Arguments::try_parse_from(["mongoshape", verb]).is_ok());
            assert!(Arguments::try_parse_from(["mongoshape", verb, "m.toml"]).is_err());
        }
    }
}
