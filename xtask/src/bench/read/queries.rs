//! The queries of a part, sent to every variant in turn.

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
use crate::bench::table::{Quantity, Row, print_group, print_heading};

/// The result of one query on one variant.
enum QueryResult {
    /// The reply is correct, and has so many documents: the query can be repeated.
    Equal(Reader, usize),
    /// And the reason.
    NotMeasured(String),
}

/// Sends these queries, and prints a group of lines for each. Returns the medians of the page queries, by
/// variant.
pub(super) fn run(queries: &[ReadQuery], loaded: &mut Loaded, options: &Options) -> Result<Vec<Series>> {
    let Loaded {
        places,
        data,
        differences,
    } = loaded;
    let variants: Vec<_> = places.iter().map(|place| place.variant.clone()).collect();
    print_heading("read", &["ops/s", "p50", "p99"], &variants);
    let mut series: Vec<_> = variants.iter().map(|variant| Series::new(variant.name)).collect();
    for query in queries.iter().filter(|query| query.has_answer(data)) {
        let mut results = send_to_all(*query, places, data, differences)?;
        let measured = measure(places, &mut results, options)?;
        for (series, rounds) in series.iter_mut().zip(&measured) {
            if let (ReadQuery::Page(number, _), false) = (query, rounds.is_empty()) {
                series.points.push((*number, Figures::median(rounds).p50_us));
            }
        }
        let rows = places.iter().zip(&results).zip(&measured);
        let rows: Vec<_> = rows
            .map(|((place, result), rounds)| row(place, result, rounds))
            .collect();
        print_group(&query.label(), &rows, Quantity::Time);
        std::io::stdout().flush()?;
    }
    Ok(series)
}

/// Sends the query to every variant once, and compares the replies.
fn send_to_all(
    query: ReadQuery,
    places: &[Place],
    data: &Data,
    differences: &mut Vec<String>,
) -> Result<Vec<QueryResult>> {
    let mut expected = None;
    let mut all = Vec::new();
    for place in places {
        let variant = &place.variant;
        let Some(command) = query.command(variant.model, variant.collection, data) else {
            all.push(QueryResult::NotMeasured("has no index for it".to_owned()));
            continue;
        };
        let mut reader = Reader::open(place, command)?;
        let answer = Answer::get(&mut reader, query, variant.model, data);
        let (answer, documents) = answer.with_context(|| format!("{}: {}", query.label(), variant.name))?;
        all.push(match &answer {
            Answer::Refused(message) => QueryResult::NotMeasured(format!("error: {message}")),
            Answer::Number(_) | Answer::Items(_) => match answer.check(expected.as_ref().unwrap_or(&answer)) {
                Ok(()) => QueryResult::Equal(reader, documents),
                Err(difference) => {
                    differences.push(format!("{}: {}: {difference:#}", query.label(), variant.name));
                    QueryResult::NotMeasured(format!("differs: {difference:#}"))
                }
            },
        });
        // The plain collection's, which is the first.
        expected.get_or_insert(answer);
    }
    Ok(all)
}

/// The figures of each variant's rounds; none for a variant that is not measured.
fn measure(places: &[Place], results: &mut [QueryResult], options: &Options) -> Result<Vec<Vec<Figures>>> {
    let mut measured = vec![Vec::new(); places.len()];
    for round in 0..options.rounds {
        // Each round starts with another variant, since each variant affects the next one.
        for turn in 0..places.len() {
            let at = (round + turn) % places.len();
            if let QueryResult::Equal(reader, documents) = &mut results[at] {
                let figures = repeat(reader, *documents, Duration::from_millis(options.turn_ms));
                measured[at].push(figures.with_context(|| places[at].variant.name)?);
            }
        }
    }
    Ok(measured)
}

/// Repeats the query for so long. The first execution finds the caches of the other variants. It counts only
/// if there is no second one.
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

fn row(place: &Place, result: &QueryResult, rounds: &[Figures]) -> Row {
    match result {
        QueryResult::NotMeasured(why) => Row::note(&place.variant, why.clone()),
        QueryResult::Equal(..) => {
            let Figures {
                per_second,
                p50_us,
                p99_us,
            } = Figures::median(rounds);
            let costs = rounds.iter().map(|figures| figures.p50_us).collect();
            Row::of(&place.variant, vec![per_second, p50_us, p99_us], costs)
        }
    }
}
