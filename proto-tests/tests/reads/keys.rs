//! Which items have the same key: those that an equality filter of MongoDB finds, and no others.

use anyhow::Result;
use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Decimal128, Document, Regex, Timestamp, doc};
use proto_tests::buckets::{self, Layout};
use proto_tests::raw::Connection;
use proto_tests::shaped::{COLLECTION, Shaped};

const LAYOUT: Layout = Layout {
    key: "k",
    time: None,
    max_items: 10,
    max_bytes: 1 << 20,
};
const PLAIN: &str = "plain";

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().unwrap())
}

fn numbers() -> Vec<Bson> {
    vec![
        Bson::Int32(1),
        Bson::Double(1.0),
        Bson::Int64(1),
        decimal("1.00"),
        decimal("1"),
        Bson::Int32(123),
        Bson::Int32(0),
        Bson::Double(0.0),
        Bson::Double(-0.0),
        decimal("-0E+3"),
        Bson::Double(f64::NAN),
        Bson::Double(-f64::NAN),
        decimal("NaN"),
        Bson::Double(f64::INFINITY),
        decimal("Infinity"),
        Bson::Double(f64::NEG_INFINITY),
        Bson::Double(0.5),
        decimal("0.50"),
        Bson::Double(0.1),
        decimal("0.1"),
        Bson::Int64(9_007_199_254_740_993),
        Bson::Double(9_007_199_254_740_992.0),
        decimal("9007199254740993"),
        Bson::Int64(i64::MAX),
        Bson::Double(9_223_372_036_854_775_808.0),
        decimal("1E+6144"),
        decimal("1E-6176"),
        Bson::Double(5e-324),
    ]
}

fn others() -> Vec<Bson> {
    let binary = |subtype| Binary {
        subtype,
        bytes: vec![7; 16],
    };
    vec![
        "12".into(),
        "12_3".into(),
        "12%5F3".into(),
        "123".into(),
        "a.*^$".into(),
        "$a".into(),
        String::new().into(),
        "é\u{0}\n".into(),
        "null".into(),
        Bson::Null,
        true.into(),
        false.into(),
        "true".into(),
        ObjectId::from_bytes([9; 12]).into(),
        ObjectId::from_bytes([9; 12]).to_hex().into(),
        DateTime::from_millis(1).into(),
        DateTime::from_millis(-62_135_596_800_001).into(),
        DateTime::MAX.into(),
        Timestamp { time: 1, increment: 1 }.into(),
        binary(BinarySubtype::Uuid).into(),
        binary(BinarySubtype::Generic).into(),
        Regex {
            pattern: "^1".try_into().unwrap(),
            options: "i".try_into().unwrap(),
        }
        .into(),
        Bson::MinKey,
        Bson::MaxKey,
        doc! { "a": 1 }.into(),
        doc! { "a": 1.0 }.into(),
        doc! { "a": { "b": [1_i64, decimal("2.0")] } }.into(),
        doc! { "a": { "b": [1, 2] } }.into(),
        doc! { "b": 1, "a": 1 }.into(),
        doc! { "a": 1, "b": 1 }.into(),
        Document::new().into(),
        "x".repeat(300).into(),
        ("x".repeat(300) + "y").into(),
    ]
}

/// Three items for each value and three without the key, in rounds, so that no page is filled in one go.
fn items() -> Vec<Document> {
    let keys: Vec<Bson> = numbers().into_iter().chain(others()).collect();
    let mut items = Vec::new();
    for round in 0..3 {
        for key in &keys {
            items.push(doc! { "_id": i32::try_from(items.len()).unwrap(), "k": key.clone(), "round": round });
        }
        items.push(doc! { "_id": i32::try_from(items.len()).unwrap(), "round": round });
    }
    items
}

/// Both sides of a comparison: the plain collection on mongod, the shaped one through the proxy.
struct Sides {
    shaped: Shaped,
    direct: Connection,
    application: Connection,
}

impl Sides {
    fn filled(options: &str) -> Result<Self> {
        let shaped = Shaped::start(options)?;
        let (mut direct, mut application) = (shaped.direct()?, shaped.application()?);
        let plain = doc! { "insert": PLAIN, "documents": items(), "$db": &shaped.database };
        assert_eq!(direct.command_ok(&plain)?.get_i32("n")?, i32::try_from(items().len())?);
        // A few at a time: pages must grow, too.
        for some in items().chunks(7) {
            let reply = application.command_ok(&shaped.insert(some))?;
            assert!(!reply.contains_key("writeErrors"), "{reply}");
        }
        Ok(Self {
            shaped,
            direct,
            application,
        })
    }

    /// Runs a command on both and gives the results as bytes: types and the order of fields and items count.
    fn compare(&mut self, name: &str, arguments: &Document) -> Result<()> {
        let on = |collection: &str| {
            let mut command = doc! { name: collection };
            command.extend(arguments.clone());
            command.insert("$db", self.shaped.database.as_str());
            command
        };
        let (plain, shaped) = if name == "count" {
            let number = |reply: Document| vec![doc! { "n": reply.get("n").cloned() }];
            let plain = number(self.direct.command_ok(&on(PLAIN))?);
            (plain, number(self.application.command_ok(&on(COLLECTION))?))
        } else {
            (self.direct.all(&on(PLAIN))?, self.application.all(&on(COLLECTION))?)
        };
        let bytes = |documents: &[Document]| documents.iter().map(Document::to_vec).collect::<Result<Vec<_>, _>>();
        let same = bytes(&plain)? == bytes(&shaped)?;
        assert!(same, "{name} {arguments:?}\nplain  {plain:?}\nshaped {shaped:?}");
        Ok(())
    }
}

#[test]
fn every_key_finds_the_items_of_a_plain_collection() -> Result<()> {
    let mut sides = Sides::filled("")?;
    for key in numbers().into_iter().chain(others()) {
        let mut filters = vec![doc! { "k": { "$eq": key.clone() } }];
        if matches!(key, Bson::RegularExpression(_)) {
            // A pattern for many keys, which come in no promised order.
            let sorted = doc! { "filter": { "k": { "$in": [key.clone()] } }, "sort": { "_id": 1 } };
            sides.compare("find", &sorted)?;
        } else {
            filters.push(doc! { "k": { "$in": [key.clone()] } });
            filters.push(doc! { "k": key });
        }
        for filter in filters {
            sides.compare("find", &doc! { "filter": filter.clone() })?;
            sides.compare("find", &doc! { "filter": filter.clone(), "limit": 2 })?;
            sides.compare("find", &doc! { "filter": filter.clone(), "skip": 1, "limit": 50 })?;
            sides.compare("find", &doc! { "filter": filter.clone(), "sort": { "_id": -1 } })?;
            sides.compare("count", &doc! { "query": filter })?;
        }
    }
    sides.compare("find", &doc! { "sort": { "_id": 1 } })?;
    sides.compare("count", &doc! {})?;
    LAYOUT.check(&sides.shaped.stored()?)?;
    Ok(())
}

#[test]
fn other_conditions_on_the_key_find_the_same_too() -> Result<()> {
    let mut sides = Sides::filled("")?;
    let conditions = [
        doc! { "$exists": true },
        doc! { "$exists": false },
        doc! { "$type": "double" },
        doc! { "$type": "number" },
        doc! { "$ne": 1 },
        doc! { "$gte": 1, "$lt": 124 },
        doc! { "$gt": "12" },
        doc! { "$lte": f64::NAN },
        doc! { "$in": [1, "12_3", Bson::Null] },
        doc! { "$nin": [1, "12_3", Bson::Null] },
        doc! { "$not": { "$gt": 1 } },
        doc! { "$regex": "^12" },
        doc! { "$mod": [2, 1] },
    ];
    for condition in conditions {
        let filter = doc! { "k": condition };
        sides.compare("find", &doc! { "filter": filter.clone(), "sort": { "_id": 1 } })?;
        sides.compare("count", &doc! { "query": filter })?;
    }
    for filter in [
        doc! { "k.a": 1 },
        doc! { "k.a.b": 2 },
        doc! { "$or": [{ "k": 1 }, { "k": "12" }] },
    ] {
        sides.compare("find", &doc! { "filter": filter, "sort": { "_id": 1 } })?;
    }
    Ok(())
}

#[test]
fn pages_begun_in_the_same_second_coexist() -> Result<()> {
    let shaped = Shaped::start("time = \"at\"")?;
    let at = DateTime::from_millis(1_698_335_223_434);
    let layout = Layout {
        time: Some("at"),
        ..LAYOUT
    };
    let mut application = shaped.application()?;
    let items: Vec<_> = (0..25).map(|number| doc! { "_id": number, "k": 7, "at": at }).collect();
    application.command_ok(&shaped.insert(&items))?;
    for number in 25..61 {
        let key: Bson = if number % 2 == 0 { 123.into() } else { "123".into() };
        let reply = application.command_ok(&shaped.insert(&[doc! { "_id": number, "k": key, "at": at }]))?;
        assert_eq!(reply.get_i32("n")?, 1, "{reply}");
    }
    let keys = layout.check(&shaped.stored()?)?;
    let mut lengths: Vec<_> = keys
        .iter()
        .map(|pages| pages.iter().map(|page| buckets::items(page).len()).collect::<Vec<_>>())
        .collect();
    lengths.sort();
    assert_eq!(lengths, [vec![10, 8], vec![10, 8], vec![10, 10, 5]]);
    for (key, expected) in [(Bson::from(7), 25), (123.into(), 18), ("123".into(), 18)] {
        let found = application.find(&shaped.database, COLLECTION, doc! { "k": key.clone() })?;
        assert_eq!(found.len(), expected);
        assert!(found.iter().all(|item| item.get("k") == Some(&key)));
    }
    Ok(())
}

#[test]
fn an_array_is_no_key() -> Result<()> {
    let shaped = Shaped::start("")?;
    let mut application = shaped.application()?;
    application.command_ok(&shaped.insert(&[doc! { "_id": 1, "k": 1 }]))?;
    let before = shaped.stored()?;
    for key in [Bson::Array(vec![1.into()]), Bson::Array(vec![])] {
        let reply = application.command_ok(&shaped.insert(&[doc! { "_id": 2, "k": key }]))?;
        assert_eq!(reply.get_i32("n")?, 0);
        let error = reply.get_array("writeErrors")?[0].as_document().unwrap().clone();
        assert_eq!((error.get_i32("index")?, error.get_i32("code")?), (0, 2), "{error}");
        assert!(error.get_str("errmsg")?.contains("cannot be a key"), "{error}");
        assert_eq!(shaped.stored()?, before);
    }
    let three = |first: i32| {
        let item = |offset: i32, key: Bson| doc! { "_id": first + offset, "k": key };
        [
            item(0, 1.into()),
            item(1, Bson::Array(vec![1.into()])),
            item(2, 1.into()),
        ]
    };
    for (ordered, first, stored) in [(true, 10, vec![10]), (false, 20, vec![20, 22])] {
        let mut command = shaped.insert(&three(first));
        command.insert("ordered", ordered);
        let reply = application.command_ok(&command)?;
        assert_eq!(reply.get_i32("n")?, i32::try_from(stored.len())?);
        let errors = reply.get_array("writeErrors")?;
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].as_document().unwrap().get_i32("index")?, 1);
        let found = application.find(&shaped.database, COLLECTION, doc! { "_id": { "$gte": first } })?;
        assert_eq!(
            found
                .iter()
                .map(|item| item.get_i32("_id").unwrap())
                .collect::<Vec<_>>(),
            stored
        );
    }
    LAYOUT.check(&shaped.stored()?)?;
    Ok(())
}
