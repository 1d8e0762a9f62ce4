//! A command for each row of the document.

use bson::{Bson, DateTime, Document, doc};
use proto_tests::sides::COLLECTION;

/// How much of two answers must be the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    /// All that is not a server's own.
    Whole,
    /// Whether it succeeds, or else the code: the note says what differs, or the words do.
    Success,
    /// All, where an `_id` is refused that is there; it is not tried where it is not.
    WholeIfUnique,
    /// Nothing: this is the part of an option that is refused.
    Refused,
}

/// A command that tries an option.
#[derive(Debug)]
pub(crate) struct Probe {
    pub command: &'static str,
    pub option: &'static str,
    pub sent: Document,
    pub compared: Compared,
}

/// Those of one command.
struct Of {
    command: &'static str,
    base: Document,
    compared: Compared,
    probes: Vec<Probe>,
}

impl Of {
    fn new(command: &'static str, base: Document) -> Self {
        Self {
            command,
            base,
            compared: Compared::Whole,
            probes: Vec::new(),
        }
    }

    fn compared(mut self, compared: Compared) -> Self {
        self.compared = compared;
        self
    }

    /// An option given this value.
    fn with(self, option: &'static str, value: impl Into<Bson>) -> Self {
        let mut sent = self.base.clone();
        sent.insert(option, value);
        self.sent(option, sent)
    }

    /// An option given beside others.
    fn beside(self, option: &'static str, others: Document) -> Self {
        let mut sent = self.base.clone();
        sent.extend(others);
        self.sent(option, sent)
    }

    fn sent(self, option: &'static str, sent: Document) -> Self {
        let compared = self.compared;
        self.told(option, sent, compared)
    }

    /// Of whose answers only the success or the code is the same.
    fn loosely(self, option: &'static str, others: Document) -> Self {
        let mut sent = self.base.clone();
        sent.extend(others);
        self.told(option, sent, Compared::Success)
    }

    /// A part of an option that is refused.
    fn but(self, option: &'static str, others: Document) -> Self {
        let mut sent = self.base.clone();
        sent.extend(others);
        self.told(option, sent, Compared::Refused)
    }

    fn told(mut self, option: &'static str, sent: Document, compared: Compared) -> Self {
        let command = self.command;
        self.probes.push(Probe {
            command,
            option,
            sent,
            compared,
        });
        self
    }
}

/// All of them, in an order in which they can be sent one after the other.
pub(crate) fn all() -> Vec<Probe> {
    let of = [
        every_command(),
        find(),
        count(),
        distinct(),
        aggregate(),
        stages(),
        insert(),
        update(),
        delete(),
        find_and_modify(),
        explain(),
        indexes(),
        list_indexes(),
        drop_indexes(),
        cursors(),
        kill_cursors(),
        collection(),
        coll_mod(),
        statistics(),
        data_size(),
        validate(),
        compact(),
        plan_cache(),
        list_collections(),
        db_stats(),
        rename(),
        drop(),
    ];
    of.into_iter().flat_map(|of| of.probes).collect()
}

fn every_command() -> Of {
    Of::new("every command", doc! { "find": COLLECTION, "sort": { "q": 1 }, "limit": 3 })
        .with("comment", "c")
        .with("maxTimeMS", 10_000)
        .with("readConcern", doc! { "level": "majority" })
        .with("$readPreference", doc! { "mode": "primaryPreferred" })
        .with("apiVersion", "1")
        .beside("apiStrict", doc! { "apiVersion": "1", "apiStrict": true })
        .beside("apiDeprecationErrors", doc! { "apiVersion": "1", "apiDeprecationErrors": true })
        .with("lsid", doc! {})
        .sent("startTransaction", doc! { "find": COLLECTION, "filter": { "_id": 3 }, "lsid": doc! {}, "txnNumber": 1_i64, "autocommit": false, "startTransaction": true })
        .sent("autocommit", doc! { "find": COLLECTION, "filter": { "k": 1 }, "lsid": doc! {}, "txnNumber": 1_i64, "autocommit": false })
        .sent("txnNumber", doc! { "abortTransaction": 1, "lsid": doc! {}, "txnNumber": 1_i64, "autocommit": false, "$db": "admin" })
        .sent("txnNumber", doc! { "insert": COLLECTION, "documents": [item(101, 1)], "lsid": doc! {}, "txnNumber": 2_i64 })
        .sent("txnNumber", doc! { "insert": COLLECTION, "documents": [item(101, 1)], "lsid": doc! {}, "txnNumber": 2_i64 })
        .sent("writeConcern", doc! { "insert": COLLECTION, "documents": [{ "_id": 100, "k": 1, "at": DateTime::from_millis(100_000), "q": 100 }], "writeConcern": { "w": "majority" } })
}

fn find() -> Of {
    let natural = doc! { "find": COLLECTION, "filter": { "q": { "$lt": 7 } } };
    Of::new(
        "find",
        doc! { "find": COLLECTION, "sort": { "q": 1 }, "filter": { "q": { "$lt": 7 } } },
    )
    .with("filter", doc! { "k": 1, "q": { "$gt": 3 } })
    .with("sort", doc! { "q": -1 })
    .with("projection", doc! { "q": 1, "a": { "$slice": 1 } })
    .with("skip", 2)
    .with("limit", 2)
    .with("batchSize", 2)
    .beside("singleBatch", doc! { "batchSize": 2, "singleBatch": true })
    .with("hint", "q_1")
    .with("hint", doc! { "q": 1 })
    .loosely("hint", doc! { "hint": "none" })
    .with("collation", doc! { "locale": "de" })
    .beside(
        "let",
        doc! { "filter": { "$expr": { "$eq": ["$q", "$$x"] } }, "let": { "x": 3 } },
    )
    .with("allowDiskUse", true)
    .with("min", doc! { "q": 3 })
    .beside("min", doc! { "min": { "q": 3 }, "hint": { "q": 1 } })
    .beside("max", doc! { "max": { "q": 3 }, "hint": { "q": 1 } })
    .with("returnKey", true)
    .with("showRecordId", true)
    .loosely("tailable", doc! { "tailable": true })
    .loosely("awaitData", doc! { "tailable": true, "awaitData": true })
    .with("noCursorTimeout", true)
    .with("allowPartialResults", true)
    .with("oplogReplay", true)
    .with("readOnce", true)
    .sent("$_requestResumeToken", {
        let mut sent = natural.clone();
        sent.extend(doc! { "$_requestResumeToken": true, "hint": { "$natural": 1 } });
        sent
    })
    .sent("$_resumeAfter", {
        let mut sent = natural;
        sent.extend(
            doc! { "$_requestResumeToken": true, "$_resumeAfter": { "$recordId": 1_i64 }, "hint": { "$natural": 1 } },
        );
        sent
    })
    .with("term", 1_i64)
    .with("collectionUUID", uuid())
    .with("encryptionInformation", doc! { "type": 1, "schema": {} })
    .but("filter", doc! { "filter": { "$where": "true" } })
    .but("sort", doc! { "sort": { "$natural": 1 } })
    .but("projection", doc! { "projection": { "r": { "$meta": "recordId" } } })
}

fn count() -> Of {
    Of::new("count", doc! { "count": COLLECTION })
        .with("query", doc! { "q": { "$gt": 5 } })
        .with("skip", 3)
        .with("limit", 3)
        .with("hint", "q_1")
        .loosely("hint", doc! { "hint": "none" })
        .with("collation", doc! { "locale": "de" })
        .with("fields", doc! { "q": 1 })
        .but("query", doc! { "query": { "$where": "true" } })
}

fn distinct() -> Of {
    Of::new("distinct", doc! { "distinct": COLLECTION, "key": "q" })
        .with("key", "k")
        .with("query", doc! { "q": { "$gt": 5 } })
        .loosely("collation", doc! { "collation": { "locale": "de" } })
        .loosely("hint", doc! { "hint": "q_1" })
}

fn aggregate() -> Of {
    Of::new("aggregate", doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": { "q": { "$lt": 7 } } }, { "$sort": { "q": 1 } }], "cursor": {} })
        .with("pipeline", vec![doc! { "$sort": { "q": 1 } }])
        .with("cursor", doc! { "batchSize": 2 })
        .with("allowDiskUse", true)
        .with("hint", "q_1")
        .loosely("hint", doc! { "hint": "none" })
        .with("collation", doc! { "locale": "de" })
        .beside("let", doc! { "pipeline": [{ "$match": { "$expr": { "$eq": ["$q", "$$x"] } } }], "let": { "x": 3 } })
        .beside("bypassDocumentValidation", doc! { "bypassDocumentValidation": true })
        .compared(Compared::Success)
        .with("explain", true)
}

fn stages() -> Of {
    let of = |stage: Document| doc! { "aggregate": COLLECTION, "pipeline": [stage, { "$sort": { "_id": 1, "q": 1 } }], "cursor": {} };
    let last = |stage: Document| doc! { "aggregate": COLLECTION, "pipeline": [stage], "cursor": {} };
    let first = |stage: Document| doc! { "aggregate": COLLECTION, "pipeline": [stage, { "$limit": 1 }], "cursor": {} };
    Of::new("stages", doc! {})
        .sent("$addFields", of(doc! { "$addFields": { "z": "$q" } }))
        .sent("$set", of(doc! { "$set": { "z": "$q" } }))
        .sent("$bucket", of(doc! { "$bucket": { "groupBy": "$q", "boundaries": [0, 9, 1000] } }))
        .sent("$bucketAuto", of(doc! { "$bucketAuto": { "groupBy": "$q", "buckets": 3 } }))
        .sent("$count", last(doc! { "$count": "n" }))
        .sent("$densify", of(doc! { "$densify": { "field": "q", "range": { "step": 1, "bounds": "full" } } }))
        .sent("$facet", of(doc! { "$facet": { "x": [{ "$sort": { "q": 1 } }, { "$limit": 2 }] } }))
        .sent("$fill", of(doc! { "$fill": { "output": { "q": { "value": 1 } } } }))
        .sent("$geoNear", first(doc! { "$geoNear": { "near": [0, 0], "distanceField": "d", "key": "loc" } }))
        .sent("$graphLookup", of(doc! { "$graphLookup": { "from": "plain", "startWith": "$k", "connectFromField": "k", "connectToField": "k", "as": "x" } }))
        .sent("$group", of(doc! { "$group": { "_id": "$k", "n": { "$sum": "$q" } } }))
        .sent("$limit", last(doc! { "$limit": 0 }))
        .sent("$lookup", of(doc! { "$lookup": { "from": COLLECTION, "localField": "_id", "foreignField": "_id", "as": "x" } }))
        .sent("$match", of(doc! { "$match": { "q": 3 } }))
        .but("$match", of(doc! { "$match": { "$text": { "$search": "x" } } }))
        .sent("$merge", last(doc! { "$merge": { "into": "merged" } }))
        .but("$merge", last(doc! { "$merge": { "into": COLLECTION } }))
        .sent("$out", last(doc! { "$out": "out" }))
        .but("$out", last(doc! { "$out": COLLECTION }))
        .sent("$project", of(doc! { "$project": { "q": 1 } }))
        .sent("$unset", of(doc! { "$unset": "q" }))
        .sent("$redact", of(doc! { "$redact": "$$KEEP" }))
        .sent("$replaceRoot", of(doc! { "$replaceRoot": { "newRoot": { "q": "$q" } } }))
        .sent("$replaceWith", of(doc! { "$replaceWith": { "q": "$q" } }))
        .loosely("$sample", last(doc! { "$sample": { "size": 1000 } }))
        .sent("$setWindowFields", of(doc! { "$setWindowFields": { "sortBy": { "q": 1 }, "output": { "n": { "$sum": "$q" } } } }))
        .sent("$skip", of(doc! { "$skip": 0 }))
        .sent("$sort", of(doc! { "$sort": { "q": -1 } }))
        .sent("$sortByCount", of(doc! { "$sortByCount": "$k" }))
        .sent("$unionWith", of(doc! { "$unionWith": "plain" }))
        .sent("$unwind", of(doc! { "$unwind": "$a" }))
        .sent("$changeStream", doc! { "aggregate": COLLECTION, "pipeline": [{ "$changeStream": {} }], "cursor": {} })
        .sent("$indexStats", first(doc! { "$indexStats": {} }))
        .sent("$planCacheStats", first(doc! { "$planCacheStats": {} }))
        .sent("$collStats", doc! { "aggregate": COLLECTION, "pipeline": [{ "$collStats": { "count": {} } }, { "$project": { "count": 1 } }], "cursor": {} })
        .sent("$listSessions", first(doc! { "$listSessions": {} }))
        .sent("$currentOp", first(doc! { "$currentOp": {} }))
        .sent("$listLocalSessions", first(doc! { "$listLocalSessions": {} }))
}

fn item(id: i32, k: i32) -> Document {
    doc! { "_id": id, "k": k, "at": DateTime::from_millis(i64::from(id) * 1000), "q": id }
}

fn insert() -> Of {
    let of = |id: i32| doc! { "insert": COLLECTION, "documents": [item(id, 1)] };
    let and = |mut sent: Document, more: Document| {
        sent.extend(more);
        sent
    };
    Of::new("insert", doc! {})
        .sent("documents", of(200))
        .told("documents", of(200), Compared::WholeIfUnique)
        .sent(
            "ordered",
            doc! { "insert": COLLECTION, "ordered": false, "documents": [item(207, 0), item(208, 0)] },
        )
        .told(
            "ordered",
            doc! { "insert": COLLECTION, "ordered": false, "documents": [item(201, 0), item(201, 0), item(202, 0)] },
            Compared::WholeIfUnique,
        )
        .sent(
            "bypassDocumentValidation",
            and(of(203), doc! { "bypassDocumentValidation": true }),
        )
        .sent("stmtId", and(of(204), doc! { "stmtId": 3 }))
        .sent("stmtIds", and(of(205), doc! { "stmtIds": [3] }))
        .sent("collectionUUID", and(of(206), doc! { "collectionUUID": uuid() }))
}

fn uuid() -> bson::Binary {
    bson::Binary {
        subtype: bson::spec::BinarySubtype::Uuid,
        bytes: vec![7; 16],
    }
}

fn update() -> Of {
    let of = |statement: Document| doc! { "update": COLLECTION, "updates": [statement] };
    let plain = || doc! { "q": { "_id": 3 }, "u": { "$inc": { "n": 1 } } };
    let and = |more: Document| {
        let mut statement = plain();
        statement.extend(more);
        of(statement)
    };
    let command = |more: Document| {
        let mut sent = of(plain());
        sent.extend(more);
        sent
    };
    Of::new("update", doc! {})
        .sent("updates", of(plain()))
        .sent("ordered", command(doc! { "ordered": false }))
        .sent("bypassDocumentValidation", command(doc! { "bypassDocumentValidation": true }))
        .sent("let", doc! { "update": COLLECTION, "let": { "x": 3 }, "updates": [{ "q": { "$expr": { "$eq": ["$q", "$$x"] } }, "u": { "$inc": { "n": 1 } } }] })
        .sent("stmtId", command(doc! { "stmtId": 3 }))
        .sent("stmtIds", command(doc! { "stmtIds": [3] }))
        .sent("collectionUUID", command(doc! { "collectionUUID": uuid() }))
        .sent("updates.q", of(doc! { "q": { "q": 4 }, "u": { "$set": { "n": 7 } } }))
        .sent("updates.q", of(doc! { "q": { "q": { "$gte": 4 } }, "u": { "$set": { "n": 7 } } , "multi": true }))
        .sent("updates.u", of(doc! { "q": { "_id": 4 }, "u": [{ "$set": { "n": { "$add": ["$q", 1] } } }] }))
        .sent("updates.u", of(doc! { "q": { "_id": 5 }, "u": { "$rename": { "n": "m" } } }))
        .sent("updates.u", of(doc! { "q": { "_id": 5 }, "u": { "$set": { "k": 7 } } }))
        .but("updates.u", of(doc! { "q": { "_id": 6, "a": { "$ne": 70 } }, "u": { "$set": { "a.$": 70 } } }))
        .sent("updates.u", of(doc! { "q": { "_id": 6 }, "u": { "$set": { "_id": 70 } } }))
        .sent("updates.u", of(doc! { "q": { "_id": 6 }, "u": { "_id": 6, "k": 0, "at": DateTime::from_millis(6000), "q": 6, "new": 1 } }))
        .sent("updates.multi", of(doc! { "q": { "k": 1 }, "u": { "$set": { "all": 1 } }, "multi": true }))
        .sent("updates.upsert", of(doc! { "q": { "_id": 300 }, "u": { "$set": { "k": 1, "at": DateTime::from_millis(300_000), "q": 300 } }, "upsert": true }))
        .sent("updates.collation", and(doc! { "collation": { "locale": "de" } }))
        .sent("updates.arrayFilters", of(doc! { "q": { "_id": 3 }, "u": { "$set": { "a.$[x]": 9 } }, "arrayFilters": [{ "x": 3 }] }))
        .sent("updates.hint", and(doc! { "hint": "_id_" }))
        .loosely("updates.hint", and(doc! { "hint": "none" }))
        .sent("updates.c", of(doc! { "q": { "_id": 4 }, "u": [{ "$set": { "n": "$$z" } }], "c": { "z": 3 } }))
}

fn delete() -> Of {
    let of = |statement: Document| doc! { "delete": COLLECTION, "deletes": [statement] };
    let command = |q: i32, more: Document| {
        let mut sent = of(doc! { "q": { "_id": q }, "limit": 1 });
        sent.extend(more);
        sent
    };
    Of::new("delete", doc! {})
        .sent("deletes", command(11, doc! {}))
        .sent("ordered", command(12, doc! { "ordered": false }))
        .sent("let", doc! { "delete": COLLECTION, "let": { "x": 13 }, "deletes": [{ "q": { "$expr": { "$eq": ["$q", "$$x"] } }, "limit": 1 }] })
        .sent("stmtId", command(14, doc! { "stmtId": 3 }))
        .sent("stmtIds", command(15, doc! { "stmtIds": [3] }))
        .sent("collectionUUID", command(16, doc! { "collectionUUID": uuid() }))
        .sent("deletes.q", of(doc! { "q": { "q": 17 }, "limit": 1 }))
        .sent("deletes.limit", of(doc! { "q": { "q": { "$gte": 22 , "$lte": 23 } }, "limit": 0 }))
        .loosely("deletes.limit", of(doc! { "q": { "q": 24 }, "limit": 2 }))
        .sent("deletes.collation", of(doc! { "q": { "q": 18 }, "limit": 1, "collation": { "locale": "de" } }))
        .sent("deletes.hint", of(doc! { "q": { "q": 19 }, "limit": 1, "hint": "q_1" }))
        .loosely("deletes.hint", of(doc! { "q": { "q": 19 }, "limit": 1, "hint": "none" }))
        .but("deletes.q", of(doc! { "q": { "$where": "false" }, "limit": 1 }))
}

fn find_and_modify() -> Of {
    let update = doc! { "update": { "$inc": { "n": 1 } } };
    let and = |more: Document| {
        let mut sent = doc! { "findAndModify": COLLECTION, "query": { "_id": 1 } };
        sent.extend(update.clone());
        sent.extend(more);
        sent
    };
    Of::new("findAndModify", doc! {})
        .sent("query", and(doc! {}))
        .sent("query", and(doc! { "query": { "q": 2 } }))
        .sent("update", and(doc! { "update": [{ "$set": { "n": 5 } }] }))
        .sent("update", and(doc! { "update": { "$set": { "k": 5 } } }))
        .sent("remove", doc! { "findAndModify": COLLECTION, "query": { "q": 20 }, "remove": true })
        .sent("new", and(doc! { "new": true }))
        .sent("upsert", and(doc! { "query": { "_id": 301 }, "update": { "$set": { "k": 1, "at": DateTime::from_millis(301_000), "q": 301 } }, "upsert": true, "new": true }))
        .sent("fields", and(doc! { "fields": { "q": 1 } }))
        .but("fields", and(doc! { "query": { "_id": -1 }, "fields": { "a.b": 1 } }))
        .sent("sort", and(doc! { "query": { "k": 0 }, "sort": { "q": -1 } }))
        .sent("collation", and(doc! { "collation": { "locale": "de" } }))
        .sent("arrayFilters", and(doc! { "update": { "$set": { "a.$[x]": 9 } }, "arrayFilters": [{ "x": 1 }] }))
        .sent("arrayFilters", doc! { "findAndModify": COLLECTION, "query": { "q": 21 }, "remove": true, "arrayFilters": [{ "x": 1 }] })
        .sent("hint", and(doc! { "hint": "_id_" }))
        .loosely("hint", and(doc! { "hint": "none" }))
        .sent("hint", doc! { "findAndModify": COLLECTION, "query": { "q": 21 }, "remove": true, "hint": 7 })
        .sent("bypassDocumentValidation", and(doc! { "bypassDocumentValidation": true }))
        .sent("let", and(doc! { "let": { "x": 2 }, "query": { "$expr": { "$eq": ["$q", "$$x"] } } }))
        .sent("let", doc! { "findAndModify": COLLECTION, "let": { "x": 21 }, "query": { "$expr": { "$eq": ["$q", "$$x"] } }, "remove": true })
        .sent("stmtId", and(doc! { "stmtId": 3 }))
        .sent("collectionUUID", and(doc! { "collectionUUID": uuid() }))
}

fn explain() -> Of {
    let of = |inner: Document| doc! { "explain": inner, "verbosity": "queryPlanner" };
    Of::new("explain", doc! {})
        .compared(Compared::Success)
        .sent("find", of(doc! { "find": COLLECTION }))
        .sent("count", of(doc! { "count": COLLECTION }))
        .sent("distinct", of(doc! { "distinct": COLLECTION, "key": "q" }))
        .sent("aggregate", of(doc! { "aggregate": COLLECTION, "pipeline": [], "cursor": {} }))
        .sent("update", of(doc! { "update": COLLECTION, "updates": [{ "q": {}, "u": { "$set": { "x": 1 } } }] }))
        .sent("delete", of(doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] }))
        .sent("findAndModify", of(doc! { "findAndModify": COLLECTION, "query": {}, "remove": true }))
        .sent("mapReduce", of(doc! { "mapReduce": COLLECTION, "map": "function() {}", "reduce": "function() {}", "out": { "inline": 1 } }))
        .sent("verbosity", doc! { "explain": { "find": COLLECTION }, "verbosity": "executionStats" })
}

fn indexes() -> Of {
    let of = |spec: Document| {
        // Those that mongod would make it has already, otherwise.
        let mut index = doc! { "key": { "a": 1 }, "name": "a" };
        index.extend(spec);
        doc! { "createIndexes": COLLECTION, "indexes": [index] }
    };
    let named = |name: &str, more: Document| {
        let mut sent = doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { name: 1 }, "name": name }] };
        sent.extend(more);
        sent
    };
    Of::new("createIndexes", doc! {})
        .sent("indexes", named("a", doc! {}))
        .sent("commitQuorum", named("b", doc! { "commitQuorum": 1 }))
        .sent(
            "ignoreUnknownIndexOptions",
            named("c", doc! { "ignoreUnknownIndexOptions": true }),
        )
        .sent("indexes.key", of(doc! { "key": { "d": -1, "e": 1 }, "name": "d_e" }))
        .sent("indexes.name", of(doc! { "name": "mine", "key": { "f": 1 } }))
        .sent("indexes.v", of(doc! { "v": 2, "name": "v", "key": { "v": 1 } }))
        .sent(
            "indexes.background",
            of(doc! { "background": true, "name": "g", "key": { "g": 1 } }),
        )
        .sent(
            "indexes.hidden",
            of(doc! { "hidden": true, "name": "h", "key": { "h": 1 } }),
        )
        .sent("indexes.unique", of(doc! { "unique": true }))
        .sent("indexes.sparse", of(doc! { "sparse": true }))
        .sent(
            "indexes.partialFilterExpression",
            of(doc! { "partialFilterExpression": { "q": 1 } }),
        )
        .sent(
            "indexes.expireAfterSeconds",
            of(doc! { "expireAfterSeconds": 100_000_000 }),
        )
        .sent("indexes.collation", of(doc! { "collation": { "locale": "de" } }))
        .sent("indexes.storageEngine", of(doc! { "storageEngine": {} }))
        .sent(
            "indexes.weights",
            of(doc! { "key": { "a": "text" }, "weights": { "a": 2 } }),
        )
        .sent(
            "indexes.default_language",
            of(doc! { "key": { "a": "text" }, "default_language": "german" }),
        )
        .sent(
            "indexes.language_override",
            of(doc! { "key": { "a": "text" }, "language_override": "l" }),
        )
        .sent(
            "indexes.textIndexVersion",
            of(doc! { "key": { "a": "text" }, "textIndexVersion": 3 }),
        )
        .sent(
            "indexes.2dsphereIndexVersion",
            of(doc! { "key": { "a": "2dsphere" }, "2dsphereIndexVersion": 3 }),
        )
        .sent("indexes.bits", of(doc! { "key": { "a": "2d" }, "bits": 20 }))
        .sent("indexes.min", of(doc! { "key": { "a": "2d" }, "min": -10 }))
        .sent("indexes.max", of(doc! { "key": { "a": "2d" }, "max": 10 }))
        .sent(
            "indexes.wildcardProjection",
            of(doc! { "key": { "$**": 1 }, "wildcardProjection": { "x": 1 } }),
        )
}

fn list_indexes() -> Of {
    Of::new("listIndexes", doc! { "listIndexes": COLLECTION })
        .with("cursor", doc! { "batchSize": 1 })
        .with("cursor", doc! {})
        .compared(Compared::Success)
        .with("includeBuildUUIDs", true)
        .with("includeIndexBuildInfo", true)
}

fn drop_indexes() -> Of {
    Of::new("dropIndexes", doc! { "dropIndexes": COLLECTION })
        .with("index", "mine")
        .with("index", doc! { "d": -1, "e": 1 })
        .with("index", vec!["v", "g"])
        .with("index", "*")
        .with("index", "mongoshape_page")
        .with("collectionUUID", uuid())
}

fn cursors() -> Of {
    let of = |more: Document| {
        let mut sent = doc! { "getMore": 12_345_i64, "collection": COLLECTION };
        sent.extend(more);
        sent
    };
    Of::new("getMore", doc! {})
        .sent("collection", of(doc! {}))
        .sent("batchSize", of(doc! { "batchSize": 2 }))
        .sent("batchSize", of(doc! { "batchSize": -2 }))
        .sent("maxTimeMS", of(doc! { "maxTimeMS": 2 }))
        .sent("term", of(doc! { "term": 1_i64 }))
        .sent(
            "lastKnownCommittedOpTime",
            of(doc! { "lastKnownCommittedOpTime": { "ts": bson::Timestamp { time: 1, increment: 1 }, "t": 1_i64 } }),
        )
}

fn kill_cursors() -> Of {
    Of::new("killCursors", doc! {})
        .sent("cursors", doc! { "killCursors": COLLECTION, "cursors": [12_345_i64] })
        .sent("cursors", doc! { "killCursors": COLLECTION, "cursors": [] })
        .sent("cursors", doc! { "killCursors": COLLECTION, "cursors": ["x"] })
        .sent("cursors", doc! { "killCursors": COLLECTION })
}

fn collection() -> Of {
    // It is there already: mongod says so where it has other options, and is content where it has the same.
    Of::new("create", doc! { "create": COLLECTION })
        .with("capped", true)
        .with("temp", true)
        .with("autoIndexId", false)
        .but("collation", doc! { "collation": { "locale": "de" } })
        .with("collation", doc! { "locale": "simple" })
        .with("idIndex", doc! { "key": { "_id": 1 }, "name": "_id_", "v": 2 })
        .with("changeStreamPreAndPostImages", doc! { "enabled": true })
        .with("size", 4096)
        .with("max", 10)
        .with("storageEngine", doc! {})
        .with("indexOptionDefaults", doc! {})
        .with("validationLevel", "off")
        .with("validationAction", "warn")
        .with("clusteredIndex", doc! { "key": { "_id": 1 }, "unique": true })
        .with("encryptedFields", doc! { "fields": [] })
        .with("expireAfterSeconds", 100)
        .with("flags", 1)
        .with("recordPreImages", true)
        .with("timeseries", doc! { "timeField": "at" })
        .with("validator", doc! { "q": 1 })
        .with("viewOn", "plain")
        .beside("pipeline", doc! { "viewOn": "plain", "pipeline": [] })
}

fn coll_mod() -> Of {
    Of::new("collMod", doc! { "collMod": COLLECTION })
        .with("changeStreamPreAndPostImages", doc! { "enabled": true })
        .with("changeStreamPreAndPostImages", doc! { "enabled": false })
        .with("validationLevel", "strict")
        .but("validationLevel", doc! { "validationLevel": "off" })
        .with("validationAction", "error")
        .but("validationAction", doc! { "validationAction": "warn" })
        .with("cappedSize", 8192)
        .with("cappedMax", 8)
        .with("clusteredIndex", doc! { "expireAfterSeconds": 10 })
        .with("dryRun", true)
        .with("expireAfterSeconds", 100)
        .with("index", doc! { "name": "q_1", "hidden": true })
        .with("isTimeseriesNamespace", true)
        .with("recordPreImages", true)
        .with("timeseries", doc! { "granularity": "hours" })
        .with("validator", doc! { "q": 1 })
        .with("viewOn", "plain")
        .with("pipeline", Bson::Array(Vec::new()))
}

fn statistics() -> Of {
    Of::new("collStats", doc! { "collStats": COLLECTION })
        .compared(Compared::Success)
        .with("scale", 1024)
        .with("numericOnly", true)
}

fn data_size() -> Of {
    Of::new("dataSize", doc! { "dataSize": format!("DATABASE.{COLLECTION}") })
        .compared(Compared::Success)
        .with("estimate", true)
        .with("keyPattern", doc! { "_id": 1 })
        .beside(
            "min",
            doc! { "keyPattern": { "_id": 1 }, "min": { "_id": 1 }, "max": { "_id": 4 } },
        )
        .beside(
            "max",
            doc! { "keyPattern": { "_id": 1 }, "min": { "_id": 1 }, "max": { "_id": 4 } },
        )
}

fn validate() -> Of {
    Of::new("validate", doc! { "validate": COLLECTION })
        .compared(Compared::Success)
        .with("full", true)
        .with("background", false)
        .with("scandata", true)
        .with("checkBSONConformance", true)
        .with("enforceFastCount", true)
        .with("fixMultikey", true)
        .with("metadata", true)
        .with("repair", true)
}

fn compact() -> Of {
    Of::new("compact", doc! { "compact": COLLECTION, "force": true })
        .compared(Compared::Success)
        .with("force", true)
        .with("force", false)
}

fn plan_cache() -> Of {
    Of::new("planCacheClear", doc! { "planCacheClear": COLLECTION })
        .with("query", doc! { "q": 1 })
        .beside("projection", doc! { "projection": { "q": 1 } })
        .beside("sort", doc! { "sort": { "q": 1 } })
        .with("collation", doc! { "locale": "de" })
}

fn list_collections() -> Of {
    Of::new(
        "listCollections",
        doc! { "listCollections": 1, "filter": { "name": COLLECTION }, "nameOnly": true },
    )
    .with("filter", doc! { "name": COLLECTION })
    .with("nameOnly", true)
    .with("authorizedCollections", true)
    .with("cursor", doc! { "batchSize": 1 })
}

fn db_stats() -> Of {
    Of::new("dbStats", doc! { "dbStats": 1 })
        .compared(Compared::Success)
        .with("scale", 1024)
        .with("freeStorage", 1)
}

fn rename() -> Of {
    let of = |to: &str| doc! { "renameCollection": format!("DATABASE.{COLLECTION}"), "to": to, "$db": "admin" };
    Of::new("renameCollection", of("DATABASE.items"))
        .with("to", "DATABASE.items")
        .but("to", of("DATABASE.plain"))
        .with("dropTarget", true)
}

fn drop() -> Of {
    Of::new("drop", doc! { "drop": "nothing" }).with("comment", "c")
}
