//! The converter, a proxy or mongod is killed at a random time, and clients send their writes again.
//!
//! `MONGOSHAPE_CRASHES=full` kills 50 times.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use proto_tests::measure::{is_full, seed};
use proto_tests::raw::Connection;
use proto_tests::{Mongod, crash};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::subject::{Ended, Subject};
use super::writers::{beside_writers, check_items};
use super::{Killed, to_another_shape, to_pages, to_plain};

/// Kills, unless all are made.
const FEW: usize = 3;
const ALL: usize = 50;
/// Clients that write.
const WRITERS: usize = 2;
/// Documents that are copied in a second, so that some kills happen meanwhile.
const RATE: [&str; 2] = ["--max-rate", "200"];
/// Runs after a kill, at most.
const MAX_RUNS: usize = 5;

/// A program that is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Converter,
    Proxy(usize),
    Mongod,
}

/// A kill of a program.
#[derive(Clone, Copy, Debug)]
struct RandomKill {
    victim: Victim,
    /// The time from the beginning of the run to the kill.
    after: Duration,
}

/// Kills a program during a conversion, and completes the conversion.
fn killed(kill: RandomKill, mongod: &mut Mongod, subject: &mut Subject, conversion: &Killed) -> Result<()> {
    let slowly = [conversion.options, &RATE].concat();
    let mut run = Some(subject.begin(&conversion.shape, &slowly, None)?);
    thread::sleep(kill.after);
    match kill.victim {
        Victim::Converter => drop(run.take()),
        Victim::Proxy(number) => {
            subject.proxies[number].kill()?;
            subject.proxies[number].restart()?;
        }
        Victim::Mongod => {
            mongod.kill(0)?;
            mongod.restart(0)?;
            subject.direct = Connection::open(mongod.address())?;
        }
    }
    let mut printed = Vec::new();
    for _ in 0..MAX_RUNS {
        let ended = match run.take() {
            Some(run) => run.end()?,
            None => subject
                .convert_until(&conversion.shape, conversion.go_on, None)?
                .context("it was killed")?,
        };
        let Ended { code, printed: of_run } = ended;
        if code == Some(0) {
            return Ok(());
        }
        printed.push(of_run);
    }
    bail!("no run succeeds: {printed:#?}")
}

#[test]
fn programs_are_killed_at_random_times() -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed());
    let mut mongod = Mongod::replica_set(1)?;
    let mut subject = Subject::start(&mongod)?;
    subject.proxies.iter().for_each(crash::expect_cuts);
    let conversions = [to_pages(), to_another_shape(), to_plain()];
    let mut longest = Vec::new();
    for conversion in &conversions {
        conversion.renew(&mut subject)?;
        let begun = Instant::now();
        subject.convert_well(&conversion.shape, &[conversion.options, &RATE].concat())?;
        longest.push(begun.elapsed());
    }
    let kills = if is_full("MONGOSHAPE_CRASHES") { ALL } else { FEW };
    for round in 0..kills {
        let victim = match round % 3 {
            0 => Victim::Converter,
            1 => Victim::Proxy(random.random_range(0..2)),
            _ => Victim::Mongod,
        };
        let place = random.random_range(0..conversions.len());
        let conversion = &conversions[place];
        let after = random.random_range(Duration::ZERO..longest[place]);
        let kill = RandomKill { victim, after };
        let what = || format!("round {round}: {kill:?}, to {:?}", conversion.to);
        conversion.renew(&mut subject)?;
        let writers = round * WRITERS..(round + 1) * WRITERS;
        let written = beside_writers(&mut subject, writers, |subject| {
            killed(kill, &mut mongod, subject, conversion)
        });
        check_items(&subject, written.with_context(what)?).with_context(what)?;
        subject.check_definitions().with_context(what)?;
        subject.check_layout(&conversion.to).with_context(what)?;
    }
    Ok(())
}
