//! `delete`: one document that the filter names, or all that match.

use bson::{Document, bson, doc};

use super::Operation;
use super::writes::Writes;
use crate::differential::World;

pub(super) fn generate(world: &mut World) -> Box<dyn Operation> {
    Box::new(make_up(world))
}

pub(super) fn make_up(world: &mut World) -> Writes {
    let count = world.pick(&[1, 1, 2, 3]);
    let mut options = doc! {};
    if world.chance(20) {
        options.insert("let", doc! { "x": world.scalar() });
    }
    let statements = (0..count).map(|_| statement(world, options.contains_key("let")));
    let statements = statements.collect();
    if world.chance(40) {
        options.insert("ordered", world.chance(50));
    }
    let sent = if world.has_sessions {
        world.pick(&[0, 0, 1, 2, 3])
    } else {
        0
    };
    Writes {
        name: "delete",
        list: "deletes",
        statements,
        options,
        sent,
        canon: world.canon(),
    }
}

fn statement(world: &mut World, has_variable: bool) -> Document {
    let mut statement = match world.below(20) {
        0..=3 => doc! { "q": world.filter_of_some(), "limit": 0 },
        4 => doc! { "q": world.one_key(), "limit": 0 },
        5 => {
            if let Some(id) = world.some_id().filter(|_| world.has_ids()) {
                doc! { "q": { "_id": { "$eq": id } }, "limit": world.pick(&[0, 1]) }
            } else {
                doc! { "q": { "n": -1 }, "limit": 1 }
            }
        }
        _ => doc! { "q": world.filter_of_one().0, "limit": world.pick(&[1, 1, 0]) },
    };
    match world.below(40) {
        0 => statement.insert("hint", world.pick(&[bson!("_id_"), bson!({ "_id": 1 })])),
        1 => statement.insert("hint", world.pick(&[bson!("nope"), bson!({ "qty": 1 })])),
        2 | 3 => statement.insert("collation", doc! { "locale": "en", "strength": 2 }),
        4 if world.chance(30) => statement.insert("limit", world.pick(&[2, -1])),
        _ => None,
    };
    if has_variable
        && world.chance(30)
        && statement
            .get_document("q")
            .is_ok_and(|filter| !filter.contains_key("$expr"))
        && let Ok(filter) = statement.get_document_mut("q")
    {
        filter.insert("$expr", doc! { "$gte": ["$n", "$$x"] });
    }
    statement
}
