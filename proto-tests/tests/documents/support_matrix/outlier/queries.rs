//! Filters, sorts and projections with the array.

use bson::{Bson, Document, doc};
use proto_tests::sides::COLLECTION;

use crate::support_matrix::probe::Of;

pub(super) fn filters() -> Of {
    let of = |filter: Document| doc! { "find": COLLECTION, "filter": filter, "sort": { "_id": 1 } };
    let tags = |condition: Document| of(doc! { "tags": condition });
    let expression = |expression: Document| of(doc! { "$expr": expression });
    Of::new("filters", doc! {})
        .sent("equality", of(doc! { "tags": 19 }))
        .sent("equality", of(doc! { "tags": (0..20).collect::<Vec<i32>>() }))
        .sent("equality", of(doc! { "tags": [0, 1, 2, 3, 4] }))
        .sent("equality", of(doc! { "tags": Bson::Null }))
        .sent("equality", of(doc! { "tags": { "x": 11, "y": 2, "z": "Ab" }, "n": 5 }))
        .sent("$eq", tags(doc! { "$eq": 19 }))
        .sent("$in", tags(doc! { "$in": [18, "w9"] }))
        .sent("$all", tags(doc! { "$all": [0, 19] }))
        .sent(
            "$all",
            tags(doc! { "$all": [{ "$elemMatch": { "x": 11 } }, { "$elemMatch": { "x": 0 } }] }),
        )
        .sent("$size", tags(doc! { "$size": 20 }))
        .sent("$size", tags(doc! { "$size": 5 }))
        .sent("$elemMatch", tags(doc! { "$elemMatch": { "$gt": 17, "$lt": 19 } }))
        .sent("$elemMatch", tags(doc! { "$elemMatch": { "x": 11, "y": 2 } }))
        .sent("$ne", tags(doc! { "$ne": 19 }))
        .sent("$nin", tags(doc! { "$nin": [19, 1] }))
        .sent("$not", tags(doc! { "$not": { "$gt": 18 } }))
        .sent("$gt", tags(doc! { "$gt": 18 }))
        .sent("$gte", tags(doc! { "$gte": 19 }))
        .sent("$lt", tags(doc! { "$lt": 0 }))
        .sent("$lte", tags(doc! { "$lte": 0 }))
        .sent("$exists", tags(doc! { "$exists": true }))
        .sent("$exists", of(doc! { "tags.12": { "$exists": true } }))
        .sent("$exists", of(doc! { "tags.12": { "$exists": false } }))
        .sent("$type", tags(doc! { "$type": "string" }))
        .sent("$regex", tags(doc! { "$regex": "^w1$" }))
        .sent("$mod", tags(doc! { "$mod": [19, 0] }))
        .sent("$bitsAllSet", tags(doc! { "$bitsAllSet": 19 }))
        .sent("dotted", of(doc! { "tags.x": 11 }))
        .sent("dotted", of(doc! { "tags.x": { "$gt": 10 } }))
        .sent("indexed", of(doc! { "tags.15": 15 }))
        .sent("indexed", of(doc! { "tags.11.x": 11 }))
        .sent("$and", of(doc! { "$and": [{ "tags": 0 }, { "tags": 19 }] }))
        .sent("$or", of(doc! { "$or": [{ "tags": 19 }, { "n": 4 }] }))
        .sent("$nor", of(doc! { "$nor": [{ "tags": 19 }, { "n": 4 }] }))
        .sent(
            "$expr",
            expression(doc! { "$in": [19, { "$cond": [{ "$isArray": "$tags" }, "$tags", []] }] }),
        )
        .sent("$expr", expression(doc! { "$eq": ["$$ROOT.n", 2] }))
        .sent(
            "$jsonSchema",
            of(doc! { "$jsonSchema": { "properties": { "tags": { "bsonType": "array", "minItems": 14 } } } }),
        )
        .sent("$comment", of(doc! { "tags": 19, "$comment": "c" }))
        .sent("$near", of(doc! { "loc": { "$nearSphere": [2, 2] } }).with_out_sort())
        .but(
            "$near",
            of(doc! { "loc": { "$near": [2, 2] }, "tags": 19 }).with_out_sort(),
        )
        .sent(
            "$geoWithin",
            of(doc! { "loc": { "$geoWithin": { "$centerSphere": [[2, 2], 0.01] } }, "tags": 19 }),
        )
        .sent("$text", of(doc! { "$text": { "$search": "x" } }))
        .sent("$where", of(doc! { "$where": "this.n == 2" }))
        .sent("has_extras", of(doc! { "has_extras": { "$ne": true }, "n": 1 }))
        .but("has_extras", of(doc! { "has_extras": { "$ne": true }, "tags": 19 }))
}

trait WithOutSort {
    fn with_out_sort(self) -> Document;
}

impl WithOutSort for Document {
    /// What is near comes in an order of its own.
    fn with_out_sort(mut self) -> Document {
        self.remove("sort");
        self
    }
}

pub(super) fn sorts() -> Of {
    let of = |sort: Document| doc! { "find": COLLECTION, "sort": sort };
    Of::new("sorts", doc! {})
        .sent("array", of(doc! { "tags": 1, "_id": 1 }))
        .sent("array", of(doc! { "tags": -1, "_id": 1 }))
        .sent("dotted", of(doc! { "tags.x": -1, "_id": 1 }))
        .sent("indexed", of(doc! { "tags.12": 1, "_id": 1 }))
        .sent("$natural", of(doc! { "$natural": -1 }))
        .sent("$natural", doc! { "find": COLLECTION, "filter": { "tags": 0 }, "sort": { "$natural": -1 } })
        .but("$natural", doc! { "find": COLLECTION, "filter": { "tags": 0 }, "sort": { "$natural": -1 }, "hint": { "$natural": -1 } })
}

pub(super) fn projections() -> Of {
    let of = |projection: Document| doc! { "find": COLLECTION, "filter": { "_id": { "$lt": 7 } }, "sort": { "_id": 1 }, "projection": projection };
    let beside = |filter: Document, projection: Document| doc! { "find": COLLECTION, "filter": filter, "sort": { "_id": 1 }, "projection": projection };
    Of::new("projections", doc! {})
        .sent("inclusion", of(doc! { "tags": 1 }))
        .sent("inclusion", of(doc! { "tags": 1, "_id": 0 }))
        .sent("inclusion", of(doc! { "n": 1 }))
        .sent("inclusion", of(doc! { "tags": 1, "n": true }))
        .sent("exclusion", of(doc! { "tags": 0 }))
        .sent("exclusion", of(doc! { "n": 0 }))
        .sent("exclusion", of(doc! { "_id": 0 }))
        .sent("dotted", of(doc! { "tags.x": 1 }))
        .sent("dotted", of(doc! { "tags.x": 0 }))
        .sent(
            "expression",
            of(doc! { "many": { "$size": { "$ifNull": ["$tags", []] } } }),
        )
        .sent(
            "expression",
            of(doc! { "last": { "$arrayElemAt": [{ "$ifNull": ["$tags", []] }, -1] } }),
        )
        .sent("expression", of(doc! { "all": "$$ROOT" }))
        .sent("$slice", of(doc! { "tags": { "$slice": 7 } }))
        .sent("$slice", of(doc! { "tags": { "$slice": -3 } }))
        .sent("$slice", of(doc! { "tags": { "$slice": [4, 4] } }))
        .sent("$elemMatch", of(doc! { "tags": { "$elemMatch": { "x": 11 } } }))
        .sent(
            "$elemMatch",
            of(doc! { "tags": { "$elemMatch": { "x": 11 } }, "_id": 0 }),
        )
        .sent("$elemMatch", of(doc! { "tags": { "$elemMatch": { "$gt": 17 } } }))
        .sent(
            "positional",
            beside(doc! { "tags": 19, "_id": 2 }, doc! { "tags.$": 1 }),
        )
        .sent(
            "positional",
            beside(doc! { "tags": { "$elemMatch": { "x": 11 } } }, doc! { "tags.$": 1 }),
        )
        .but(
            "positional",
            beside(doc! { "tags": { "$gt": 17 }, "tags.0": 0 }, doc! { "tags.$": 1 }),
        )
        .but(
            "$meta",
            beside(doc! { "tags": 19 }, doc! { "k": { "$meta": "sortKey" } }),
        )
        .sent("$meta", of(doc! { "n": 1, "k": { "$meta": "recordId" } }))
        .sent("has_extras", of(doc! { "has_extras": 1, "n": 1 }))
        .sent("has_extras", of(doc! { "has_extras": 0 }))
        .but("has_extras", of(doc! { "has_extras_control": 0 }))
        .but("has_extras", of(doc! { "x": "$has_extras" }))
        .sent("has_extras", of(doc! { "has_extras": 1, "tags": 1 }))
}
