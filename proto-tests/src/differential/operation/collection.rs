//! `create` and `drop`.

use anyhow::{Result, ensure};
use bson::raw::RawBsonRef;
use bson::{Document, doc};

use super::{Operation, Outcome};
use crate::differential::compare;
use crate::differential::grammar::CollectionForm;
use crate::differential::sides::{COLLECTION, field};
use crate::differential::{Generator, Sides};

#[derive(Debug)]
struct Collection {
    command: Document,
    /// Whether it has options that the shape refuses. Then the command is sent to the proxy only.
    has_options: bool,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    let form = generator.take::<CollectionForm>();
    let has_options = form == CollectionForm::CreateWithOptions;
    let name = if form == CollectionForm::Drop { "drop" } else { "create" };
    let mut command = doc! { name: COLLECTION };
    if has_options {
        let options = [
            doc! { "capped": true, "size": 4096 },
            doc! { "collation": { "locale": "en" } },
            doc! { "viewOn": "other", "pipeline": [] },
            doc! { "timeseries": { "timeField": "t" } },
        ];
        command.extend(generator.example("collection.createWithOptions", &options));
    }
    Box::new(Collection { command, has_options })
}

impl Operation for Collection {
    fn commands(&self) -> Vec<Document> {
        vec![self.command.clone()]
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        if self.has_options {
            let reply = sides.shaped.run(&self.command)?;
            // InvalidOptions.
            ensure!(
                field(&reply, "code") == Some(RawBsonRef::Int32(72)),
                "options were not refused: {reply:?}"
            );
            return Ok(Outcome::Refused);
        }
        let [plain, shaped] = sides.both(&self.command)?;
        if !compare::outcomes(&plain, &shaped)? {
            return Ok(Outcome::Failed);
        }
        let [plain, shaped] = [&plain, &shaped].map(|reply| field(reply, "nIndexesWas"));
        ensure!(plain == shaped, "nIndexesWas: {shaped:?} instead of {plain:?}");
        Ok(Outcome::Done)
    }
}
