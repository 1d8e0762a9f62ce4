//! `pymongo`: `PyMongo`'s own test suite, run directly and through the proxy; results are compared test by
//! test.
//!
//! Without shapes all tests run, and their outcomes must be equal. With [`shaped`] collections the
//! specifications' tests run. Each run has its own servers; runs are sequential.

mod compare;
mod expected;
mod outcome;
mod presentation;
mod print;
mod pytest;
mod route;
mod runner;
mod shaped;
mod suite;

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use proto_tests::paths;

use compare::Difference;
use expected::Expected;
use outcome::{Outcome, Outcomes};
use presentation::{Presentation, Topology};
use pytest::Pytest;
use route::Route;
use runner::Runner;
use shaped::Shaping;
use suite::Suite;

/// Tests that the model of a cluster cannot pass. They close the client's connection by a fail point of mongos. The model
/// has only the fail points of its shards, which close the router's connections.
const NOT_OF_MODEL: [&str; 1] = ["::test_estimatedDocumentCount_errors_correctly--socket_error"];

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Runs only these modules of the suite, such as `test_cursor`; also ones that are not run by default
    #[arg(long, value_name = "MODULE", num_args = 1..)]
    only: Vec<String>,
    /// Runs these tests of the specifications alone, with the collections that they use shaped
    #[arg(long, value_enum, value_name = "TESTS", conflicts_with = "only")]
    shaped: Option<shaped::Tests>,
    /// The pattern that they are shaped in
    #[arg(long, value_enum, default_value_t = shaped::Pattern::Bucket, requires = "shaped")]
    pattern: shaped::Pattern,
    #[command(flatten)]
    topologies: Topologies,
    /// Runs only these presentations
    #[arg(long, value_enum, value_name = "PRESENTATION", num_args = 1..)]
    present_as: Vec<Presentation>,
    /// Runs the suite of the asynchronous API in place of the other
    #[arg(long)]
    asynchronous: bool,
    /// Members of the replica set: some tests want a secondary, none a second one
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=3))]
    members: u8,
    /// Has clients offer compression, such as `zlib,snappy`
    #[arg(long)]
    compressors: Option<String>,
    /// Takes this binary of mongoshape
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// The topologies of a run.
#[derive(Debug, Args)]
struct Topologies {
    /// Runs it on a standalone; without this, --replica-set and --cluster, on a standalone and a replica set
    #[arg(long)]
    standalone: bool,
    /// Runs it on a replica set
    #[arg(long)]
    replica_set: bool,
    /// Runs it on the tests' model of a sharded cluster, on which no collection is sharded
    #[arg(long)]
    cluster: bool,
}

impl Topologies {
    fn contain(&self, topology: Topology) -> bool {
        let is_any = self.standalone || self.replica_set || self.cluster;
        match topology {
            Topology::Standalone => self.standalone || !is_any,
            Topology::ReplicaSet => self.replica_set || !is_any,
            Topology::Cluster => self.cluster,
        }
    }
}

impl Options {
    fn presentations(&self, topology: Topology) -> Vec<Presentation> {
        let wanted = self.topologies.contain(topology);
        let is_chosen = |presentation: &Presentation| {
            wanted
                && presentation.topology() == topology
                && (self.present_as.is_empty() || self.present_as.contains(presentation))
        };
        Presentation::ALL.into_iter().filter(is_chosen).collect()
    }

    /// Where the tests of the API are, relative to the suite's root.
    fn folder(&self) -> &'static str {
        if self.asynchronous { "test/asynchronous" } else { "test" }
    }
}

/// The tests of a run, and their expected differences.
struct Plan {
    /// Files, classes or single tests, as pytest names them.
    tests: Vec<String>,
    /// What the proxy stores in a pattern, all tests with each; none: one run without shapes.
    shapings: Vec<Vec<Shaping>>,
    /// First come those that shapes cause, all of which must happen.
    list: Vec<Expected>,
    by_shapes: usize,
}

impl Plan {
    fn new(options: &Options, suite: &Suite) -> Result<Self> {
        let Some(tests) = options.shaped else {
            return Ok(Self {
                tests: suite.files(&options.only, options.folder())?,
                shapings: Vec::new(),
                list: expected::plain()?,
                by_shapes: 0,
            });
        };
        let mut list = match options.pattern {
            shaped::Pattern::Bucket => expected::shaped()?,
            shaped::Pattern::Outlier => Vec::new(),
        };
        let by_shapes = list.len();
        list.extend(expected::plain()?);
        let shapings = Shaping::of((tests, options.pattern), &suite.root(), options.folder())?;
        let all = shapings.first().into_iter().flatten().flat_map(Shaping::tests);
        Ok(Self {
            tests: all.cloned().collect(),
            shapings,
            list,
            by_shapes,
        })
    }

    fn routes(&self, presentation: Presentation) -> Vec<Route> {
        let route = |shapings| Route { presentation, shapings };
        if self.shapings.is_empty() {
            return vec![route(Vec::new())];
        }
        let stay = !presentation.moves_items();
        let shapings = self.shapings.iter().cloned();
        let shapings = shapings.filter(|of_key| !(stay && of_key.iter().any(Shaping::moves_items)));
        shapings.map(route).collect()
    }
}

/// What came of one route.
struct Compared {
    route: Route,
    direct: Outcomes,
    proxied: Outcomes,
    /// Each with the number of its entry in the list.
    expected: Vec<(usize, Difference)>,
    unexpected: Vec<Difference>,
    /// Differed in the whole run, and not when repeated alone.
    passing: Vec<Difference>,
    /// Expected with shapes, and did not happen.
    stale: Vec<String>,
    /// What the proxy logged as WARN or ERROR.
    logged: Vec<String>,
    /// The shaped collections that violate their layout.
    broken: Vec<String>,
}

impl Compared {
    /// Tests that fail without the proxy, other than those that the model of a cluster cannot pass.
    fn direct_failures(&self) -> usize {
        let is_model = self.route.presentation.topology() == Topology::Cluster;
        let failed = self
            .direct
            .iter()
            .filter(|(_, result)| result.outcome == Outcome::Failed);
        failed
            .filter(|(test, _)| !(is_model && NOT_OF_MODEL.iter().any(|name| test.ends_with(name))))
            .count()
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let suite = Suite::fetched()?;
    let plan = Plan::new(options, &suite)?;
    for shaping in plan.shapings.first().into_iter().flatten() {
        shaping.print();
    }
    let reports = suite.folder.join("reports");
    fs::create_dir_all(&reports)?;
    let pytest = Pytest {
        suite,
        compressors: options.compressors.clone(),
        plugins: options.shaped.map_or(&[], |_| shaped::PLUGINS),
        reports,
    };
    let runner = Runner { options, pytest, plan };
    let mut compared = Vec::new();
    for topology in Topology::ALL {
        compared.extend(runner.topology(topology)?);
    }
    ensure!(!compared.is_empty(), "no presentation is left to run");
    if options.shaped.is_some() {
        shaped::print_verdicts(&compared);
    }
    print::counted(&compared);
    println!("\npytest's own reports: {}", shown(&runner.pytest.reports));
    judge(options, &compared)
}

fn judge(options: &Options, compared: &[Compared]) -> Result<()> {
    let sum = |count: fn(&Compared) -> usize| compared.iter().map(count).sum::<usize>();
    if options.shaped.is_some() {
        let failed = sum(Compared::direct_failures);
        ensure!(failed == 0, "{failed} tests failed without the proxy, and show nothing");
    }
    let unexpected = sum(|one| one.unexpected.len());
    ensure!(unexpected == 0, "{unexpected} differences are not in expected.toml");
    let stale = sum(|one| one.stale.len());
    ensure!(stale == 0, "{stale} differences of expected.toml do not happen");
    let broken = sum(|one| one.broken.len());
    ensure!(
        broken == 0,
        "the layout of a shaped collection was violated {broken} times"
    );
    let logged = sum(|one| one.logged.len());
    ensure!(logged == 0, "the proxy logged {logged} warnings or errors");
    Ok(())
}

fn shown(path: &std::path::Path) -> String {
    path.strip_prefix(paths::workspace())
        .unwrap_or(path)
        .display()
        .to_string()
}
