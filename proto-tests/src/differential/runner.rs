//! Runs the seeds, and prints how to repeat one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bson::doc;

use super::conversions::Conversions;
use super::coverage::Coverage;
use super::deployment::{Deployment, Topology};
use super::moving_ranges::{MovingRanges, RangeMoves, RangesMove};
use super::operation::{Family, Operation, Outcome, WRITING};
use super::sides::{ANOTHER, COLLECTION};
use super::{Generator, Sides, command_names, contents, plain};
use crate::cluster::Cluster;
use crate::{Mongod, Outlier, Proxy, ProxyOptions, Shape, invariants};

/// Operations between two looks at the whole contents and the layout.
const STEPS_BETWEEN_CHECKS: u32 = 10;
/// Takes the place of the seeds.
const SEED: &str = "MONGOSHAPE_SEED";
/// Takes the place of the number of operations.
const OPERATIONS: &str = "MONGOSHAPE_OPERATIONS";

/// How much is run: `full` takes all seeds, `collect` does too and lists all disagreements.
const MEASURE: &str = "MONGOSHAPE_DIFFERENTIAL";
/// What a read may be answered by, as the metrics name it.
const ACCESS_PATHS: [&str; 4] = ["page", "index", "stream", "pipeline"];

/// What to run.
#[derive(Debug, Clone)]
pub struct Run {
    /// The shape under test. In the outlier pattern it only names the fields of the documents.
    pub shape: Shape,
    /// The shape under test, if it is one of the outlier pattern.
    pub outlier: Option<Outlier>,
    /// The seeds, unless the environment names one.
    pub seeds: Vec<u64>,
    /// Operations a seed, unless the environment sets their number.
    pub operations: u32,
    /// Whether documents may move to another key, which takes a replica set.
    pub moves: bool,
    /// What is done.
    pub families: &'static [Family],
    /// The productions of earlier runs, which need not be used again.
    pub coverage: Coverage,
}

/// What was run.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// How many operations of each family came out how.
    pub outcomes: BTreeMap<(&'static str, &'static str), u32>,
    /// The number of refused operations, or parts of them, by reason.
    pub refusals: BTreeMap<String, u32>,
    /// Documents in the collections at the end, over all seeds.
    pub documents: usize,
    /// How long it took.
    pub elapsed: Duration,
    /// Which productions were taken.
    pub coverage: Coverage,
    /// How many reads were answered by which access path.
    pub access_paths: BTreeMap<&'static str, f64>,
    /// The disagreements, where they are collected.
    pub disagreements: Vec<String>,
}

impl Report {
    /// All operations.
    #[must_use]
    pub fn operations(&self) -> u32 {
        self.outcomes.values().sum()
    }

    /// Those that came out so.
    #[must_use]
    pub fn of(&self, outcome: Outcome) -> u32 {
        let counts = self.outcomes.iter().filter(|((_, name), _)| *name == name_of(outcome));
        counts.map(|(_, count)| count).sum()
    }

    /// How many of a thousand writes the proxy refused, all of it or a part.
    #[must_use]
    pub fn refused_writes(&self) -> u32 {
        let writes = || self.outcomes.iter().filter(|((family, _), _)| WRITING.contains(family));
        let all: u32 = writes().map(|(_, count)| count).sum();
        let refused = writes().filter(|((_, outcome), _)| *outcome == name_of(Outcome::Refused));
        refused.map(|(_, count)| count * 1000).sum::<u32>() / all.max(1)
    }
}

impl Report {
    fn refused(&mut self, refusals: BTreeMap<String, u32>) {
        for (kind, count) in refusals {
            *self.refusals.entry(kind).or_default() += count;
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let per_second = f64::from(self.operations()) / self.elapsed.as_secs_f64();
        write!(
            f,
            "{} operations ({per_second:.0} a second), {} documents:",
            self.operations(),
            self.documents
        )?;
        for ((family, outcome), count) in &self.outcomes {
            write!(f, " {family} {outcome} {count},")?;
        }
        write!(f, " {} of 1000 writes refused", self.refused_writes())?;
        for (path, count) in &self.access_paths {
            write!(f, "\n  reads answered by {path}: {count}")?;
        }
        for (kind, count) in &self.refusals {
            write!(f, "\n  refused, {kind}: {count}")?;
        }
        for (number, disagreement) in self.disagreements.iter().enumerate() {
            write!(f, "\n=== disagreement {}\n{disagreement}", number + 1)?;
        }
        Ok(())
    }
}

impl Run {
    /// Runs every seed against the servers and two proxies before them.
    ///
    /// # Errors
    /// The first disagreement, with the seed and step that repeat it.
    pub fn against(&self, servers: impl Into<Deployment>) -> Result<Report> {
        self.against_with(&servers.into(), Existing::default())
    }

    /// The same while the outlier collection is converted to plain documents and back, after each so many
    /// operations.
    ///
    /// # Errors
    /// As above, and that a conversion fails.
    pub fn against_converted(&self, mongod: &Mongod, every: u32) -> Result<Report> {
        let existing = Existing {
            conversions_every: Some(every),
            ..Existing::default()
        };
        self.against_with(&mongod.into(), existing)
    }

    /// The same where so many documents are there before, plain ones, and are packed.
    ///
    /// # Errors
    /// As above, and that they are not packed.
    pub fn against_packed(&self, mongod: &Mongod, documents: u32) -> Result<Report> {
        let existing = Existing {
            packed: documents,
            ..Existing::default()
        };
        self.against_with(&mongod.into(), existing)
    }

    /// The same on a cluster on which the shaped collection is sharded, and its ranges move.
    ///
    /// # Errors
    /// As above, and that a range cannot be moved.
    pub fn against_moving(&self, cluster: &Cluster, when: RangesMove) -> Result<Report> {
        let existing = Existing {
            ranges: Some(MovingRanges { cluster, when }),
            ..Existing::default()
        };
        self.against_with(&Deployment::sharded(cluster), existing)
    }

    fn against_with(&self, servers: &Deployment, existing: Existing<'_>) -> Result<Report> {
        let tables = [COLLECTION, ANOTHER].map(|collection| {
            let namespace = format!("*.{collection}");
            match &self.outlier {
                Some(outlier) => outlier.toml(&namespace),
                None => self.shape.toml(&namespace),
            }
        });
        // Nothing expires, and databases of earlier runs have other shapes.
        let options = ProxyOptions::new(&servers.uri)
            .config(&tables.join("\n"))
            .expire_every(3_600_000);
        let proxies = [Proxy::start(&options)?, Proxy::start(&options)?];
        let only: Option<u64> = from_environment(SEED)?;
        let operations = from_environment(OPERATIONS)?.unwrap_or(self.operations);
        let started = Instant::now();
        let mut report = Report {
            coverage: self.coverage.clone(),
            ..Report::default()
        };
        for seed in self.seeds.iter().copied() {
            if only.is_some_and(|only| only != seed) {
                self.generate_for(servers.topology, seed, &mut report.coverage);
                continue;
            }
            let again = || format!("to see it again: {SEED}={seed}, and this test's name");
            let mut sides = self.open(servers, &proxies, seed)?;
            let mut generator = self.generator(seed, std::mem::take(&mut report.coverage));
            servers.prepare(&mut generator)?;
            if existing.packed > 0 {
                plain::pack(&mut sides, &mut generator, &proxies[0], existing.packed).with_context(again)?;
            }
            let mut past = Past {
                seed,
                operations,
                number: 0,
                conversions: existing.conversions_every.map(|every| Conversions {
                    proxy: &proxies[0],
                    every,
                    is_joined: false,
                }),
                ranges: existing
                    .ranges
                    .map(|ranges| ranges.of_seed(&sides.stored.database, seed)),
            };
            while let Err(error) = self.go_on(&mut generator, &mut past, &mut sides, &mut report) {
                if !is_collecting() || existing.packed > 0 {
                    return Err(error);
                }
                report.disagreements.push(format!("{error:#}"));
                report.refused(std::mem::take(&mut sides.refusals));
                if check(&mut sides, &generator, &past).is_err() {
                    let stored = contents::of_plain(&mut sides).with_context(|| format!("behind {error:#}"))?;
                    sides = self.open(servers, &proxies, seed)?;
                    contents::store(&mut sides, &stored)?;
                }
            }
            if let Some(ranges) = past.ranges {
                ranges.end().with_context(again)?;
            }
            report.refused(sides.refusals);
            report.coverage = generator.coverage;
        }
        for path in ACCESS_PATHS {
            let series =
                |namespace: &str| format!("mongoshape_reads_total{{namespace=\"{namespace}\",strategy=\"{path}\"}}");
            let series = series(&format!("*.{COLLECTION}"));
            let answered = proxies.iter().map(|proxy| proxy.metric(&series)).sum();
            report.access_paths.insert(path, answered);
        }
        report.elapsed = started.elapsed();
        Ok(report)
    }

    /// Generates a seed's operations for a replica set without sending them.
    pub fn generate(&self, seed: u64, coverage: &mut Coverage) {
        self.generate_for(Topology::ReplicaSet, seed, coverage);
    }

    fn generate_for(&self, topology: Topology, seed: u64, coverage: &mut Coverage) {
        let mut generator = self.generator(seed, std::mem::take(coverage));
        generator.names_keys = topology == Topology::Sharded;
        for _ in 0..self.operations {
            self.next(&mut generator);
        }
        *coverage = generator.coverage;
    }

    fn next(&self, generator: &mut Generator) -> (&'static Family, Box<dyn Operation>) {
        let family = generator.pick_weighted(self.families, |family| family.weight);
        let operation = (family.generate)(generator);
        let commands = operation.commands();
        generator
            .coverage
            .add_names(commands.iter().flat_map(command_names::of));
        (family, operation)
    }

    fn open(&self, servers: &Deployment, proxies: &[Proxy], seed: u64) -> Result<Sides> {
        let mut sides = Sides::open(servers.clone(), proxies, &self.shape, seed)?;
        sides.outlier.clone_from(&self.outlier);
        if self.shape.is_clustered {
            sides.cluster()?;
        }
        if let Some(outlier) = &self.outlier {
            sides.begin(outlier)?;
        }
        if servers.topology == Topology::Sharded {
            sides.shard()?;
        }
        Ok(sides)
    }

    fn generator(&self, seed: u64, coverage: Coverage) -> Generator {
        let mut generator = Generator::new(seed, self.shape.clone(), coverage);
        generator.outlier.clone_from(&self.outlier);
        generator.moves = self.moves;
        generator.changes = self.moves;
        generator.has_indexes = self.shape.is_clustered;
        generator.has_sessions = self.families.iter().any(|family| family.needs_sessions);
        generator
    }

    /// Goes on with a seed from where it is, until both sides disagree.
    fn go_on(
        &self,
        generator: &mut Generator,
        past: &mut Past<'_>,
        sides: &mut Sides,
        report: &mut Report,
    ) -> Result<()> {
        while past.number < past.operations {
            past.number += 1;
            let (family, operation) = self.next(generator);
            let again = || {
                format!(
                    "to see it again: {SEED}={} {OPERATIONS}={}, and this test's name",
                    past.seed, past.number
                )
            };
            let outcome = operation
                .run(sides)
                .with_context(|| format!("{operation:?}"))
                .with_context(again)?;
            *report.outcomes.entry((family.name, name_of(outcome))).or_default() += 1;
            if let Some(ranges) = &mut past.ranges {
                ranges.after_operation(past.number).with_context(again)?;
            }
            if outcome == Outcome::Refused {
                // The plain side did not get the command. It would have created the collection for some of these
                // commands.
                sides.both(&doc! { "create": COLLECTION })?;
            }
            if is_collecting() || past.number.is_multiple_of(STEPS_BETWEEN_CHECKS) || past.number == past.operations {
                check(sides, generator, past)
                    .with_context(|| format!("after {operation:?}"))
                    .with_context(again)?;
            }
            if let Some(conversions) = &mut past.conversions {
                conversions
                    .convert_if_due(past.number, sides)
                    .with_context(|| format!("after {operation:?}"))?;
            }
        }
        contents::of_each_key(sides, generator)
            .with_context(|| format!("{SEED}={} {OPERATIONS}={}", past.seed, past.operations))?;
        report.documents += contents::all(sides, generator)?;
        Ok(())
    }
}

/// What there is before and beside the operations.
#[derive(Clone, Copy, Default)]
struct Existing<'a> {
    /// Plain documents that are packed before the first operation.
    packed: u32,
    /// Operations between two conversions.
    conversions_every: Option<u32>,
    /// Ranges that move.
    ranges: Option<MovingRanges<'a>>,
}

/// How far a seed has come.
struct Past<'a> {
    seed: u64,
    operations: u32,
    number: u32,
    conversions: Option<Conversions<'a>>,
    ranges: Option<RangeMoves<'a>>,
}

/// Whether disagreements are listed, instead of ending the run at the first.
#[must_use]
pub fn is_collecting() -> bool {
    std::env::var(MEASURE).is_ok_and(|measure| measure == "collect")
}

fn check(sides: &mut Sides, generator: &Generator, past: &Past<'_>) -> Result<()> {
    let (connection, database) = (sides.stored.routes.any(), &sides.stored.database);
    match &generator.outlier {
        Some(outlier) => {
            let conversions = past.conversions.as_ref();
            let stored = conversions.map_or_else(|| outlier.clone(), |conversions| conversions.stored(outlier));
            invariants::outlier::check(connection, database, COLLECTION, &stored)?;
        }
        None => invariants::check(connection, database, COLLECTION, &generator.shape)?,
    }
    contents::all(sides, generator).map(|_| ())
}

fn name_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Failed => "failed",
        Outcome::Refused => "refused",
    }
}

fn from_environment<T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    name: &str,
) -> Result<Option<T>> {
    match std::env::var(name) {
        Ok(text) => Ok(Some(text.parse().with_context(|| format!("{name}={text}"))?)),
        Err(_) => Ok(None),
    }
}
