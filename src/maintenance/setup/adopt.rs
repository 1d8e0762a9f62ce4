//! Adopting buckets that were written by hand.
//!
//! Nothing is changed before the whole collection was looked at and understood. Then it is gone over again,
//! and each bucket becomes a page by a statement that demands it as it was just seen. That this may be broken
//! off anywhere, and be done by two at once, is due to how the statements are made (see
//! [`crate::pattern::bucket::adopt`]); a collection in which some buckets are still to be adopted is refused
//! by proxies. Once all are, the collection is looked at a last time.

use bson::raw::{RawDocumentBuf, cstr};
use bson::{Bson, Document, rawdoc};
use mongodb::error::Error;

use crate::command::document::{array_of, single};
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::inspect::{Fetched, Ordered, Survey};
use crate::maintenance::upstream::{ShapedCollection, as_integer};
use crate::pattern::bucket::adopt::{AdoptionScan, DocumentKind};
use crate::pattern::shapes::BucketShape;

/// How often a collection is gone over that somebody else changes.
const MAX_PASSES: u32 = 20;
/// Statements in one command.
const MAX_STATEMENTS: usize = 500;
/// Bytes of statements in one command; beyond it there is at most one bucket's more.
const MAX_BYTES: usize = 4 << 20;
/// How long a set's members may take to have them.
const REPLICATION_TIMEOUT_MS: i64 = 60_000;
/// The server's code of a statement that missed what it demands: `ImmutableField`.
const MISS: i64 = 66;
/// The server's code where a proxy began the same page meanwhile: `DuplicateKey`.
const PAGE_TAKEN: i64 = 11000;

/// Adopts what can be adopted, and reports it. Whether all of the collection are pages now.
pub(super) async fn run(
    target: &ShapedCollection,
    shape: &BucketShape,
    findings: &mut Findings,
) -> Result<bool, Error> {
    let namespace = target.namespace();
    let mut before: Option<Survey> = None;
    for _ in 0..MAX_PASSES {
        let mut survey = Survey::default();
        survey.go(target, shape).await?;
        let misfits = survey.misfits(&namespace);
        if !misfits.is_empty() {
            findings.extend(misfits);
            return Ok(false);
        }
        if survey.by_hand() == 0 && survey.is_disturbed() {
            continue;
        }
        if survey.by_hand() == 0 {
            findings.extend(before.map(|before| adopted(&namespace, &before)));
            return Ok(true);
        }
        if before.is_none() {
            let text = format!(
                "adopts {}; nothing else may write to it meanwhile",
                survey.named_by_hand()
            );
            findings.add(&Finding::note(&namespace, text));
        }
        before.get_or_insert(survey);
        if let PassOutcome::Refused(words) = pass(target, shape).await? {
            findings.add(&Finding::error(
                &namespace,
                format!("a bucket cannot be adopted: {words}"),
            ));
            return Ok(false);
        }
    }
    let text =
        "is changed while its buckets are adopted; stop what else writes to it, then run `mongoshape setup` again";
    findings.add(&Finding::error(&namespace, text));
    Ok(false)
}

fn adopted(namespace: &str, before: &Survey) -> Finding {
    let (count, miscounted) = (before.by_hand(), before.miscounted());
    let text = format!("buckets adopted: {count}; wrong numbers of items set right: {miscounted}");
    Finding::fine(namespace, text)
}

/// What came of going over a collection once, or of some statements.
enum PassOutcome {
    /// All was executed.
    Done,
    /// A document was not as it had been seen: it is to be looked at again.
    Missed,
    /// mongod refuses it, in these words.
    Refused(String),
}

async fn pass(target: &ShapedCollection, shape: &BucketShape) -> Result<PassOutcome, Error> {
    let mut documents = Ordered::open(target, shape).await?;
    let mut walk = AdoptionScan::new(shape);
    let mut statements: Vec<RawDocumentBuf> = Vec::new();
    let mut bytes = 0;
    while let Some(batch) = documents.next_batch().await? {
        for Fetched {
            document,
            is_adopted_meanwhile,
        } in &batch
        {
            if *is_adopted_meanwhile {
                return Ok(PassOutcome::Missed);
            }
            match walk.look_at(document) {
                Ok(DocumentKind::Page) => {}
                Ok(DocumentKind::ByHand(adoption)) => {
                    bytes += adoption
                        .statements
                        .iter()
                        .map(|one| one.as_bytes().len())
                        .sum::<usize>();
                    statements.extend(adoption.statements);
                }
                // The next look will say what it is.
                Err(_) => return Ok(PassOutcome::Missed),
            }
            if statements.len() >= MAX_STATEMENTS || bytes >= MAX_BYTES {
                match execute(target, &std::mem::take(&mut statements)).await? {
                    PassOutcome::Done => bytes = 0,
                    other => return Ok(other),
                }
            }
        }
    }
    execute(target, &statements).await
}

async fn execute(target: &ShapedCollection, statements: &[RawDocumentBuf]) -> Result<PassOutcome, Error> {
    if statements.is_empty() {
        return Ok(PassOutcome::Done);
    }
    let mut command = single("update", target.collection.as_str());
    command.append(cstr!("updates"), array_of(statements));
    // Proxies believe what is in the collection once they have seen it whole: it must not be rolled back
    // behind them.
    command.append(
        cstr!("writeConcern"),
        rawdoc! { "w": "majority", "wtimeout": REPLICATION_TIMEOUT_MS },
    );
    let reply = target.database.run_raw_command(command).await?;
    Ok(outcome(&reply))
}

/// What an ordered `update` says of its statements: it ends with the first error.
fn outcome(reply: &Document) -> PassOutcome {
    let mut errors = reply.get_array("writeErrors").into_iter().flatten();
    let own = errors.find_map(Bson::as_document);
    let Some(error) = own.or_else(|| reply.get_document("writeConcernError").ok()) else {
        return PassOutcome::Done;
    };
    match error.get("code").and_then(as_integer) {
        Some(MISS | PAGE_TAKEN) => PassOutcome::Missed,
        _ => PassOutcome::Refused(error.get_str("errmsg").unwrap_or_default().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn a_miss_is_looked_at_again_and_anything_else_is_told() {
        let error = |code: i32| doc! { "ok": 1, "writeErrors": [{ "index": 3, "code": code, "errmsg": "no" }] };
        assert!(matches!(outcome(&doc! { "ok": 1, "n": 2 }), PassOutcome::Done));
        assert!(matches!(outcome(&error(66)), PassOutcome::Missed));
        assert!(matches!(outcome(&error(11000)), PassOutcome::Missed));
        assert!(matches!(outcome(&error(17419)), PassOutcome::Refused(words) if words == "no"));
        let unsure = doc! { "ok": 1, "writeConcernError": { "code": 91, "errmsg": "down" } };
        assert!(matches!(outcome(&unsure), PassOutcome::Refused(words) if words == "down"));
    }
}
