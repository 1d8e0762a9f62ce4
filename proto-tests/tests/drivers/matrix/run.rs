//! Runs cells: for each kind of upstream, each driver without the proxy and then through each presentation.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use proto_tests::replies::without_uuids;
use tempfile::TempDir;

use super::cell::{Cell, Face, Security, Upstream, Variant};
use super::program::{Driver, Program};
use super::servers::Servers;
use super::table;

/// A program takes five seconds.
const LIMIT: Duration = Duration::from_mins(2);

/// Any compressor leaves more than this of what the script sends.
const COMPRESSED: i64 = 10_000;

/// What became of a cell.
pub(super) struct Outcome {
    pub(super) cell: Cell,
    /// What differs; empty if nothing does.
    pub(super) difference: String,
    /// How long the program ran through the proxy.
    pub(super) took: Duration,
}

impl Outcome {
    pub(super) fn is_equal(&self) -> bool {
        self.difference.is_empty()
    }
}

/// Runs all cells. The servers of each kind serve all cells of that kind, one after the other, as a fail
/// point that the script sets is the only one of its server.
pub(super) fn all(cells: &[Cell]) -> Result<Vec<Outcome>> {
    let mut programs = Vec::new();
    for driver in Driver::ALL {
        if cells.iter().any(|cell| cell.driver == driver) {
            programs.push((driver, driver.install()?));
        }
    }
    let mut outcomes = Vec::new();
    for upstream in Upstream::ALL {
        for security in Security::ALL {
            let alike = |cell: &&Cell| cell.upstream == upstream && cell.variant.security() == security;
            let cells: Vec<_> = cells.iter().filter(alike).copied().collect();
            if !cells.is_empty() {
                outcomes.extend(of_servers(&cells, &programs)?);
            }
        }
    }
    Ok(outcomes)
}

/// All cells of one kind of servers.
fn of_servers(cells: &[Cell], programs: &[(Driver, Program)]) -> Result<Vec<Outcome>> {
    let first = cells.first().context("some cells")?;
    let mut faces: Vec<Face> = cells.iter().map(|cell| cell.face).collect();
    faces.dedup();
    let servers = Servers::start(first.upstream, first.variant.security(), &faces)?;
    let mut outcomes = Vec::new();
    for (driver, program) in programs {
        let mut direct: Vec<(Variant, String)> = Vec::new();
        for cell in cells.iter().filter(|cell| cell.driver == *driver) {
            if !direct.iter().any(|(variant, _)| *variant == cell.variant) {
                let seen = compressed_transcript(&servers, *cell, program, &servers.direct(cell.variant))
                    .with_context(|| format!("{} without the proxy, {cell}", driver.name()))?;
                direct.push((cell.variant, seen));
            }
            let (_, expected) = direct
                .iter()
                .find(|(variant, _)| *variant == cell.variant)
                .context("the transcript of the direct run")?;
            let begun = Instant::now();
            let uri = servers.through(cell.face, cell.variant)?;
            let seen = compressed_transcript(&servers, *cell, program, &uri);
            let took = begun.elapsed();
            let difference = match seen {
                Ok(seen) => table::difference(expected, &seen),
                Err(error) => format!("{error:#}"),
            };
            let outcome = Outcome {
                cell: *cell,
                difference,
                took,
            };
            writeln!(std::io::stdout(), "{}", table::line(&outcome))?;
            outcomes.push(outcome);
        }
    }
    Ok(outcomes)
}

/// The output of the driver. With compression configured, its messages must reach mongod compressed. (The
/// members of a replica set use snappy between each other.)
fn compressed_transcript(servers: &Servers, cell: Cell, program: &Program, uri: &str) -> Result<String> {
    let compressor = cell.variant.compressor();
    let received = || compressor.map_or(Ok(0), |compressor| servers.received(compressor));
    let before = received()?;
    let seen = transcript(program, uri, cell.driver)?;
    let grown = received()? - before;
    ensure!(
        compressor.is_none() || grown > COMPRESSED,
        "mongod got {grown} compressed bytes, which is too few"
    );
    Ok(seen)
}

/// What the program prints on this connection string, with quotes as in the texts that it prints as JSON. From 7.0
/// on, the error of a `create` contains the collection's UUID, which is left out.
fn transcript(program: &Program, uri: &str, driver: Driver) -> Result<String> {
    let folder = TempDir::with_prefix("mongoshape-driver-")?;
    let [output, errors] = ["output", "errors"].map(|name| folder.path().join(name));
    let mut command = program.command(uri, &format!("matrix_{}", driver.name()));
    command.stdin(std::process::Stdio::null());
    command.stdout(File::create(&output)?).stderr(File::create(&errors)?);
    let ended = finish(&mut command);
    let printed = std::fs::read_to_string(&output)?;
    if let Err(error) = ended {
        let stderr = std::fs::read_to_string(&errors)?;
        let last = printed
            .lines()
            .last()
            .map_or("nothing", |line| line.split(' ').next().unwrap_or(line));
        let tail: Vec<_> = stderr.lines().rev().take(12).collect();
        let tail: Vec<_> = tail.into_iter().rev().collect();
        bail!(
            "{error:#}; its last line begins with {last:?}; its stderr:\n{}",
            tail.join("\n")
        );
    }
    Ok(without_uuids(&printed.replace(r#"\""#, "\"")))
}

/// Waits for the program's end, and ends it when that takes too long.
fn finish(command: &mut Command) -> Result<()> {
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "the program ended with {status}");
            return Ok(());
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("the program still ran after {LIMIT:?}");
        }
        thread::sleep(Duration::from_millis(20));
    }
}
