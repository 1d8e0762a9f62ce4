//! Collections with `reads = "base"`, beside a plain collection that has the expected documents.

use anyhow::Result;
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sides::{COLLECTION, Pattern, Sides};
use proto_tests::{Outlier, Reads};

use super::{SIZES, documents, fill, fill_others};
use crate::support_matrix::probe::{Compared, Of};
use crate::support_matrix::tried::{self, Expected, Tried};

/// The shape.
struct Base(Outlier);

impl Pattern for Base {
    fn table(&self, namespace: &str) -> String {
        self.0.table(namespace)
    }

    fn has_ids(&self) -> bool {
        true
    }

    fn check(&self, mongod: &mut Connection, database: &str, collection: &str) -> Result<()> {
        self.0.check(mongod, database, collection)
    }
}

impl Tried for Base {
    const DOCUMENT: &'static str = Outlier::DOCUMENT;
    const TELLS_ERRORS: bool = true;

    fn renew(sides: &mut Sides<Self>, sent: &Document, _: Expected) -> Result<()> {
        if sent.contains_key("updates") {
            sides.check_layout()?;
            fill(sides, true, &seen())?;
        }
        Ok(())
    }
}

/// The documents as readers are to see them.
fn seen() -> Vec<Document> {
    let seen = |mut document: Document| {
        let tags = document.get_array_mut("tags").ok().filter(|tags| tags.len() > SIZES.0);
        if let Some(tags) = tags {
            tags.truncate(SIZES.0);
            document.insert("has_extras", true);
        }
        document
    };
    documents().into_iter().map(seen).collect()
}

pub(super) fn all() -> Of {
    let find = |filter: Document| doc! { "find": COLLECTION, "filter": filter, "sort": { "_id": 1 } };
    let pipeline = |stages: Vec<Document>| doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {} };
    Of::new("reads = \"base\"", doc! {})
        .sent("find", find(doc! {}))
        .sent("find", find(doc! { "has_extras": true }))
        .sent("find", find(doc! { "tags": 19 }))
        .sent("find", find(doc! { "tags": 4, "has_extras": true }))
        .sent("count", doc! { "count": COLLECTION, "query": { "tags": 4 } })
        .sent("distinct", doc! { "distinct": COLLECTION, "key": "tags.x" })
        .sent("distinct", doc! { "distinct": COLLECTION, "key": "has_extras" })
        .sent("aggregate", pipeline(vec![doc! { "$match": { "n": 2 } }, doc! { "$project": { "n": 1 } }]))
        .but("aggregate", pipeline(vec![doc! { "$match": { "n": 2 } }]))
        .but("aggregate", pipeline(vec![doc! { "$unwind": "$tags" }]))
        .compared_by(
            "writes",
            doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 2, "tags": 4 }, "u": { "$push": { "tags": 1 } } }] },
            Compared::Success,
        )
}

#[test]
fn rows_behave_as_documented() -> Result<()> {
    let mut shape = Outlier::new("tags", SIZES);
    shape.reads = Reads::Base;
    let mut sides = Sides::open(Base(shape))?;
    fill_others(&mut sides)?;
    fill(&mut sides, false, &seen())?;
    tried::all(&mut sides, &all().probes)
}
