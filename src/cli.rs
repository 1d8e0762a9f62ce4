//! The command line: arguments, `serve` and `health`. The other verbs are in `maintenance` and `advisor`.
//! The only layer that reads the process's arguments and environment.

mod environment;
mod health;
mod manual;
mod readiness;
mod serve;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use self::environment::RecordedEnvironment;
use crate::advisor;
use crate::config::{Config, ConfigErrors};
use crate::maintenance::{check, compact, setup};
use crate::telemetry::recent_warnings::RecentWarnings;

/// Names the configuration when `--config` does not.
const CONFIG_VARIABLE: &str = "MONGOSHAPE_CONFIG";
/// Names the server when `advise --uri` does not; `serve` and the others know it as an option of the
/// configuration.
const URI_VARIABLE: &str = "MONGOSHAPE_UPSTREAM_URI";

/// A proxy that stores MongoDB collections in the bucket or outlier pattern while applications see plain
/// ones.
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
    /// Validates the configuration and the upstream, and prints each finding; exits with 1 if one is an
    /// error.
    Check(ConfigFile),
    /// Adopts buckets that were written by hand, creates the indexes of every shape, and removes what crashes
    /// left; may be run again at any time.
    Setup(Setup),
    /// Packs short pages again, while clients work; may be stopped and run again at any time.
    Compact(Compact),
    /// Looks at collections as they are, and proposes shapes for those that would gain by one. Only reads;
    /// prints names of fields, and never a value.
    Advise(Advise),
    /// Asks a running proxy whether it is ready; exits with 1 if it is not.
    Health(Health),
    /// Prints completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Writes the manual pages.
    Man {
        /// Where to.
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Advise {
    /// The server, as a connection string; else what `MONGOSHAPE_UPSTREAM_URI` says, which other users of
    /// this machine do not see.
    #[arg(long, value_name = "URI")]
    uri: Option<String>,
    /// A collection to look at, as `database.collection`; may be given several times. Else all that there
    /// are.
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Vec<String>,
    /// Documents of each collection that are looked at, drawn at random; at most 32 MiB of them.
    #[arg(long, value_name = "DOCUMENTS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    sample: u64,
    /// Prints nothing but the configuration that is proposed.
    #[arg(long)]
    toml: bool,
}

#[derive(Debug, Args)]
struct Health {
    #[command(flatten)]
    file: ConfigFile,
    /// The proxy's admin address, which speaks no TLS; else what its configuration says of it.
    #[arg(long, value_name = "IP:PORT", conflicts_with = "config")]
    address: Option<SocketAddr>,
}

#[derive(Debug, Args)]
struct Compact {
    #[command(flatten)]
    file: ConfigFile,
    /// The one collection to pack, as `database.collection`; else all with a bucket shape.
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
}

#[derive(Debug, Args)]
struct Setup {
    #[command(flatten)]
    file: ConfigFile,
    /// Splits what has more elements than an outlier shape's threshold, and adopts outliers that were split
    /// by hand, while clients work; may be stopped and run again at any time.
    #[arg(long)]
    split: bool,
    /// Puts the plain documents of collections with a bucket shape into pages. Stop what writes to them
    /// before; what they are now is kept beside, as `<collection>.mongoshape_plain`. May be stopped and run
    /// again at any time.
    #[arg(long)]
    pack: bool,
    /// The one collection to set up, as `database.collection`; else all with a shape.
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
}

#[derive(Debug, Args)]
struct ConfigFile {
    /// The configuration (TOML); else the one that `MONGOSHAPE_CONFIG` names.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    fn path(&self, environment: &RecordedEnvironment) -> anyhow::Result<PathBuf> {
        // Read in any case, so that the variable is a known one.
        let variable = environment.variable(CONFIG_VARIABLE).map(PathBuf::from);
        let path = self.config.clone().or(variable);
        path.with_context(|| format!("no configuration: give --config FILE, or set {CONFIG_VARIABLE}"))
    }

    /// Each mistake stands on a line of its own in the error's message.
    fn load_or_fail(&self, environment: &RecordedEnvironment) -> anyhow::Result<Config> {
        let config = load(&self.path(environment)?, environment);
        config.map_err(|errors| anyhow::anyhow!("the configuration has mistakes\n{errors}"))
    }
}

fn load(path: &Path, environment: &RecordedEnvironment) -> Result<Config, ConfigErrors> {
    Config::load(path, &|name| environment.variable(name))
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
    // Clients are served by threads of their own; one here accepts them, another watches the upstream
    // meanwhile.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let environment = RecordedEnvironment::default();
    match verb {
        Verb::Serve(file) => {
            let config = file.load_or_fail(&environment)?;
            let recent = RecentWarnings::default();
            crate::telemetry::log::init(&config.log.filter, config.log.format, recent.clone())?;
            for variable in environment.unknown() {
                tracing::warn!(variable, "this variable sets no option");
            }
            runtime.block_on(serve::run(config, &file, &environment, recent))?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Check(file) => {
            let config = load(&file.path(&environment)?, &environment);
            Ok(runtime.block_on(check::run(config, environment.unknown())))
        }
        Verb::Health(health) => {
            let (address, tls) = if let Some(address) = health.address {
                (address, None)
            } else {
                let admin = health.file.load_or_fail(&environment)?.admin;
                (admin.address, admin.tls)
            };
            Ok(runtime.block_on(health::run(address, tls.as_ref())))
        }
        Verb::Completions { shell } => {
            manual::completions(shell);
            Ok(ExitCode::SUCCESS)
        }
        Verb::Man { folder } => {
            manual::write_pages(&folder)?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Compact(compact) => {
            let config = compact.file.load_or_fail(&environment)?;
            runtime.block_on(compact::run(&config, compact.namespace.as_deref()))
        }
        Verb::Advise(arguments) => {
            let uri = arguments.uri.or_else(|| environment.variable(URI_VARIABLE));
            let uri = uri.with_context(|| format!("no server: give --uri URI, or set {URI_VARIABLE}"))?;
            let advise = advisor::AdviseOptions {
                uri: &uri,
                namespaces: &arguments.namespace,
                sample: arguments.sample,
                is_toml: arguments.toml,
            };
            runtime.block_on(advisor::run(&advise))
        }
        Verb::Setup(setup) => {
            let config = setup.file.load_or_fail(&environment)?;
            let asked = setup::SetupOptions {
                long: if setup.split {
                    setup::LongArrays::Split
                } else {
                    setup::LongArrays::AsTheyAre
                },
                plain: if setup.pack {
                    setup::PlainDocuments::Packed
                } else {
                    setup::PlainDocuments::AsTheyAre
                },
                namespace: setup.namespace.as_deref(),
            };
            runtime.block_on(setup::run(&config, asked))
        }
    }
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
        for verb in ["serve", "check", "setup", "compact", "health"] {
            assert!(Arguments::try_parse_from(["mongoshape", verb, "--config", "m.toml"]).is_ok());
            assert!(Arguments::try_parse_from(["mongoshape", verb]).is_ok());
            assert!(Arguments::try_parse_from(["mongoshape", verb, "m.toml"]).is_err());
        }
    }
}
