//! Several `$match` stages at the beginning of a pipeline, as query builders send them.

use anyhow::{Result, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::sides::{COLLECTION, Sides};

use crate::proxies::small_pages;

fn at(second: i64) -> DateTime {
    DateTime::from_millis(second * 1000)
}

fn pipeline(filters: &[Document]) -> Document {
    let mut stages: Vec<Document> = filters.iter().map(|filter| doc! { "$match": filter }).collect();
    stages.push(doc! { "$group": { "_id": "$k", "n": { "$sum": "$n" } } });
    doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {} }
}

/// Only the first one selected pages.
#[test]
fn all_first_matches_select_pages() -> Result<()> {
    let mut sides = Sides::open(small_pages())?;
    let items: Vec<Document> = (0..120)
        .map(|n| doc! { "_id": n, "k": n % 4, "at": at(i64::from(n)), "n": n })
        .collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    let key = doc! { "k": 1 };
    let [since, until] = [doc! { "at": { "$gte": at(80) } }, doc! { "at": { "$lt": at(100) } }];
    let mut one = key.clone();
    one.extend(since.clone());
    // The first query of a key reads more: the proxy does not know how many pages it has.
    sides.pages_read(&pipeline(&[one.clone()]))?;
    let expected = sides.pages_read(&pipeline(&[one]))?;
    for filters in [[key.clone(), since.clone()], [since.clone(), key.clone()]] {
        let read = sides.pages_read(&pipeline(&filters))?;
        ensure!(read <= expected, "{filters:?}: {read} pages instead of {expected}");
    }
    sides.pages_read(&pipeline(&[key, since, until]))?;
    Ok(())
}
