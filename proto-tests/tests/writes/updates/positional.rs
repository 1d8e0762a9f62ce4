//! The positional operator: the element that matched the filter.

use anyhow::{Context as _, Result};
use bson::doc;
use proto_tests::ItemIds;

use crate::updates::sides::{self, ALL_IDS, COLLECTION};

#[test]
fn positional_operator_changes_the_element_matched_by_the_filter() -> Result<()> {
    for ids in ALL_IDS {
        let mut sides = sides::of(ids)?;
        let statements = [
            doc! { "q": { "u": 3, "lines.a": 7 }, "u": { "$set": { "lines.$.b": 20 } } },
            doc! { "q": { "u": 3, "lines.a": 3 }, "u": { "$set": { "lines.$.b": 21, "n": 5 }, "$inc": { "lines.$.a": 1 } } },
            doc! { "q": { "u": 4, "tags": "x" }, "u": { "$set": { "tags.$": "y" } } },
            doc! { "q": { "u": 4, "tags": { "$gte": 5 } }, "u": { "$unset": { "tags.$": 1 } } },
            doc! { "q": { "u": 5, "lines": { "$elemMatch": { "a": 7, "b": 2 } } }, "u": { "$set": { "lines.$": { "c": 1 } } } },
            doc! { "q": { "k": 1, "lines.a": 7 }, "u": { "$inc": { "lines.$.b": 1 } }, "multi": true },
            doc! { "q": { "u": 11 }, "u": { "$unset": { "lines.0.b": 1 } } },
            doc! { "q": { "u": 11, "lines.b": { "$exists": true } }, "u": { "$set": { "lines.$.b": 22 } } },
            doc! { "q": { "u": 12 }, "u": { "$set": { "lines.0.t": [], "lines.1.t": [1] } } },
            doc! { "q": { "u": 12, "lines.t": { "$exists": true } }, "u": { "$set": { "lines.$.b": 23 } } },
            doc! { "q": { "u": 12, "lines.c": { "$exists": 1 } }, "u": { "$set": { "lines.$.b": 24 } } },
            doc! { "q": { "u": 6 }, "u": { "$set": { "lines.$.b": 1 } } },
            // Of two mistakes the one that comes first in the order of paths.
            doc! { "q": { "u": 6 }, "u": { "$pop": { "lines.$": 1, "inner.other": 1 } } },
            doc! { "q": { "u": 6 }, "u": { "$pop": { "lines.$": 1, "name": 1 } } },
            doc! { "q": { "u": 6 }, "u": { "$pop": { "lines.$": 1, "k.a": 1 } } },
            doc! { "q": { "u": 6 }, "u": { "$set": { "lines.$": 1, "k": 5 } } },
            doc! { "q": { "u": 6 }, "u": { "$setOnInsert": { "lines.$": 1 } } },
            doc! { "q": { "u": 6 }, "u": { "$setOnInsert": { "lines.$": 1 } }, "multi": true },
            doc! { "q": { "u": 7, "lines.a": 700 }, "u": { "$set": { "lines.$.b": 1 } } },
            doc! { "q": { "u": 8, "name": "NAME 8", "tags": "X" }, "u": { "$set": { "tags.$": 1 } },
            "collation": { "locale": "en", "strength": 2 } },
        ];
        for statement in statements {
            let update = doc! { "update": COLLECTION, "updates": [&statement] };
            sides.alike(&update).with_context(|| format!("{ids:?}"))?;
            sides.check().with_context(|| format!("{ids:?}, after {statement}"))?;
        }
        if ids == ItemIds::Unique {
            let by_id = doc! { "update": COLLECTION, "updates": [
                { "q": { "_id": 9, "lines.a": 7 }, "u": { "$set": { "lines.$.b": 20 } } },
            ] };
            sides.alike(&by_id)?;
            let found = doc! { "findAndModify": COLLECTION, "query": { "u": 10, "tags": 10 }, "update": { "$set": { "tags.$": 0 } },
            "new": true };
            sides.alike(&found)?;
            sides.check()?;
        }
    }
    Ok(())
}
