//! The queries of a part, sent on every way in turn.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::answer::Answer;
use super::data::Data;
use super::plot::Series;
use super::query::ReadQuery;
use super::reader::Reader;
use super::{Loaded, Options};
use crate::bench::load::{self, Figures};
use crate::bench::place::Place;
use crate::bench::table::{Row, print_group, print_heading};

/// The result of one query on one way.
enum Asked {
    /// Ready to ask again: each answer has so many documents.
    Right(Reader, usize),
    /// Why it is not measured.
    Not(String),
}

/// Sends these queries, and prints a group of lines for each. Returns the medians of the page queries, by
/// way.
pub(super) fn run(queries: &[ReadQuery], loaded: &mut Loaded, options: &Options) -> Result<Vec<Series>> {
    let Loaded {
        places,
        data,
        differences,
    } = loaded;
    let ways: Vec<_> = places.iter().map(|place| place.way.clone()).collect();
    print_heading("read", &["ops/s", "p50", "p99"], &ways);
    let mut series: Vec<_> = ways.iter().map(|way| Series::new(way.name)).collect();
    for query in queries.iter().filter(|query| query.has_answer(data)) {
        let mut asked = ask_all(*query, places, data, differences)?;
        let measured = measure(places, &mut asked, options)?;
        for (series, rounds) in series.iter_mut().zip(&measured) {
            if let (ReadQuery::Page(number, _), false) = (query, rounds.is_empty()) {
                series.points.push((*number, Figures::median(rounds).p50_us));
            }
        }
        let rows = places.iter().zip(&asked).zip(&measured);
        let rows: Vec<_> = rows.map(|((place, asked), rounds)| row(place, asked, rounds)).collect();
        print_group(&query.label(), &rows);
        std::io::stdout().flush()?;
    }
    Ok(series)
}

/// Asks every way once, and compares.
fn ask_all(query: ReadQuery, places: &[Place], data: &Data, differences: &mut Vec<String>) -> Result<Vec<Asked>> {
    let mut expected = None;
    let mut all = Vec::new();
    for place in places {
        let way = &place.way;
        let Some(command) = query.command(way.model, way.collection, data) else {
            all.push(Asked::Not("has no index for it".to_owned()));
            continue;
        };
        let mut reader = Reader::open(place, command)?;
        let answer = Answer::get(&mut reader, query, way.model, data);
        let (answer, documents) = answer.with_context(|| format!("{}: {}", query.label(), way.name))?;
        all.push(match &answer {
            Answer::Refused(message) => Asked::Not(format!("error: {message}")),
            Answer::Number(_) | Answer::Items(_) => match answer.check(expected.as_ref().unwrap_or(&answer)) {
                Ok(()) => Asked::Right(reader, documents),
                Err(difference) => {
                    differences.push(format!("{}: {}: {difference:#}", query.label(), way.name));
                    Asked::Not(format!("differs: {difference:#}"))
                }
            },
        });
        // The plain collection's, which is the first.
        expected.get_or_insert(answer);
    }
    Ok(all)
}

/// The figures of each way's rounds; none of one that is not measured.
fn measure(places: &[Place], asked: &mut [Asked], options: &Options) -> Result<Vec<Vec<Figures>>> {
    let mut measured = vec![Vec::new(); places.len()];
    for round in 0..options.rounds {
        // Each round starts with another way, since each way affects the next one.
        for turn in 0..places.len() {
            let at = (round + turn) % places.len();
            if let Asked::Right(reader, documents) = &mut asked[at] {
                let figures = repeat(reader, *documents, Duration::from_millis(options.turn_ms));
                measured[at].push(figures.with_context(|| places[at].way.name)?);
            }
        }
    }
    Ok(measured)
}

/// Asks again and again for so long. The first time, which finds what the others have left, counts where it
/// is the only one.
fn repeat(reader: &mut Reader, documents: usize, length: Duration) -> Result<Figures> {
    let started = Instant::now();
    let first = reader.time(documents)?;
    let mut taken = Vec::new();
    while started.elapsed() < length {
        taken.push(reader.time(documents)?);
    }
    if taken.is_empty() {
        taken.push(first);
    }
    taken.sort_unstable();
    Ok(load::figures(&taken, taken.iter().sum()))
}

fn row(place: &Place, asked: &Asked, rounds: &[Figures]) -> Row {
    match asked {
        Asked::Not(why) => Row::note(&place.way, why.clone()),
        Asked::Right(..) => {
            let Figures {
                per_second,
                p50_us,
                p99_us,
            } = Figures::median(rounds);
            let costs = rounds.iter().map(|figures| figures.p50_us).collect();
            Row::of(&place.way, vec![per_second, p50_us, p99_us], costs)
        }
    }
}
