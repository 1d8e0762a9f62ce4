//! `update`: of one document that the filter names, or of many by what cannot fail on some of them.

use bson::{Bson, Document, bson, doc};

use super::Operation;
use super::writes::Writes;
use crate::differential::World;
use crate::differential::compare::Canon;

pub(super) fn generate(world: &mut World) -> Box<dyn Operation> {
    Box::new(make_up(world))
}

pub(super) fn make_up(world: &mut World) -> Writes {
    let count = world.pick(&[1, 1, 1, 2, 3, 5]);
    let mut options = doc! {};
    if world.chance(30) {
        options.insert("let", doc! { "x": world.scalar() });
    }
    let statements = (0..count).map(|_| statement(world, options.contains_key("let")));
    let statements = statements.collect();
    match world.below(4) {
        0 => options.extend(doc! { "ordered": true }),
        1 => options.extend(doc! { "ordered": false }),
        _ => {}
    }
    let sent = if world.has_sessions {
        world.pick(&[0, 0, 1, 2, 3])
    } else {
        0
    };
    Writes {
        name: "update",
        list: "updates",
        statements,
        options,
        sent,
        canon: world.canon(),
    }
}

fn statement(world: &mut World, has_variable: bool) -> Document {
    let mut statement = match world.below(10) {
        0 | 1 => many(world),
        2 | 3 => upsert(world),
        _ => {
            let (filter, number) = world.filter_of_one();
            let change = world.change(number);
            let mut statement = doc! { "q": filter, "u": change.update };
            if let Some(filters) = change.array_filters {
                statement.insert("arrayFilters", filters);
            }
            if world.chance(10) {
                statement.insert("multi", true);
            }
            statement
        }
    };
    match world.below(40) {
        0 => statement.insert(
            "hint",
            world.pick(&[bson!("_id_"), bson!({ "_id": 1 }), bson!({ "$natural": 1 })]),
        ),
        1 => statement.insert("hint", world.pick(&[bson!("nope"), bson!({ "qty": 1 })])),
        2 | 3 => statement.insert("collation", doc! { "locale": "en", "strength": 2 }),
        _ => None,
    };
    if has_variable
        && world.chance(20)
        && statement
            .get_document("q")
            .is_ok_and(|filter| !filter.contains_key("$expr"))
    {
        statement.insert("q", with(&statement, "$expr", bson!({ "$gte": ["$n", "$$x"] })));
    }
    if statement.contains_key("upsert") && world.chance(80) {
        statement.remove("collation");
    }
    statement
}

fn with(statement: &Document, name: &str, value: Bson) -> Document {
    let mut filter = statement.get_document("q").cloned().unwrap_or_default();
    filter.insert(name, value);
    filter
}

fn many(world: &mut World) -> Document {
    let change = world.sure_change();
    let filter = doc! { "$and": [world.filter_of_some(), change.needs] };
    let mut statement = doc! { "q": filter, "u": change.update, "multi": true };
    if let Some(filters) = change.array_filters {
        statement.insert("arrayFilters", filters);
    }
    statement
}

fn upsert(world: &mut World) -> Document {
    let (filter, number) = upserting_filter(world);
    let change = world.change(number);
    let mut statement = doc! { "q": filter, "u": change.update, "upsert": true };
    if let Some(filters) = change.array_filters {
        statement.insert("arrayFilters", filters);
    }
    if world.chance(10) {
        statement.insert("multi", true);
    }
    statement
}

/// A filter that names a document which is there by nothing but its number, or one that is not there by more: what is made
/// has a number of its own.
pub(super) fn upserting_filter(world: &mut World) -> (Document, i32) {
    if world.chance(30) {
        let number = world.some_serial();
        return (doc! { "n": number }, number);
    }
    let number = world.next_serial();
    let mut filter = match world.below(10) {
        0..=2 => doc! {},
        3..=6 => world.one_key(),
        7 | 8 => doc! { world.pick(&["qty", "count", "nested.x", "tags"]): world.value() },
        _ => world.any_filter(1),
    };
    if world.chance(20) && world.has_ids() {
        let id = world.new_or_given_id();
        filter.insert("_id", id);
    }
    filter.insert("n", number);
    world.remember(number, &filter);
    (filter, number)
}

impl World {
    /// How whole documents are compared.
    pub(in crate::differential) fn canon(&self) -> Canon {
        Canon {
            without_id: !self.has_ids(),
            in_order: self.outlier.is_some(),
            ..Canon::default()
        }
    }
}
