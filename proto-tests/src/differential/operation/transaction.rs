//! A transaction: inserts, and reads of its own writes. It is committed or aborted.

use anyhow::{Context as _, Result};
use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{Document, doc};

use super::find_and_modify::{self, FindAndModify};
use super::insert::{Insert, with_keys_only};
use super::writes::Writes;
use super::{Operation, Outcome, delete, update};
use crate::differential::compare::{self, Canon, Order};
use crate::differential::grammar::{StepForm, TransactionEnd};
use crate::differential::sides::{COLLECTION, Side, field};
use crate::differential::{Generator, Sides};

#[derive(Debug)]
struct Transaction {
    steps: Vec<Step>,
    /// How it ends.
    end: &'static str,
    canon: Canon,
    order: Order,
}

#[derive(Debug)]
enum Step {
    Insert(Insert),
    /// The documents of one key, in the order of their insertion. Or a mistake.
    Find(Document),
    Update(Writes),
    Delete(Writes),
    FindAndModify(FindAndModify),
    /// How many documents there are.
    Count,
    /// A command that no transaction may have.
    Forbidden,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    let mut steps = Vec::new();
    for _ in 0..generator.between(1, 5) {
        let changes = generator.changes;
        let is_change = |form| matches!(form, StepForm::Update | StepForm::Delete | StepForm::FindAndModify);
        steps.push(
            match generator.take_where(|form: StepForm| changes || !is_change(form)) {
                StepForm::Update => Step::Update(update::make_up(generator)),
                StepForm::Delete => Step::Delete(delete::make_up(generator)),
                StepForm::FindAndModify => Step::FindAndModify(find_and_modify::make_up(generator)),
                StepForm::Insert => Step::Insert(with_keys_only(generator)),
                StepForm::Find => Step::Find(generator.one_key()),
                StepForm::FailingFind => Step::Find(generator.failing_in_time()),
                StepForm::Count => Step::Count,
                StepForm::Forbidden => Step::Forbidden,
            },
        );
    }
    Box::new(Transaction {
        steps,
        end: match generator.take::<TransactionEnd>() {
            TransactionEnd::Commit => "commitTransaction",
            TransactionEnd::Abort => "abortTransaction",
        },
        canon: generator.canon(),
        order: if generator.keeps_order() {
            Order::Defined
        } else {
            Order::Free
        },
    })
}

impl Operation for Transaction {
    fn commands(&self) -> Vec<Document> {
        let mut commands = vec![doc! { self.end: 1 }];
        for step in &self.steps {
            commands.extend(match step {
                Step::Insert(insert) => insert.commands(),
                Step::Update(writes) | Step::Delete(writes) => writes.commands(),
                Step::FindAndModify(command) => command.commands(),
                Step::Find(_) | Step::Count | Step::Forbidden => Vec::new(),
            });
        }
        commands
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        // Side effects of a transaction are not compared. Each proxy sees the command, so none has cached a
        // collection that another one dropped: the first write would end the transaction.
        let create = doc! { "create": COLLECTION };
        sides.both(&create)?;
        sides.shaped.run_on_other_proxies(&create)?;
        let number = sides.next_number();
        let mut outcome = Outcome::Done;
        for (position, step) in self.steps.iter().enumerate() {
            let mut fields = doc! { "txnNumber": number, "autocommit": false };
            if position == 0 {
                fields.insert("startTransaction", true);
            }
            if outcome == Outcome::Failed && has_two_mistakes(sides, step) {
                continue;
            }
            let of_step = self
                .step(sides, step, &fields)
                .with_context(|| format!("step {position} of the transaction"))?;
            if of_step != Outcome::Done {
                outcome = of_step;
            }
            if of_step == Outcome::Refused {
                // The plain side did not get the command, and the shaped side may have aborted.
                for side in [&mut sides.plain, &mut sides.shaped] {
                    let end = doc! { "abortTransaction": 1 };
                    let fields = doc! { "txnNumber": number, "autocommit": false };
                    let mut command = side.in_session(&end, fields);
                    command.insert("$db", "admin");
                    side.routes.command_raw(&command)?;
                }
                return Ok(outcome);
            }
        }
        let fields = doc! { "txnNumber": number, "autocommit": false };
        let end = doc! { self.end: 1 };
        let [plain, shaped] = both(sides, |side| {
            let mut command = side.in_session(&end, fields.clone());
            command.insert("$db", "admin");
            side.routes.command_raw(&command)
        })?;
        compare::outcomes(&plain, &shaped).context("the end of the transaction")?;
        Ok(outcome)
    }
}

impl Transaction {
    fn step(&self, sides: &mut Sides, step: &Step, fields: &Document) -> Result<Outcome> {
        let command = match step {
            Step::Insert(insert) => return insert.run_with(sides, fields),
            Step::Update(writes) | Step::Delete(writes) => return writes.run_with(sides, fields),
            Step::FindAndModify(command) => return command.run_with(sides, fields),
            Step::Find(filter) => doc! { "find": COLLECTION, "filter": filter, "batchSize": 100_000 },
            Step::Count => {
                let pipeline = [doc! { "$count": "documents" }];
                doc! { "aggregate": COLLECTION, "pipeline": &pipeline, "cursor": {} }
            }
            Step::Forbidden => doc! { "count": COLLECTION },
        };
        let [plain, shaped] = both(sides, |side| side.run(&side.in_session(&command, fields.clone())))?;
        if !compare::outcomes(&plain, &shaped)? {
            return Ok(Outcome::Failed);
        }
        compare::documents(self.canon, &self.order, &batch(&plain)?, &batch(&shaped)?, &[])?;
        Ok(Outcome::Done)
    }
}

/// Whether a step of an aborted transaction can fail for a mistake of its own: the sides may differ. The model of a
/// cluster does not parse an insert before it looks at the transaction.
fn has_two_mistakes(sides: &Sides, step: &Step) -> bool {
    match step {
        Step::Update(_) | Step::Delete(_) | Step::FindAndModify(_) => true,
        Step::Insert(insert) => insert.is_invalid() && sides.topology.is_behind_mongos(),
        Step::Find(_) | Step::Count | Step::Forbidden => false,
    }
}

/// Plain, then shaped.
fn both(sides: &mut Sides, mut ask: impl FnMut(&mut Side) -> Result<RawDocumentBuf>) -> Result<[RawDocumentBuf; 2]> {
    Ok([ask(&mut sides.plain)?, ask(&mut sides.shaped)?])
}

pub(super) fn batch(reply: &RawDocumentBuf) -> Result<Vec<RawDocumentBuf>> {
    let cursor = field(reply, "cursor").and_then(RawBsonRef::as_document);
    let batch = cursor.context("no cursor")?.get_array("firstBatch")?;
    let documents = batch.into_iter().flatten().filter_map(RawBsonRef::as_document);
    Ok(documents.map(ToOwned::to_owned).collect())
}
