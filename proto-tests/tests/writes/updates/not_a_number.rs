//! NaN values.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::ItemIds;
use proto_tests::measure::rows;

use crate::updates::sides::{self, ALL_IDS, COLLECTION, Sides, at};

/// The replies of both sides and what is there afterwards, compared by what they look like: `NaN` is not
/// `NaN`.
fn alike(sides: &mut Sides, command: &Document) -> Result<()> {
    let [plain, shaped] = sides.run(command)?.map(|mut reply| {
        if let Ok(value) = reply.get_document_mut("value") {
            value.remove("_id");
            value.remove("quantity");
        }
        format!("{reply:?}")
    });
    ensure!(plain == shaped, "{command}\n  plain:  {plain}\n  shaped: {shaped}");
    let one = |items: Vec<Document>| -> Vec<String> {
        let ones = items.into_iter().filter(|item| item.get_i32("u").ok() == Some(4));
        ones.map(|mut item| {
            item.remove("_id");
            // In an order that does not depend on that of fields.
            let mut fields: Vec<String> = item.iter().map(|field| format!("{field:?}")).collect();
            fields.sort();
            fields.join(", ")
        })
        .collect()
    };
    let (plain, shaped) = (one(sides.items(false)?), one(sides.items(true)?));
    ensure!(plain == shaped, "{command}\n  plain:  {plain:?}\n  shaped: {shaped:?}");
    Ok(())
}

fn changes(value: &Bson) -> Vec<Bson> {
    let other = Bson::Double(f64::from_bits(0x7ff8_0000_0000_0001));
    let whole = doc! { "k": 1, "at": at(4), "n": 4, "u": 4, "w": value };
    let mut named = doc! { "_id": 4 };
    named.extend(whole.clone());
    vec![
        doc! { "$set": { "w": value } }.into(),
        doc! { "$set": { "w": value, "n": 4 } }.into(),
        doc! { "$set": { "w": &other } }.into(),
        doc! { "$set": { "w": f64::NAN } }.into(),
        doc! { "$set": { "w": value } }.into(),
        doc! { "$max": { "w": value } }.into(),
        doc! { "$min": { "w": value } }.into(),
        vec![doc! { "$set": { "w": value } }].into(),
        vec![doc! { "$set": { "w": { "$literal": value } } }].into(),
        vec![doc! { "$set": { "k": 1, "at": "$at" } }].into(),
        doc! { "$set": { "k": 1 } }.into(),
        doc! { "$set": { "n": f64::NAN } }.into(),
        doc! { "$inc": { "n": 1 } }.into(),
        doc! { "$mul": { "n": 2 } }.into(),
        vec![doc! { "$set": { "n": { "$add": ["$n", 1] } } }].into(),
        doc! { "$rename": { "w": "x" } }.into(),
        doc! { "$rename": { "x": "w" } }.into(),
        doc! { "$push": { "tags": f64::NAN } }.into(),
        doc! { "$addToSet": { "tags": f64::NAN } }.into(),
        doc! { "$pull": { "tags": f64::NAN } }.into(),
        whole.clone().into(),
        whole.into(),
        named.clone().into(),
        named.into(),
    ]
}

#[test]
fn unchanged_nan_is_counted_like_mongod() -> Result<()> {
    let nan = || Bson::Double(f64::NAN);
    let values = [
        nan(),
        Bson::Decimal128("NaN".parse()?),
        doc! { "a": nan() }.into(),
        vec![nan()].into(),
    ];
    for (place, item_ids) in ALL_IDS.into_iter().enumerate() {
        let mut sides = sides::of(item_ids)?;
        for (number, value) in values.iter().enumerate() {
            for change in rows(changes(value), 5, number + 2 * place) {
                let is_whole = change.as_document().is_some_and(|change| change.contains_key("w"));
                let names_it = change.as_document().is_some_and(|change| change.contains_key("_id"));
                for (filter, multi) in [
                    (doc! { "u": 4 }, false),
                    (doc! { "u": 4 }, true),
                    (doc! { "_id": 4 }, false),
                ] {
                    let by_id = filter.contains_key("_id");
                    if (item_ids == ItemIds::Dropped && (by_id || names_it)) || (multi && is_whole) {
                        continue;
                    }
                    let update = doc! { "q": &filter, "u": &change, "multi": multi };
                    let context = || format!("{item_ids:?}, {value:?}");
                    alike(&mut sides, &doc! { "update": COLLECTION, "updates": [update] }).with_context(context)?;
                    if multi {
                        continue;
                    }
                    let find = doc! { "findAndModify": COLLECTION, "query": &filter, "update": &change };
                    alike(&mut sides, &find).with_context(context)?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn unchanged_nan_key_is_counted_like_mongod() -> Result<()> {
    for item_ids in ALL_IDS {
        let mut sides = sides::of(item_ids)?;
        let key = doc! { "update": COLLECTION, "updates": [{ "q": { "u": 4 }, "u": { "$set": { "k": f64::NAN } } }] };
        alike(&mut sides, &key)?;
        let other = f64::from_bits(0xfff8_0000_0000_0000);
        let changes: [Bson; 12] = [
            doc! { "$set": { "k": f64::NAN } }.into(),
            doc! { "$set": { "k": f64::NAN, "n": 5 } }.into(),
            doc! { "$set": { "k": other } }.into(),
            doc! { "$inc": { "k": 1 } }.into(),
            doc! { "$inc": { "k": 1 }, "$set": { "n": 7 } }.into(),
            doc! { "$mul": { "k": 2, "n": 2 } }.into(),
            doc! { "$min": { "k": f64::NAN } }.into(),
            doc! { "$max": { "k": f64::NAN } }.into(),
            vec![doc! { "$set": { "k": f64::NAN } }].into(),
            vec![doc! { "$set": { "k": { "$add": ["$k", 1] } } }].into(),
            vec![doc! { "$set": { "n": f64::NAN } }].into(),
            doc! { "k": f64::NAN, "at": at(4), "n": 4, "u": 4 }.into(),
        ];
        for change in &changes {
            for (filter, multi) in [
                (doc! { "u": 4 }, false),
                (doc! { "u": 4 }, true),
                (doc! { "_id": 4 }, false),
            ] {
                let is_whole = change.as_document().is_some_and(|change| change.contains_key("k"));
                if (item_ids == ItemIds::Dropped && filter.contains_key("_id")) || (multi && is_whole) {
                    continue;
                }
                let update = doc! { "q": &filter, "u": change, "multi": multi };
                alike(&mut sides, &doc! { "update": COLLECTION, "updates": [update] })?;
                if !multi {
                    let find = doc! { "findAndModify": COLLECTION, "query": &filter, "update": change };
                    alike(&mut sides, &find)?;
                }
            }
        }
    }
    Ok(())
}
