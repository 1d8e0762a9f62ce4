//! An update of one item, whichever the filter finds.

use super::outcome::{Outcome, unchanged};
use super::statement::send;
use crate::pattern::bucket::place::Planned;
use crate::session::error::RunError;
use crate::session::run::task::{
    MAX_IDLE_ROUNDS, Task, elsewhere, end_transaction, given_up, in_words_of_the_application, pause, upsert,
};
use crate::session::run::{Run, resolve};

pub(super) async fn run(
    run: &mut Run<'_>,
    task: &Task<'_>,
    (upserts, judged): (bool, Outcome),
) -> Result<Outcome, RunError> {
    for round in 0..=MAX_IDLE_ROUNDS {
        let Some(found) = resolve::first(run, task.wanted()).await? else {
            return if upserts { Err(upsert(run)) } else { Ok(judged) };
        };
        let change = match task.plan(run, &found).await? {
            Planned::InPlace(change) => change,
            Planned::Unchanged { counted } => return Ok(unchanged(&judged.answer, counted)),
            Planned::Elsewhere(_) => return Err(elsewhere(run)),
            Planned::Failed(error) => {
                end_transaction(run).await?;
                return Ok(Outcome {
                    failed: Some(error),
                    ..judged
                });
            }
        };
        let statement = change
            .statement(run.shape, &found)
            .map_err(|what| run.unsupported(&what))?;
        let mut outcome = send(run, task, &statement).await?;
        outcome.failed = outcome
            .failed
            .map(|error| in_words_of_the_application(run, error, &found));
        if outcome.matched > 0 || outcome.failed.is_some() {
            if change.counted && outcome.matched > 0 {
                outcome.modified = 1;
            }
            return Ok(outcome);
        }
        pause(round).await;
    }
    Ok(Outcome {
        failed: Some(given_up(run)),
        ..judged
    })
}
