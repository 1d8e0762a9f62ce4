//! The command line: arguments, `serve` and `health`. The other commands are in `maintenance`, `advisor`
//! and `demo`. Only this layer reads the process's arguments and environment.

mod conversion;
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

use self::conversion::{Convert, Verify};
use self::environment::RecordedEnvironment;
use crate::advisor;
use crate::config::{Config, ConfigErrors};
use crate::demo;
use crate::maintenance::{check, compact, convert, setup};
use crate::telemetry::recent_warnings::RecentWarnings;

/// Names the configuration file if `--config` is not given.
const CONFIG_VARIABLE: &str = "MONGOSHAPE_CONFIG";
/// Names the server if `advise` and `demo` have no `--uri`. For other commands it sets an option of the
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
    /// Validates the configuration and the upstream, and prints each finding. Exits with 1 if a
    /// finding is an error.
    Check(ConfigFile),
    /// Creates the indexes of every shape, adopts hand-written buckets, packs plain documents
    /// (`--pack`), splits long arrays (`--split`), and removes what crashes left. May be run again
    /// at any time.
    Setup(Setup),
    /// Packs short pages again while clients work. May be stopped and run again at any time.
    Compact(Compact),
    /// Changes the layout of a collection while applications use it: plain documents to pages, pages to
    /// plain documents, or pages to those of another shape. Compares all documents before it swaps the
    /// collections. May be stopped and run again at any time.
    Convert(Convert),
    /// Compares a collection with the copy that `convert` fills, or after a conversion with the collection in
    /// its former layout. Only reads.
    Verify(Verify),
    /// Inspects existing collections and proposes shapes for those that would benefit. Only reads.
    /// Prints names of fields, never values.
    Advise(Advise),
    /// Runs an application on a shaped collection of a server. Prints the documents that it reads, the
    /// stored pages, and read times beside a plain collection. Creates two databases, and drops them at the
    /// end. Fails if one of them exists.
    Demo(Demo),
    /// Asks a running proxy whether it is ready. Exits with 1 if it is not.
    Health(Health),
    /// Prints completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Writes the manual pages.
    Man {
        /// The folder for the pages.
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Advise {
    /// The server, as a connection string. Default: the value of `MONGOSHAPE_UPSTREAM_URI`, which
    /// other users of this machine cannot see.
    #[arg(long, value_name = "URI")]
    uri: Option<String>,
    /// A collection to inspect, as `database.collection`. May be given several times. Default: all
    /// collections.
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Vec<String>,
    /// Documents of each collection to read, drawn at random, at most 32 MiB.
    #[arg(long, value_name = "DOCUMENTS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    sample: u64,
    /// Prints only the proposed configuration.
    #[arg(long)]
    toml: bool,
}

#[derive(Debug, Args)]
struct Demo {
    /// The server, as a connection string. Default: the value of `MONGOSHAPE_UPSTREAM_URI`, which
    /// other users of this machine cannot see.
    #[arg(long, value_name = "URI")]
    uri: Option<String>,
    /// The database to create for the shaped collections. A plain collection for comparison is in the
    /// database with `_plain` appended to this name.
    #[arg(long, value_name = "NAME", default_value = "mongoshape_demo")]
    database: String,
    /// Trades of the customer whose pages are read.
    #[arg(long, value_name = "NUMBER", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    trades: u32,
    /// Keeps the proxy and the databases until Ctrl-C.
    #[arg(long)]
    keep: bool,
}

impl Demo {
    fn options(self, environment: &RecordedEnvironment) -> anyhow::Result<demo::DemoOptions> {
        Ok(demo::DemoOptions {
            uri: server(self.uri, environment)?,
            database: self.database,
            trades: self.trades,
            keep: self.keep,
        })
    }
}

#[derive(Debug, Args)]
struct Health {
    #[command(flatten)]
    file: ConfigFile,
    /// The proxy's admin address, without TLS. Default: the address in its configuration.
    #[arg(long, value_name = "IP:PORT", conflicts_with = "config")]
    address: Option<SocketAddr>,
}

#[derive(Debug, Args)]
struct Compact {
    #[command(flatten)]
    file: ConfigFile,
    /// The collection to pack, as `database.collection`. Default: all with a bucket shape.
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
}

#[derive(Debug, Args)]
struct Setup {
    #[command(flatten)]
    file: ConfigFile,
    /// Splits documents with more elements than an outlier shape's threshold, and adopts hand-split
    /// outliers, while clients work. May be stopped and run again at any time.
    #[arg(long)]
    split: bool,
    /// Packs the plain documents of collections with a bucket shape into pages. Stop writers
    /// before. The plain collection is kept as `<collection>.mongoshape_plain`. May be stopped and
    /// run again at any time.
    #[arg(long)]
    pack: bool,
    /// Accepts key, time, renamed and array fields that no document has.
    #[arg(long)]
    allow_missing_key: bool,
    /// The collection to set up, as `database.collection`. Default: all with a shape.
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
}

impl Setup {
    fn options(&self) -> setup::SetupOptions<'_> {
        setup::SetupOptions {
            long: if self.split {
                setup::LongArrays::Split
            } else {
                setup::LongArrays::AsTheyAre
            },
            plain: if self.pack {
                setup::PlainDocuments::Packed
            } else {
                setup::PlainDocuments::AsTheyAre
            },
            missing: if self.allow_missing_key {
                setup::MissingFields::Allowed
            } else {
                setup::MissingFields::Refused
            },
            namespace: self.namespace.as_deref(),
        }
    }
}

#[derive(Debug, Args)]
struct ConfigFile {
    /// The configuration file (TOML). Default: the file that `MONGOSHAPE_CONFIG` names.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    fn path(&self, environment: &RecordedEnvironment) -> anyhow::Result<PathBuf> {
        // Read even if it is not needed, so that the variable counts as known.
        let variable = environment.variable(CONFIG_VARIABLE).map(PathBuf::from);
        let path = self.config.clone().or(variable);
        path.with_context(|| format!("no configuration file; give --config FILE, or set {CONFIG_VARIABLE}"))
    }

    /// Loads the configuration. The error's message has one line for each mistake.
    fn load_or_fail(&self, environment: &RecordedEnvironment) -> anyhow::Result<Config> {
        let config = load(&self.path(environment)?, environment);
        config.map_err(|errors| anyhow::anyhow!("the configuration has errors\n{errors}"))
    }
}

/// The connection string of a command without a configuration file.
fn server(uri: Option<String>, environment: &RecordedEnvironment) -> anyhow::Result<String> {
    let uri = uri.or_else(|| environment.variable(URI_VARIABLE));
    uri.with_context(|| format!("no server; give --uri URI, or set {URI_VARIABLE}"))
}

fn load(path: &Path, environment: &RecordedEnvironment) -> Result<Config, ConfigErrors> {
    Config::load(path, &|name| environment.variable(name))
}

/// Runs the program and returns its exit code: 0, 1 after an error, or 2 for invalid arguments.
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
    // Worker threads serve clients. This runtime accepts connections and watches the upstream.
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
                tracing::warn!(variable, "this variable does not set an option");
            }
            runtime.block_on(serve::run(config, &file, &environment, recent))?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Check(file) => {
            let config = load(&file.path(&environment)?, &environment);
            Ok(runtime.block_on(check::run(config, environment.unknown())))
        }
        Verb::Health(health) => {
            if let Some(address) = health.address {
                return Ok(runtime.block_on(health::run(address, None)));
            }
            let config = health.file.load_or_fail(&environment);
            let admin = config
                .context("the admin address is not known; give --address IP:PORT")?
                .admin;
            Ok(runtime.block_on(health::run(admin.address, admin.tls.as_ref())))
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
        Verb::Convert(convert) => {
            let config = convert.file.load_or_fail(&environment)?;
            runtime.block_on(convert::run(&config, convert.options()))
        }
        Verb::Verify(verify) => {
            let config = verify.file.load_or_fail(&environment)?;
            runtime.block_on(convert::run(&config, verify.options()))
        }
        Verb::Advise(arguments) => {
            let uri = server(arguments.uri, &environment)?;
            let advise = advisor::AdviseOptions {
                uri: &uri,
                namespaces: &arguments.namespace,
                sample: arguments.sample,
                is_toml: arguments.toml,
            };
            runtime.block_on(advisor::run(&advise))
        }
        Verb::Demo(arguments) => {
            runtime.block_on(demo::run(&arguments.options(&environment)?))?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Setup(setup) => {
            let config = setup.file.load_or_fail(&environment)?;
            runtime.block_on(setup::run(&config, setup.options()))
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
    fn every_command_takes_a_configuration_file_or_the_environment() {
        for verb in ["serve", "check", "setup", "compact", "health"] {
            assert!(Arguments::try_parse_from(["mongoshape", verb, "--config", "m.toml"]).is_ok());
            assert!(Arguments::try_parse_from(["mongoshape", verb]).is_ok());
            assert!(Arguments::try_parse_from(["mongoshape", verb, "m.toml"]).is_err());
        }
    }
}
