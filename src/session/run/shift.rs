//! An item that gets another time on a standalone, which has no transactions to move it: changed where it lies. What other
//! pages are to tell of it is told before; see `docs/decisions/0015-times-change-in-place.md`.

use bson::raw::{RawDocument, RawDocumentBuf};

use super::queries::documents;
use super::statements::{Kind, Part, send, send_one};
use super::{MAX_ATTEMPTS, Run, pause};
use crate::command::document::single;
use crate::command::error::{CommandError, ErrorCode};
use crate::pattern::bucket::insert::append_facts_query;
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::layout::PageFacts;
use crate::pattern::bucket::place::shift::{Readiness, is_told, readiness, tell_first, tell_highest, with_any_time};
use crate::pattern::bucket::resolve::Found;
use crate::session::error::RunError;

/// Puts `item` in the place of what was found; mongod's answer. `None` where that is not as it was found.
pub(super) async fn shift(run: &mut Run<'_>, found: &Found, item: &Item) -> Result<Option<RawDocumentBuf>, RunError> {
    for round in 0..MAX_ATTEMPTS {
        pause(round).await;
        let highest = if is_told(found) {
            None
        } else {
            highest(run, item).await?
        };
        let (told, expected) = match readiness(found, highest.as_ref()) {
            Readiness::Gone => return Ok(None),
            Readiness::NotYet => continue,
            Readiness::Ready => (Vec::new(), 0),
            Readiness::First => (vec![tell_first(run.shape, item.key())], 1),
            Readiness::FirstAndHighest => {
                let mut told = vec![tell_first(run.shape, item.key())];
                let of_highest = highest
                    .as_ref()
                    .map(|highest| tell_highest(run.shape, item.key(), highest));
                told.extend(of_highest);
                (told, 2)
            }
        };
        if !told.is_empty() {
            let told: Vec<&RawDocument> = told.iter().map(RawDocumentBuf::as_ref).collect();
            if send(run, Kind::Update, (&told, true), Part::Beside).await?.n < expected {
                continue;
            }
        }
        let statement = with_any_time(run.shape, found, (item.stored(), item.time()), highest.as_ref());
        let statement = statement.map_err(|what| run.unsupported(&what))?;
        let told = send_one(run, Kind::Update, &statement, Part::Own(None)).await?;
        return Ok((told.n > 0).then_some(told.answer));
    }
    let message = "another page is about to be begun behind an item that is to get another time, each time that was looked at; \
                   nothing was changed of it";
    Err(CommandError::new(ErrorCode::WriteConflict, message).into())
}

/// What is known of the item's key's highest page.
async fn highest(run: &mut Run<'_>, item: &Item) -> Result<Option<PageFacts>, RunError> {
    let mut find = single("find", run.namespace.collection);
    append_facts_query(run.shape, item, &mut find);
    run.carried().append_to_look_up(&mut find);
    let answer = run.link.run(&find).await?;
    let highest = documents(&answer).next();
    let highest = highest.map(|page| PageFacts::parse(run.shape, page).ok_or_else(|| run.misfit()));
    Ok(highest.transpose()?)
}
