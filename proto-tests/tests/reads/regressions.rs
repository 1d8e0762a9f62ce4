//! Reduced cases of the differential tests: each was a difference from a plain collection, or violated the
//! layout.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, Timestamp, bson, doc};
use proto_tests::sessions::lsid;
use proto_tests::sides::{self, Sides};
use proto_tests::{ItemIds, Mongod, Proxy, ProxyOptions, Shape, database_name, invariants, mongod, raw};

const COLLECTION: &str = "things";

/// One collection through a proxy, and the same name in another database on mongod itself.
struct Comparison {
    shape: Shape,
    plain: raw::Connection,
    shaped: raw::Connection,
    database: String,
    _proxy: Proxy,
}

impl Comparison {
    fn start(shape: Shape) -> Result<Self> {
        let mongod: &Mongod = mongod::shared();
        let options = ProxyOptions::new(&mongod.uri()).config(&shape.toml(&format!("*.{COLLECTION}")));
        let proxy = Proxy::start(&options)?;
        Ok(Self {
            shape,
            plain: raw::Connection::open(mongod.address())?,
            shaped: raw::Connection::open(proxy.address())?,
            database: database_name(),
            _proxy: proxy,
        })
    }

    /// The replies: plain, shaped.
    fn run(&mut self, command: &Document) -> Result<[Document; 2]> {
        let on = |database: String| {
            let mut command = command.clone();
            command.insert("$db", database);
            command
        };
        Ok([
            self.plain.command(&on(format!("{}_n", self.database)))?,
            self.shaped.command(&on(format!("{}_s", self.database)))?,
        ])
    }

    fn insert(&mut self, documents: Vec<Document>, ordered: bool) -> Result<[Document; 2]> {
        self.run(&doc! { "insert": COLLECTION, "documents": documents, "ordered": ordered })
    }

    fn check_layout(&mut self) -> Result<()> {
        let database = format!("{}_s", self.database);
        invariants::check(&mut self.plain, &database, COLLECTION, &self.shape)
    }
}

/// mongod takes a symbol for a string in the name of a collection.
#[test]
fn a_collection_can_be_named_by_a_symbol() -> Result<()> {
    let mut sides = Comparison::start(Shape::new(&["k"]))?;
    let name = || Bson::Symbol(COLLECTION.to_owned());
    let item = |id: i32| doc! { "_id": id, "k": 1, "n": id };
    let delete = doc! { "q": { "n": 1 }, "limit": 0 };
    for command in [
        doc! { "insert": name(), "documents": [item(1), item(2)] },
        doc! { "find": name(), "sort": { "_id": 1 } },
        doc! { "count": name() },
        doc! { "update": name(), "updates": [{ "q": { "_id": 2 }, "u": { "$set": { "n": 3 } } }] },
        doc! { "delete": name(), "deletes": [delete] },
        doc! { "findAndModify": name(), "query": { "_id": 2 }, "update": { "$inc": { "n": 1 } }, "new": true },
        doc! { "find": COLLECTION, "sort": { "_id": 1 } },
        doc! { "drop": name() },
        doc! { "count": COLLECTION },
    ] {
        let [plain, shaped] = sides.run(&command)?;
        for field in ["ok", "n", "value"] {
            ensure!(
                plain.get(field) == shaped.get(field),
                "{command}\n  plain:  {plain}\n  shaped: {shaped}"
            );
        }
        let batch = |reply: &Document| {
            let cursor = reply.get_document("cursor").ok();
            cursor.and_then(|cursor| cursor.get_array("firstBatch").ok().cloned())
        };
        ensure!(batch(&plain) == batch(&shaped), "{plain}\n{shaped}");
    }
    Ok(())
}

fn indexes_of_errors(reply: &Document) -> Vec<i32> {
    let errors = reply.get_array("writeErrors").map_or(&[][..], Vec::as_slice);
    let errors = errors.iter().filter_map(Bson::as_document);
    errors.filter_map(|error| error.get_i32("index").ok()).collect()
}

fn batch(reply: &Document) -> Result<&Vec<Bson>> {
    let cursor = reply.get_document("cursor").with_context(|| reply.to_string())?;
    Ok(cursor.get_array("firstBatch")?)
}

/// A push that fails leaves room in its page: the page behind it was opened all the same.
#[test]
fn an_unordered_insert_opens_no_page_behind_one_with_room() -> Result<()> {
    let mut comparison = Comparison::start(Shape {
        max_items: 3,
        ..Shape::new(&["k"])
    })?;
    let ids = [1, 2, 2, 3, 4, 4, 5, 6, 7, 1, 8];
    let documents = (0..)
        .zip(ids)
        .map(|(n, id)| doc! { "_id": id, "k": 1, "n": n })
        .collect();
    let [plain, shaped] = comparison.insert(documents, false)?;
    assert_eq!(indexes_of_errors(&shaped), [2, 5, 9]);
    assert_eq!(indexes_of_errors(&plain), indexes_of_errors(&shaped));
    comparison.check_layout()
}

/// The first page's name is another key's: the pages behind it were opened without it.
#[test]
fn an_unordered_insert_leaves_no_gap_where_a_name_is_taken() -> Result<()> {
    let time = Some("date".to_owned());
    let mut comparison = Comparison::start(Shape {
        max_items: 2,
        time,
        ..Shape::new(&["k"])
    })?;
    let date = bson::DateTime::from_millis(1_000);
    comparison.insert(vec![doc! { "_id": 0, "k": "123", "date": date }], true)?;
    let documents = (1..8).map(|id| doc! { "_id": id, "k": 123, "date": date }).collect();
    let [_, shaped] = comparison.insert(documents, false)?;
    assert_eq!(shaped.get_i32("n")?, 7, "{shaped}");
    comparison.check_layout()
}

/// Of two documents with one `_id` the first is stored, also when its page's name was taken at first.
#[test]
fn an_unordered_insert_stores_the_first_of_two() -> Result<()> {
    let time = Some("date".to_owned());
    let mut comparison = Comparison::start(Shape {
        time,
        ..Shape::new(&["k"])
    })?;
    let date = bson::DateTime::from_millis(1_000);
    comparison.insert(vec![doc! { "_id": 0, "k": "123", "date": date }], true)?;
    let documents = vec![
        doc! { "_id": 1, "k": 123, "date": date },
        doc! { "_id": 1, "k": "other", "date": date },
    ];
    let [plain, shaped] = comparison.insert(documents, false)?;
    assert_eq!(indexes_of_errors(&plain), [1]);
    assert_eq!(indexes_of_errors(&shaped), [1]);
    comparison.check_layout()
}

/// The first of two with one `_id` had to wait for its page, and the second was stored before it.
#[test]
fn an_unordered_insert_stores_the_first_of_two_that_has_to_wait() -> Result<()> {
    let mut comparison = Comparison::start(Shape::new(&["k"]))?;
    comparison.insert((0..9).map(|id| doc! { "_id": id, "k": 1 }).collect(), true)?;
    let documents = vec![
        doc! { "_id": 0, "k": 1 },
        doc! { "_id": 9, "k": 1 },
        doc! { "_id": 10, "k": 1 },
        doc! { "_id": 10.0, "k": 2 },
    ];
    let [plain, shaped] = comparison.insert(documents, false)?;
    assert_eq!(indexes_of_errors(&plain), [0, 3]);
    assert_eq!(indexes_of_errors(&shaped), [0, 3]);
    comparison.check_layout()
}

/// An import that is run again: more duplicates in a row than there are rounds for lost races.
#[test]
fn unordered_insert_of_duplicates_reports_each() -> Result<()> {
    let mut comparison = Comparison::start(Shape::new(&["k"]))?;
    let documents: Vec<Document> = (0..300).map(|id| doc! { "_id": id, "k": id % 3 }).collect();
    comparison.insert(documents.clone(), false)?;
    let [plain, shaped] = comparison.insert(documents, false)?;
    assert_eq!(indexes_of_errors(&plain), (0..300).collect::<Vec<_>>());
    assert_eq!(indexes_of_errors(&shaped), indexes_of_errors(&plain));
    // The same within one command, where nothing is stored yet.
    let twins = (300..450).flat_map(|id| [doc! { "_id": id, "k": 1 }, doc! { "_id": id, "k": 2 }]);
    let [plain, shaped] = comparison.insert(twins.collect(), false)?;
    assert_eq!(indexes_of_errors(&plain).len(), 150);
    assert_eq!(indexes_of_errors(&shaped), indexes_of_errors(&plain));
    comparison.check_layout()
}

/// What takes the place of `Timestamp(0, 0)` began anew in every command.
#[test]
fn timestamps_ascend_from_insert_to_insert() -> Result<()> {
    let mut comparison = Comparison::start(Shape::new(&["k"]))?;
    let zero = Timestamp { time: 0, increment: 0 };
    for id in 0..20 {
        comparison.insert(vec![doc! { "_id": id, "k": id % 2, "stamp": zero }], true)?;
    }
    let find = doc! { "find": COLLECTION, "sort": { "stamp": 1 }, "projection": { "_id": 1 } };
    let [plain, shaped] = comparison.run(&find)?;
    assert_eq!(batch(&plain)?, batch(&shaped)?);
    Ok(())
}

/// mongod does not find a field with an empty name behind an `$unwind`.
#[test]
fn a_field_without_a_name_is_found() -> Result<()> {
    let mut comparison = Comparison::start(Shape::new(&["k"]))?;
    let documents = vec![
        doc! { "_id": 1, "k": 1, "": 4 },
        doc! { "_id": 2, "k": 1 },
        doc! { "_id": 3, "k": 2, "": { "a": 1 } },
    ];
    comparison.insert(documents, true)?;
    for (filter, count) in [
        (doc! { "": 4 }, 1),
        (doc! { "": { "$exists": false } }, 1),
        (doc! { "k": 1, "": { "$mod": [2, 0] } }, 1),
        (doc! { "$or": [{ "": 4 }, { ".a": 1 }] }, 2),
        (doc! { "": { "$ne": 4 } }, 2),
    ] {
        let [plain, shaped] = comparison.run(&doc! { "find": COLLECTION, "filter": &filter, "sort": { "_id": 1 } })?;
        ensure!(
            batch(&plain)?.len() == batch(&shaped)?.len(),
            "{filter}: {plain} {shaped}"
        );
        assert_eq!(batch(&shaped)?.len(), count, "{filter}");
        let [_, counted] = comparison.run(&doc! { "count": COLLECTION, "query": &filter })?;
        assert_eq!(counted.get_i32("n")?, i32::try_from(count)?);
        let pipeline = bson!([{ "$match": { "_id": { "$gt": 0 } } }, { "$match": &filter }, { "$sort": { "_id": 1 } }]);
        let [_, piped] = comparison.run(&doc! { "aggregate": COLLECTION, "pipeline": pipeline, "cursor": {} })?;
        assert_eq!(batch(&piped)?.len(), count, "{filter}");
    }
    Ok(())
}

/// The condition on the `_id` is left out of the condition on pages. The other one must be of one item.
#[test]
fn an_item_whose_id_has_a_field_without_a_name_is_found() -> Result<()> {
    for item_ids in [ItemIds::Unique, ItemIds::Stored] {
        let mut comparison = Comparison::start(Shape {
            item_ids,
            ..Shape::new(&["k"])
        })?;
        let documents = vec![
            doc! { "_id": { "": 1 }, "k": 1, "a": 2 },
            doc! { "_id": 5, "k": 1, "a": 1 },
        ];
        comparison.insert(documents, true)?;
        let filter = doc! { "_id": { "": 1 }, "a": { "$ne": 1 } };
        let [plain, shaped] = comparison.run(&doc! { "find": COLLECTION, "filter": filter })?;
        assert_eq!(batch(&plain)?.len(), 1);
        assert_eq!(batch(&shaped)?.len(), 1, "{item_ids:?}");
    }
    Ok(())
}

/// Codes of errors that the proxy generates.
#[test]
fn invalid_commands_have_mongods_error_codes() -> Result<()> {
    let mut comparison = Comparison::start(Shape::new(&["k"]))?;
    comparison.insert(vec![doc! { "_id": 1, "k": 1 }], true)?;
    for (command, code) in [
        (doc! { "count": COLLECTION, "limit": 2.9 }, 9),
        (doc! { "count": COLLECTION, "limit": "x" }, 2),
        (doc! { "count": COLLECTION, "limit": Bson::Null }, 2),
        (doc! { "count": COLLECTION, "limit": i64::MIN }, 2),
        (doc! { "find": COLLECTION, "hint": 1 }, 9),
        (
            doc! { "aggregate": COLLECTION, "pipeline": [], "cursor": { "batchSize": -1 } },
            51024,
        ),
    ] {
        let [plain, shaped] = comparison.run(&command)?;
        for name in ["code", "codeName", "errmsg"] {
            assert_eq!(plain.get(name), shaped.get(name), "{name} of {command}");
        }
        assert_eq!(shaped.get_i32("code")?, code, "{command}");
    }
    Ok(())
}

/// mongod's error was that of a stage behind others.
#[test]
fn stages_that_read_no_item_have_errors_of_their_own() -> Result<()> {
    let mut comparison = Comparison::start(Shape::new(&["k"]))?;
    comparison.insert(vec![doc! { "_id": 1, "k": 1 }], true)?;
    for documents in [bson!([{ "x": 1 }]), bson!([]), bson!(1)] {
        let pipeline = bson!([{ "$documents": documents }]);
        let command = doc! { "aggregate": COLLECTION, "pipeline": pipeline, "cursor": {} };
        let [plain, shaped] = comparison.run(&command)?;
        for name in ["code", "codeName", "errmsg"] {
            assert_eq!(plain.get(name), shaped.get(name), "{name} of {command}");
        }
        assert!(shaped.contains_key("code"), "{command}");
    }
    let catalog = doc! { "aggregate": COLLECTION, "pipeline": [{ "$listCatalog": {} }], "cursor": {} };
    let [_, shaped] = comparison.run(&catalog)?;
    assert_eq!(shaped.get_i32("code")?, 115, "{shaped}");
    Ok(())
}

/// A hint on a collection that is not there was refused as on one that is.
#[test]
fn a_hint_means_nothing_on_a_missing_collection() -> Result<()> {
    let mut comparison = Comparison::start(Shape::new(&["k"]))?;
    for command in [
        doc! { "find": COLLECTION, "hint": "nope" },
        doc! { "count": COLLECTION, "hint": { "qty": 1 } },
        doc! { "aggregate": COLLECTION, "pipeline": [], "cursor": {}, "hint": "nope" },
        doc! { "find": COLLECTION, "hint": 1 },
    ] {
        let [plain, shaped] = comparison.run(&command)?;
        assert_eq!(plain.get("ok"), shaped.get("ok"), "{command}");
        assert_eq!(plain.get("code"), shaped.get("code"), "{command}");
    }
    comparison.insert(vec![doc! { "_id": 1, "k": 1 }], true)?;
    let [plain, shaped] = comparison.run(&doc! { "find": COLLECTION, "hint": "nope" })?;
    assert_eq!(shaped.get_i32("code")?, 2);
    assert_eq!(plain.get("code"), shaped.get("code"));
    Ok(())
}

/// A duplicate that is not stored is not the newest of its page either: the item behind it was taken for
/// late, missed its page, and was overtaken.
#[test]
fn an_unordered_insert_keeps_the_order_behind_a_duplicate() -> Result<()> {
    let time = Some("date".to_owned());
    let mut comparison = Comparison::start(Shape {
        time,
        ..Shape::new(&["k"])
    })?;
    let document = |id: i32, time: i64| doc! { "_id": id, "k": 1, "date": bson::DateTime::from_millis(time) };
    comparison.insert(vec![document(1, 1_000), document(2, 2_000)], true)?;
    // The first failure makes the rest careful, the second is then behind items that may go on.
    let documents = vec![
        document(1, 1),
        document(2, 9_000),
        document(3, 5_000),
        document(4, 9_500),
        document(5, 9_600),
    ];
    let [plain, shaped] = comparison.insert(documents, false)?;
    assert_eq!(indexes_of_errors(&plain), [0, 1]);
    assert_eq!(indexes_of_errors(&shaped), [0, 1]);
    let [plain, shaped] =
        comparison.run(&doc! { "find": COLLECTION, "filter": { "k": 1 }, "projection": { "_id": 1 } })?;
    assert_eq!(batch(&plain)?, batch(&shaped)?);
    comparison.check_layout()
}

/// Of two documents with one `_id` the first is stored, also when it has to wait for the next page of its
/// key.
#[test]
fn an_unordered_insert_stores_the_first_of_two_behind_a_duplicate() -> Result<()> {
    let mut comparison = Comparison::start(Shape {
        max_items: 2,
        ..Shape::new(&["k"])
    })?;
    comparison.insert(vec![doc! { "_id": 0, "k": 1 }], true)?;
    let keys = [(0, 1), (1, 1), (2, 1), (2, 5), (3, 1), (3, 5), (4, 1)];
    let documents = keys.iter().map(|(id, key)| doc! { "_id": id, "k": key }).collect();
    let [plain, shaped] = comparison.insert(documents, false)?;
    assert_eq!(indexes_of_errors(&plain), [0, 3, 5]);
    assert_eq!(indexes_of_errors(&shaped), [0, 3, 5]);
    comparison.check_layout()
}

/// A page took an item that had room behind one that was refused and had none: another attempt had no record
/// of it.
#[test]
fn resent_insert_uses_the_pages_of_the_first_attempt() -> Result<()> {
    let mut sides = Sides::open(Shape {
        max_bytes: 1024,
        ..Shape::new(&["k"])
    })?;
    let item = |id: i32, length: usize| doc! { "_id": id, "k": 1, "x": "x".repeat(length) };
    sides.alike(&doc! { "insert": sides::COLLECTION, "documents": [doc! { "_id": 2, "k": 2 }] })?;
    let mut command = doc! { "insert": sides::COLLECTION, "documents": [item(1, 800), item(2, 800), item(3, 1)] };
    command.extend(doc! { "ordered": false, "lsid": lsid("any"), "txnNumber": 1_i64 });
    for _ in 0..2 {
        sides.alike(&command)?;
    }
    sides.check()
}

/// Items of one key, of which some came late, on pages of two.
fn disordered() -> Result<Comparison> {
    let mut comparison = Comparison::start(Shape {
        max_items: 2,
        time: Some("date".to_owned()),
        ..Shape::new(&["k"])
    })?;
    let items = [5, 9, 6, 8, 3, 7].map(|second| {
        let date = bson::DateTime::from_millis(second * 1_000);
        doc! { "_id": second, "k": 1, "date": date }
    });
    comparison.insert(items.to_vec(), true)?;
    Ok(comparison)
}

/// Pages that overlap in time were merged although the query had no sort by time.
#[test]
fn a_range_without_a_sort_comes_as_inserted() -> Result<()> {
    let mut comparison = disordered()?;
    let filter = doc! { "k": 1, "date": { "$gte": bson::DateTime::from_millis(4_000) } };
    for (skip, limit) in [(0, 2), (1, 3), (0, 10)] {
        let find = doc! { "find": COLLECTION, "filter": &filter, "skip": skip, "limit": limit };
        let mut stages = vec![doc! { "$match": &filter }, doc! { "$limit": skip + limit }];
        stages.extend((skip > 0).then(|| doc! { "$skip": skip }));
        let aggregate = doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {} };
        for command in [find, aggregate] {
            let [plain, shaped] = comparison.run(&command)?;
            assert_eq!(ids(&plain)?, ids(&shaped)?, "{command}");
        }
    }
    Ok(())
}

fn ids(reply: &Document) -> Result<Vec<&Bson>> {
    let documents = batch(reply)?.iter().filter_map(Bson::as_document);
    documents
        .map(|document| document.get("_id").context("no _id"))
        .collect()
}

/// A merge returned all items up to the limit in a single batch and ignored the batch size.
#[test]
fn single_batch_is_not_larger_than_requested() -> Result<()> {
    let mut comparison = disordered()?;
    for size in [0, 1, 3, 5, 10] {
        let find = doc! {
            "find": COLLECTION, "filter": { "k": 1 }, "sort": { "date": 1 }, "limit": 5, "batchSize": size,
            "singleBatch": true,
        };
        let [plain, shaped] = comparison.run(&find)?;
        assert_eq!(ids(&plain)?, ids(&shaped)?, "{find}");
    }
    Ok(())
}

/// The example of MongoDB's manual: mongod evaluates `n` on the `_id` of the group.
#[test]
fn number_of_an_accumulator_is_computed_of_the_group() -> Result<()> {
    let mut comparison = Comparison::start(Shape::new(&["k"]))?;
    let documents = (0..12).map(|id| doc! { "_id": id, "k": 1, "game": format!("G{}", id % 2), "score": id });
    comparison.insert(documents.collect(), true)?;
    let of_group = bson!({ "$cond": { "if": { "$eq": ["$game", "G1"] }, "then": 1, "else": 3 } });
    for accumulator in ["$firstN", "$lastN", "$maxN", "$minN"] {
        for id in [bson!({ "game": "$game" }), bson!({ "game": "$score" }), bson!("$game")] {
            let scores = doc! { accumulator: { "input": "$score", "n": &of_group } };
            let group = doc! { "$group": { "_id": id, "scores": scores } };
            let pipeline = bson!([group, { "$sort": { "_id": 1 } }]);
            let command = doc! { "aggregate": COLLECTION, "pipeline": pipeline, "cursor": {} };
            let [plain, shaped] = comparison.run(&command)?;
            assert_eq!(batch(&shaped)?, batch(&plain)?, "{command}");
        }
        // The group has no such field.
        let scores = doc! { accumulator: { "input": "$score", "n": "$score" } };
        let group = doc! { "$group": { "_id": { "game": "$game" }, "scores": scores } };
        let command = doc! { "aggregate": COLLECTION, "pipeline": [group], "cursor": {} };
        let [plain, shaped] = comparison.run(&command)?;
        assert_eq!(shaped.get_i32("code")?, plain.get_i32("code")?, "{command}");
    }
    Ok(())
}
