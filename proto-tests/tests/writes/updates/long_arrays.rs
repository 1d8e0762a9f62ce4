//! Updates of items with long arrays, located by a filter: the statement demands that the item is unchanged.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Decimal128, Document, bson, doc};
use proto_tests::delaying_relay::{DelayingRelay, Fate};
use proto_tests::raw::Connection;
use proto_tests::{Shape, mongod};

use crate::updates::sides::{COLLECTION, Sides};

fn shape() -> Shape {
    Shape {
        items_change: true,
        ..Shape::new(&["k"])
    }
}

fn many(filter: Document, change: impl Into<Bson>) -> Document {
    let change: Bson = change.into();
    let statement = doc! { "q": filter, "u": change, "multi": true };
    doc! { "update": COLLECTION, "updates": [statement] }
}

/// The coordinates of a polygon. A driver can send whole ones as integers.
fn ring(points: i32) -> Bson {
    let point = |number: i32| match number % 3 {
        0 => bson!([number % 180, f64::from(number) / 7.0]),
        1 => bson!([0.0, -0.0]),
        _ => bson!([f64::from(number % 90) / 3.0, 2.5]),
    };
    Bson::Array((0..points).map(point).collect())
}

#[test]
fn items_with_very_many_numbers_are_updated() -> Result<()> {
    let mut sides = Sides::open(shape())?;
    let item = |id: i32| doc! { "_id": id, "k": id, "n": 0, "area": { "coordinates": [ring(60_000)] } };
    sides.alike(&doc! { "insert": COLLECTION, "documents": [item(0), item(1)] })?;
    for command in [
        many(doc! { "n": 0 }, doc! { "$inc": { "n": 1 } }),
        many(doc! { "n": 1 }, bson!([{ "$set": { "m": "$n" } }])),
        many(
            doc! { "k": 0, "m": 1 },
            doc! { "$set": { "area.coordinates.0.2.1": 7 } },
        ),
    ] {
        sides.alike(&command)?;
    }
    sides.check()
}

/// A value, and one that mongod compares as equal.
fn equal_values() -> Result<Vec<(Bson, Bson)>> {
    let list = |value: Bson| Bson::Array((0..20).map(Bson::Int32).chain([value]).collect());
    let texts = |value: Bson| Bson::Array(vec![list(bson!("text")), value]);
    let decimal = |text: &str| -> Result<Bson> { Ok(Bson::Decimal128(text.parse::<Decimal128>()?)) };
    Ok(vec![
        (list(bson!(1)), list(bson!(1.0))),
        (list(bson!(1_i64)), list(bson!(1))),
        (list(bson!(0.0)), list(bson!(-0.0))),
        (list(decimal("1.0")?), list(decimal("1.00")?)),
        (list(list(bson!(1))), list(list(bson!(1.0)))),
        (
            list(bson!({ "a": { "b": [0.0] } })),
            list(bson!({ "a": { "b": [-0.0] } })),
        ),
        (texts(bson!("a")), texts(Bson::Symbol("a".to_owned()))),
    ])
}

#[test]
fn a_change_to_an_equal_value_in_a_long_array_is_not_lost() -> Result<()> {
    let set = mongod::shared_replica_set();
    let relay = DelayingRelay::to(set.address())?;
    let mut sides = Sides::at(shape(), (relay.uri(), set.address()))?;
    let database = sides.shaped_database();
    let second = sides.another_proxy_to(&set.uri())?;
    for (number, (before, after)) in (0_i32..).zip(equal_values()?) {
        let item = doc! { "_id": number, "k": 1, "number": number, "value": before };
        sides
            .shaped
            .command_ok(&doc! { "insert": COLLECTION, "documents": [item], "$db": &database })?;
        let mut change = many(doc! { "_id": number }, doc! { "$set": { "value": after.clone() } });
        change.insert("$db", &database);
        let mut other = Some(Connection::open(second.address())?);
        // Other updates have their statement in the body.
        relay.judge(move |command| {
            if command.contains_key("update")
                && !command.contains_key("updates")
                && let Some(mut other) = other.take()
            {
                other.command_ok(&change).expect("the other client's update");
            }
            Fate::Arrives
        });
        let mut command = many(doc! { "number": number }, bson!([{ "$set": { "seen": true } }]));
        command.insert("$db", &database);
        let reply = sides.shaped.command_ok(&command)?;
        ensure!(reply.get_i32("n")? == 1, "{reply}");
        let items = sides.items(true)?;
        let item = items.last().context("no item")?;
        ensure!(
            item.get_bool("seen")? && format!("{:?}", item.get("value")) == format!("{:?}", Some(&after)),
            "{item:?}"
        );
    }
    sides.check_layout()
}
