//! `find`, with `getMore` until the cursor is exhausted, or with `killCursors`.

use anyhow::{Context as _, Result};
use bson::{Bson, Document, bson, doc};

use super::cursor::{self, Batches, Reading};
use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon, Order};
use crate::differential::filter::names_id;
use crate::differential::grammar::{
    BatchSize, Collation, CursorEnd, FIND, FindForm, Harmless, Hint, Let, Limit, SingleBatch, Skip, Sort,
};
use crate::differential::sides::COLLECTION;
use crate::differential::{Generator, Sides};

#[derive(Debug)]
struct Find {
    command: Document,
    batches: Batches,
    order: Order,
    canon: Canon,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    match generator.take::<FindForm>() {
        FindForm::Ordinary => {}
        FindForm::Mistake => return by_command(generator, wrong),
        FindForm::Refused => return by_command(generator, refused),
    }
    let (mut command, order) = generator.group(&FIND, ordinary);
    // Refused of outliers, and on a plain collection mostly a mistake: of two mistakes, either may be
    // reported.
    if generator.outlier.is_some()
        && command
            .get_document("sort")
            .is_ok_and(|sort| sort.contains_key("$natural"))
    {
        command.remove("hint");
    }
    let order = settle_order(order, &command);
    let mut batches = generator.batches();
    batches.may_end_later = !command.get_bool("singleBatch").unwrap_or(false);
    batches.in_any_order = order != Order::Defined;
    Box::new(Find {
        command,
        batches,
        order,
        canon: generator.canon(),
    })
}

fn by_command(generator: &mut Generator, command: impl FnOnce(&mut Generator) -> Document) -> Box<dyn Operation> {
    let command = command(generator);
    Box::new(Find {
        command,
        batches: generator.batches(),
        order: Order::FreeChoice,
        canon: generator.canon(),
    })
}

fn ordinary(generator: &mut Generator) -> (Document, Order) {
    let mut command = doc! { "find": COLLECTION };
    let mut filter = generator.filter();
    generator.append_let(&mut command, &mut filter);
    if !filter.is_empty() || generator.chance(50) {
        command.insert("filter", filter.clone());
    }
    let order = append_sort(generator, &mut command, &filter);
    // A sort by a path with `$` fails, and may not be the only mistake.
    let fails = command
        .get_document("sort")
        .is_ok_and(|sort| sort.keys().any(|path| path.contains(".$")));
    if let Some(projection) = generator.projection(&filter).filter(|_| !fails) {
        command.insert("projection", projection);
    }
    append_sizes(generator, &mut command);
    if let Some(collation) = generator.collation() {
        command.insert("collation", collation);
    }
    if let Some(hint) = generator.hint() {
        command.insert("hint", hint);
    }
    if generator.take::<Harmless>() == Harmless::Some {
        let harmless = [
            doc! { "allowDiskUse": true },
            doc! { "noCursorTimeout": true },
            doc! { "maxTimeMS": 20_000 },
            doc! { "maxTimeMS": 20_000.0 },
            doc! { "comment": "nothing" },
            doc! { "allowPartialResults": true },
            doc! { "returnKey": false },
            doc! { "showRecordId": false },
            doc! { "readConcern": { "level": "local" } },
            doc! { "$readPreference": { "mode": "primaryPreferred" } },
        ];
        command.extend(generator.example("find.harmless", &harmless));
    }
    (command, order)
}

fn append_sort(generator: &mut Generator, command: &mut Document, filter: &Document) -> Order {
    let (keys, time) = (generator.shape.key.clone(), generator.shape.time.clone());
    let has_time = time.is_some();
    let sort = generator.take_where(|sort: Sort| match sort {
        Sort::Time | Sort::TimeAndTotal | Sort::KeyAndTime => has_time,
        _ => true,
    });
    let mut fields: Vec<String> = Vec::new();
    if matches!(sort, Sort::Key | Sort::KeyAndTime | Sort::KeyAndTotal) {
        fields.extend(keys);
    }
    if matches!(sort, Sort::Time | Sort::KeyAndTime | Sort::TimeAndTotal) {
        fields.extend(time);
    }
    if fields.len() > 1 && generator.chance(20) {
        fields.reverse();
    }
    let mut by: Document = fields
        .iter()
        .map(|field| (field.clone(), generator.pick(&[1, -1]).into()))
        .collect();
    match sort {
        Sort::None if generator.is_one_key(filter) && !names_id(filter) => return Order::Defined,
        Sort::None => return Order::Free,
        Sort::Natural => {
            command.insert("sort", doc! { "$natural": generator.pick(&[1, -1]) });
            return Order::Free;
        }
        Sort::Total => {
            command.insert("sort", generator.total_sort());
            return Order::Defined;
        }
        Sort::TimeAndTotal | Sort::KeyAndTotal => {
            by.insert("n", generator.pick(&[1, -1]));
            command.insert("sort", by);
            return Order::Defined;
        }
        Sort::Time | Sort::Key | Sort::KeyAndTime => {}
    }
    command.insert("sort", by);
    Order::ByFields(fields)
}

/// The order that is left when everything else of the command is known.
fn settle_order(order: Order, command: &Document) -> Order {
    let has = |name: &str| command.contains_key(name);
    let by_sort = has("sort");
    match order {
        // Under another collation several keys may be meant, by a hint the plain side has another natural
        // order.
        Order::Defined if !by_sort && (has("collation") || has("hint") || has("let")) => Order::FreeChoice,
        Order::Defined if !by_sort && !has("filter") => Order::FreeChoice,
        Order::Free => Order::FreeChoice,
        // Strings that are equal under a collation come in any order; a projection may show others than were
        // sorted by.
        Order::ByFields(_) if !by_sort || has("collation") || has("projection") => Order::FreeChoice,
        other => other,
    }
}

fn append_sizes(generator: &mut Generator, command: &mut Document) {
    if let Some(skip) = generator.skip() {
        command.insert("skip", skip);
    }
    match generator.take::<Limit>() {
        Limit::None => None,
        Limit::Zero => command.insert("limit", 0),
        Limit::One => command.insert("limit", 1),
        Limit::Few => command.insert("limit", 2),
        Limit::Many => command.insert("limit", generator.pick(&[10, 15])),
        Limit::Long => command.insert("limit", Bson::Int64(40)),
        Limit::Double => command.insert("limit", 2.0),
        Limit::Fraction => command.insert("limit", 2.7),
    };
    if let Some(size) = generator.batch_size() {
        command.insert("batchSize", size);
    }
    match generator.take::<SingleBatch>() {
        SingleBatch::None => None,
        SingleBatch::Yes => command.insert("singleBatch", true),
        SingleBatch::No => command.insert("singleBatch", false),
    };
}

/// One mistake: with two in one command, the reported one depends on the order of checks.
fn wrong(generator: &mut Generator) -> Document {
    let mistakes = [
        doc! { "skip": -1 },
        doc! { "limit": -10 },
        doc! { "batchSize": -1 },
        doc! { "skip": "x" },
        doc! { "limit": "x" },
        doc! { "limit": Bson::Null },
        doc! { "batchSize": 2.5 },
        doc! { "batchSize": "x" },
        doc! { "singleBatch": "x" },
        doc! { "hint": "nope" },
        doc! { "hint": { "qty": 1 } },
        doc! { "hint": { "_id": -1 } },
        doc! { "hint": 1 },
        doc! { "hint": { "$natural": "x" } },
        doc! { "hint": { "$natural": 2 } },
        doc! { "filter": 1 },
        doc! { "sort": 1 },
        doc! { "sort": { "qty": 0 } },
        doc! { "sort": { "qty": "x" } },
        doc! { "sort": { "": 1 } },
        doc! { "sort": { "k": 1, "$natural": 1 } },
        doc! { "projection": [1] },
        doc! { "collation": { "locale": "nope" } },
        doc! { "collation": 1 },
        doc! { "nope": 1 },
        doc! { "maxTimeMS": -1 },
        doc! { "maxTimeMS": "x" },
        doc! { "maxTimeMS": 20_000.5 },
        doc! { "maxTimeMS": Bson::Int64(1 << 40) },
        doc! { "maxTimeMS": Bson::Null },
        doc! { "tailable": true },
        doc! { "awaitData": true, "tailable": true },
        doc! { "awaitData": true },
        doc! { "let": 1 },
        doc! { "readConcern": { "level": "nope" } },
        doc! { "let": { "x": 1 }, "filter": { "$expr": { "$eq": ["$n", "$$y"] } } },
    ];
    let mut command = doc! { "find": COLLECTION };
    command.extend(generator.example("find.mistake", &mistakes));
    command
}

fn refused(generator: &mut Generator) -> Document {
    let refused = [
        doc! { "returnKey": true },
        doc! { "showRecordId": true },
        doc! { "min": { "_id": 1 }, "hint": { "_id": 1 } },
        doc! { "max": { "_id": 1 }, "hint": { "_id": 1 } },
    ];
    let mut command = doc! { "find": COLLECTION };
    command.extend(generator.example("find.refused", &refused));
    if generator.outlier.is_some() {
        // Each server numbers its records itself.
        command.remove("showRecordId");
    }
    command
}

impl Generator {
    /// The options of `getMore`.
    pub(super) fn batches(&mut self) -> Batches {
        let sizes = (0..=self.below(3)).map(|_| self.pick(&[None, Some(1), Some(2), Some(7), Some(50), Some(0)]));
        let sizes = sizes.collect();
        let until_killed = match self.take::<CursorEnd>() {
            CursorEnd::Killed => 1,
            CursorEnd::Read => usize::MAX,
        };
        Batches {
            sizes,
            until_killed,
            may_end_later: true,
            in_any_order: false,
        }
    }

    pub(super) fn skip(&mut self) -> Option<Bson> {
        match self.take::<Skip>() {
            Skip::None => None,
            Skip::Zero => Some(bson!(0)),
            Skip::Few => Some(self.pick(&[bson!(1), bson!(3), bson!(10), Bson::Int64(25), bson!(2.0)])),
            Skip::Beyond => Some(bson!(1000)),
        }
    }

    pub(super) fn batch_size(&mut self) -> Option<i32> {
        match self.take::<BatchSize>() {
            BatchSize::None => None,
            BatchSize::Zero => Some(0),
            BatchSize::One => Some(1),
            BatchSize::Few => Some(self.pick(&[2, 5])),
            BatchSize::Many => Some(self.pick(&[10, 100])),
        }
    }

    pub(super) fn collation(&mut self) -> Option<Document> {
        match self.take::<Collation>() {
            Collation::None => None,
            Collation::Insensitive => Some(doc! { "locale": "en", "strength": 2 }),
            Collation::Numeric => Some(doc! { "locale": "en", "numericOrdering": true }),
            Collation::Simple => Some(doc! { "locale": "simple" }),
        }
    }

    pub(super) fn hint(&mut self) -> Option<Bson> {
        // mongod 6.0.5 sorts no clustered collection by `_id` that is read in its natural order.
        let is_clustered = self.shape.is_clustered;
        match self.take_where(|hint: Hint| !is_clustered || matches!(hint, Hint::None | Hint::Id | Hint::IdByKey)) {
            Hint::None => None,
            Hint::Id => Some(bson!("_id_")),
            Hint::IdByKey => Some(bson!({ "_id": 1 })),
            Hint::Natural => Some(bson!({ "$natural": 1 })),
            Hint::NaturalBackwards => Some(bson!({ "$natural": -1 })),
            Hint::Empty => Some(bson!({})),
        }
    }

    /// A variable, and perhaps a condition by it.
    pub(super) fn append_let(&mut self, command: &mut Document, filter: &mut Document) {
        let may_use = !filter.contains_key("$expr");
        match self.take_where(|form: Let| may_use || form != Let::Used) {
            Let::None => return,
            Let::Unused => {}
            Let::Used => {
                filter.insert("$expr", doc! { "$gte": ["$n", "$$x"] });
            }
        }
        command.insert("let", doc! { "x": bson!({ "$literal": self.scalar() }) });
    }
}

impl Operation for Find {
    fn commands(&self) -> Vec<Document> {
        vec![self.command.clone()]
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        let answers = match cursor::answers(sides, &self.command, &self.batches)? {
            Reading::Answers(answers) => answers,
            Reading::Ended(outcome) => return Ok(outcome),
        };
        // With a batch size of 0 neither side sorts. mongod may refuse to sort all of it: symbols under a
        // collation.
        let has_answers = !answers.plain.is_empty() || !answers.shaped.is_empty();
        let chosen = has_answers && matches!(self.order, Order::FreeChoice | Order::ByFields(_));
        let all = if chosen { self.everything(sides)? } else { Vec::new() };
        compare::documents(self.canon, &self.order, &answers.plain, &answers.shaped, &all)?;
        Ok(Outcome::Done)
    }
}

impl Find {
    /// What the plain side has to choose from.
    fn everything(&self, sides: &mut Sides) -> Result<Vec<bson::RawDocumentBuf>> {
        let mut command = self.command.clone();
        for name in ["skip", "limit", "batchSize", "singleBatch"] {
            command.remove(name);
        }
        command.insert("$db", sides.plain.database.as_str());
        crate::invariants::read_all(sides.plain.routes.any(), &command).context("everything that matches")
    }
}
