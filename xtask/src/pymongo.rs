//! `pymongo`: `PyMongo`'s own test suite, run directly and through the proxy without shapes, and compared test by test.
//!
//! Each run has servers of its own, one run after the other. A test on which two runs do not agree, and which the list of
//! [`expected`] differences does not have, is run again alone both ways: only one that differs again is a difference.

mod compare;
mod expected;
mod outcome;
mod presentation;
mod print;
mod pytest;
mod suite;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;
use proto_tests::proxy::Line;
use proto_tests::{Level, paths};

use compare::{Difference, compare};
use expected::Expected;
use outcome::Outcomes;
use presentation::{Presentation, Topology, Way};
use pytest::Pytest;
use suite::Suite;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Runs only these modules of the suite, such as `test_cursor`; also ones that are not run by default
    #[arg(long, value_name = "MODULE", num_args = 1..)]
    only: Vec<String>,
    /// Runs it on a standalone; without this and --replica-set, on both
    #[arg(long)]
    standalone: bool,
    /// Runs it on a replica set
    #[arg(long)]
    replica_set: bool,
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

impl Options {
    fn presentations(&self, topology: Topology) -> Vec<Presentation> {
        let wanted = match topology {
            Topology::Standalone => self.standalone || !self.replica_set,
            Topology::ReplicaSet => self.replica_set || !self.standalone,
        };
        let is_chosen = |presentation: &Presentation| {
            wanted
                && presentation.topology() == topology
                && (self.present_as.is_empty() || self.present_as.contains(presentation))
        };
        Presentation::ALL.into_iter().filter(is_chosen).collect()
    }
}

/// Past so many differences something is broken, and to run each again would take an hour to say so.
const REPEATED_AT_MOST: usize = 60;

/// What came of one presentation.
struct Compared {
    presentation: Presentation,
    direct: Outcomes,
    proxied: Outcomes,
    /// Each with the number of its entry in the list.
    expected: Vec<(usize, Difference)>,
    unexpected: Vec<Difference>,
    /// Differed in the whole run, and not when repeated alone.
    passing: Vec<Difference>,
    /// What the proxy logged as WARN or ERROR.
    logged: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let list = expected::list()?;
    let suite = Suite::fetched()?;
    let files = suite.files(&options.only, options.asynchronous)?;
    let reports = suite.folder.join("reports");
    fs::create_dir_all(&reports)?;
    let pytest = Pytest {
        suite,
        compressors: options.compressors.clone(),
        reports,
    };
    let runner = Runner { options, pytest, files };
    let mut compared = Vec::new();
    for topology in Topology::ALL {
        compared.extend(runner.topology(topology, &list)?);
    }
    ensure!(!compared.is_empty(), "no presentation is left to run");
    print::counted(&compared);
    println!("\npytest's own reports: {}", shown(&runner.pytest.reports));
    let unexpected: usize = compared.iter().map(|compared| compared.unexpected.len()).sum();
    ensure!(unexpected == 0, "{unexpected} differences are not in expected.toml");
    let logged: usize = compared.iter().map(|compared| compared.logged.len()).sum();
    ensure!(logged == 0, "the proxy logged {logged} warnings or errors");
    Ok(())
}

fn shown(path: &std::path::Path) -> String {
    path.strip_prefix(paths::workspace())
        .unwrap_or(path)
        .display()
        .to_string()
}

struct Runner<'a> {
    options: &'a Options,
    pytest: Pytest,
    files: Vec<String>,
}

impl Runner<'_> {
    /// One direct run, which is compared with a run of each presentation.
    fn topology(&self, topology: Topology, list: &[Expected]) -> Result<Vec<Compared>> {
        let presentations = self.options.presentations(topology);
        if presentations.is_empty() {
            return Ok(Vec::new());
        }
        let direct = self.whole(&format!("{} direct", topology.name()), &self.direct(topology)?)?;
        let compare = |presentation| self.presentation(presentation, &direct, list);
        presentations.into_iter().map(compare).collect()
    }

    fn presentation(&self, presentation: Presentation, direct: &Outcomes, list: &[Expected]) -> Result<Compared> {
        let way = self.proxied(presentation)?;
        let name = format!("{} as {}", presentation.topology().name(), presentation.name());
        let proxied = self.whole(&name, &way)?;
        let mut logged = warnings(&way);
        drop(way);

        let entry = |difference: &Difference| {
            list.iter()
                .position(|entry| entry.is_for(presentation) && entry.matches(difference))
        };
        let (mut expected, mut unlisted) = (Vec::new(), Vec::new());
        for difference in compare(direct, &proxied) {
            match entry(&difference) {
                Some(entry) => expected.push((entry, difference)),
                None => unlisted.push(difference),
            }
        }
        let (mut unexpected, mut passing) = (unlisted, Vec::new());
        if !unexpected.is_empty() && unexpected.len() <= REPEATED_AT_MOST {
            (unexpected, passing) = self.repeat(presentation, unexpected, &mut logged)?;
        }
        let compared = Compared {
            presentation,
            direct: direct.clone(),
            proxied,
            expected,
            unexpected,
            passing,
            logged,
        };
        print::differences(&compared, list);
        Ok(compared)
    }

    /// Runs each alone, both ways: those that differ again, and those that do not.
    fn repeat(
        &self,
        presentation: Presentation,
        differences: Vec<Difference>,
        logged: &mut Vec<String>,
    ) -> Result<(Vec<Difference>, Vec<Difference>)> {
        println!("  {} tests differ and are repeated, each alone", differences.len());
        let direct = self.direct(presentation.topology())?;
        let proxied = self.proxied(presentation)?;
        let (mut again, mut passing) = (Vec::new(), Vec::new());
        for (number, difference) in differences.into_iter().enumerate() {
            let test = [difference.test.clone()];
            let name = format!("{} {number}", presentation.name());
            let direct = self.pytest.run(&format!("{name} direct"), direct.address(), &test)?;
            let proxied = self.pytest.run(&name, proxied.address(), &test)?;
            match compare(&direct, &proxied).pop() {
                Some(repeated) => again.push(repeated),
                None => passing.push(difference),
            }
        }
        logged.extend(warnings(&proxied));
        Ok((again, passing))
    }

    fn whole(&self, name: &str, way: &Way) -> Result<Outcomes> {
        let started = Instant::now();
        let outcomes = self.pytest.run(name, way.address(), &self.files)?;
        println!(
            "{name}: {} in {} s",
            print::counts(&outcomes),
            started.elapsed().as_secs()
        );
        Ok(outcomes)
    }

    fn direct(&self, topology: Topology) -> Result<Way> {
        Way::direct(topology, self.options.members.into())
    }

    fn proxied(&self, presentation: Presentation) -> Result<Way> {
        Way::proxied(presentation, self.options.members.into(), self.options.binary.as_ref())
    }
}

/// What fail points make the proxy say: they close connections.
const PROVOKED: &str = "closed a connection: the upstream is gone";

/// What else the proxy logged so far as WARN or ERROR: reported by us, so that its end does not.
fn warnings(way: &Way) -> Vec<String> {
    let Some(proxy) = &way.proxy else {
        return Vec::new();
    };
    for level in [Level::Warn, Level::Error] {
        proxy.expect_log(level, "");
    }
    let is_told = |line: &Line| line.level != Level::Info && !line.text.contains(PROVOKED);
    let graver = proxy.log().into_iter().filter(is_told);
    graver.map(|line| line.text).collect()
}
