//! The document that an upsert inserts if nothing matches: the one that mongod inserts is compared with the
//! one that `mongoshape::pattern::bucket::upsert` builds, byte by byte.

mod comparison;
mod random;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, Timestamp, doc};
use proto_tests::measure::fixed_seed;

use comparison::{Comparison, Outcome};
use random::RandomCases;

/// Cases of a test; `MONGOSHAPE_OPERATIONS` sets another number.
const CASES: u32 = 1500;

fn cases() -> u32 {
    let given = std::env::var("MONGOSHAPE_OPERATIONS")
        .ok()
        .and_then(|number| number.parse().ok());
    given.unwrap_or(CASES)
}

/// Runs cases from a seed, and gives how many of them there were of each outcome: inserted, refused alike,
/// not supported.
#[expect(
    clippy::print_stderr,
    reason = "the test's own output, which the test runner captures"
)]
fn at_random(case: fn(&mut RandomCases) -> (Document, Bson)) -> Result<[u32; 3]> {
    let seed = fixed_seed();
    let mut cases_of_seed = RandomCases::new(seed);
    let mut comparison = Comparison::open()?;
    let mut counts = [0; 3];
    for _ in 0..cases() {
        let (filter, change) = case(&mut cases_of_seed);
        let outcome = comparison
            .compare(&filter, &change)
            .with_context(|| format!("to see it again: MONGOSHAPE_SEED={seed}"))?;
        counts[match outcome {
            Outcome::Inserted => 0,
            Outcome::Refused(_) => 1,
            Outcome::Unsupported(_) => 2,
        }] += 1;
    }
    eprintln!("inserted, refused, not supported: {counts:?}");
    Ok(counts)
}

#[test]
fn common_upserts_are_built_as_mongod_builds_them() -> Result<()> {
    let [inserted, refused, unsupported] = at_random(RandomCases::common)?;
    ensure!(unsupported == 0, "{unsupported} are not supported");
    ensure!(refused == 0 && inserted == cases(), "{refused} are refused");
    Ok(())
}

#[test]
fn random_upsert_equals_mongods_or_is_refused() -> Result<()> {
    let [inserted, refused, unsupported] = at_random(RandomCases::any)?;
    ensure!(
        inserted > cases() / 3 && refused > cases() / 20,
        "{inserted} inserted, {refused} refused"
    );
    ensure!(unsupported < cases() / 3, "{unsupported} are not supported");
    Ok(())
}

#[test]
fn a_replacement_is_inserted_with_the_id_of_the_filter() -> Result<()> {
    let [inserted, refused, unsupported] = at_random(RandomCases::replacement)?;
    ensure!(
        inserted > cases() / 3 && refused > 0,
        "{inserted} inserted, {refused} refused"
    );
    ensure!(unsupported < cases() / 10, "{unsupported} are not supported");
    Ok(())
}

#[test]
fn pipeline_upsert_starts_from_the_filters_equalities() -> Result<()> {
    let [inserted, ..] = at_random(RandomCases::pipeline)?;
    ensure!(inserted > cases() / 3, "{inserted} inserted");
    Ok(())
}

/// Cases with a known outcome.
#[test]
fn upsert_rules_equal_mongods() -> Result<()> {
    let mut comparison = Comparison::open()?;
    let none = Timestamp { time: 0, increment: 0 };
    let inserted = [
        (
            doc! { "b": 1, "a": 2 },
            doc! { "$set": { "z": 1, "B": 2 }, "$inc": { "y": 1, "b": 5 } },
        ),
        (doc! { "b.c": 1, "a": 2, "b.a": 3 }, doc! { "$set": { "b.b": 1 } }),
        (
            doc! { "$and": [{ "a": 1 }, { "$or": [{ "b": { "$eq": 2 } }] }] },
            doc! { "$set": { "z": 1 } },
        ),
        (
            doc! { "a": { "$all": [1] }, "b": { "$in": [2, 2] } },
            doc! { "$setOnInsert": { "c": 1 } },
        ),
        (
            doc! { "a": { "$gt": 1, "$eq": 7 }, "b": { "$ne": 1 } },
            doc! { "$unset": { "a": 1 } },
        ),
        (doc! { "_id.x": 1, "_id.b": 2 }, doc! { "$set": { "a": 1 } }),
        (doc! { "a": [1] }, doc! { "$set": { "a.2.b": 1 } }),
        (doc! {}, doc! { "$set": { "10": 1, "2": 1, "x": 1, "Y": 2 } }),
        (doc! {}, doc! { "$set": { "a": 1, "_id": 5 } }),
        (doc! { "_id": 1, "a": 2 }, doc! { "b": 1, "t": none }),
        // An insert would fill this in.
        (doc! {}, doc! { "$set": { "a": none } }),
        (doc! { "_id": 1 }, doc! { "b": 1, "_id": 1.0 }),
        (doc! { "a": 2 }, doc! {}),
        (
            doc! { "a": { "b": 1 }, "c": 2 },
            doc! { "$rename": { "a.b": "c" }, "$set": { "bb": 1 } },
        ),
        (
            doc! {},
            doc! { "$push": { "a": { "$each": [{ "n": 2 }, { "n": 1 }], "$sort": { "n": 1 }, "$slice": -5 } } },
        ),
    ];
    for (filter, change) in inserted {
        let outcome = comparison.compare(&filter, &Bson::Document(change.clone()))?;
        ensure!(outcome == Outcome::Inserted, "{filter} {change}: {outcome:?}");
    }
    let refused = [
        (doc! { "a": 1, "a.b": 2 }, doc! { "$set": { "z": 1 } }, 54),
        (
            doc! { "$and": [{ "a": 1 }, { "a": 1 }] },
            doc! { "$set": { "z": 1 } },
            54,
        ),
        (doc! { "_id.x": 1 }, doc! { "z": 1 }, 111),
        (doc! { "_id": 1 }, doc! { "$set": { "_id": 1.0 } }, 66),
        (doc! { "_id": 1 }, doc! { "_id": 2 }, 66),
        (doc! { "_id": [1] }, doc! { "$set": { "a": 2 } }, 53),
        (doc! {}, doc! { "_id": [1] }, 54),
        (doc! {}, doc! { "$set": { "_id": { "$a": 1 } } }, 52),
        (doc! { "a": 1 }, doc! { "$set": { "a.b": 2 } }, 28),
        (doc! { "a": 1 }, doc! { "$push": { "a": 2 } }, 2),
        (doc! { "_id": 5, "a": "x" }, doc! { "$inc": { "a": 2 } }, 14),
        (doc! { "a": i64::MAX }, doc! { "$inc": { "a": 2 } }, 2),
        (doc! {}, doc! { "$set": { "a": 1 }, "$setOnInsert": { "a.b": 1 } }, 40),
        (doc! { "$expr": { "$eq": ["$a", 1] } }, doc! { "$set": { "a": 1 } }, 224),
    ];
    for (filter, change, code) in refused {
        let outcome = comparison.compare(&filter, &Bson::Document(change.clone()))?;
        ensure!(outcome == Outcome::Refused(code), "{filter} {change}: {outcome:?}");
    }
    Ok(())
}
