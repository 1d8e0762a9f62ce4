//! Adoption of hand-written buckets.
//!
//! Nothing is changed before the whole collection has been read and understood. Then a second pass
//! makes each bucket a page, by a statement that demands the bucket as just read. The statements
//! are built so that a run can be stopped anywhere, and two runs can work at once (see
//! [`crate::pattern::bucket::adopt`]). Proxies refuse a collection in which some buckets are not
//! adopted yet. After the last one, the collection is checked again.

use bson::raw::{RawDocumentBuf, cstr};
use bson::{Bson, Document, rawdoc};
use mongodb::error::Error;

use super::bucket::BucketSetup;
use crate::command::document::{array_of, single};
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::inspect::{Fetched, Ordered, Survey};
use crate::maintenance::upstream::{ShapedCollection, as_integer};
use crate::pattern::bucket::adopt::{AdoptionScan, DocumentKind};
use crate::pattern::shapes::BucketShape;

/// Maximum number of passes over a collection that changes concurrently.
const MAX_PASSES: u32 = 20;
/// Statements in one command.
const MAX_STATEMENTS: usize = 500;
/// Bytes of statements in one command. The last statement may exceed it.
const MAX_BYTES: usize = 4 << 20;
/// The longest wait for the majority of the members, in milliseconds.
const REPLICATION_TIMEOUT_MS: i64 = 60_000;
/// The server's code for a statement whose bucket has changed: `ImmutableField`.
const MISS: i64 = 66;
/// The server's code if a proxy began the same page concurrently: `DuplicateKey`.
const PAGE_TAKEN: i64 = 11000;

/// Adopts buckets and reports the result. Returns whether the collection then contains only pages.
pub(super) async fn run(setup: &BucketSetup<'_>, findings: &mut Findings) -> Result<bool, Error> {
    let BucketSetup { run, target, shape } = setup;
    let namespace = target.namespace();
    let mut before: Option<Survey> = None;
    for _ in 0..MAX_PASSES {
        let mut survey = Survey::of(shape);
        survey.go(target, shape).await?;
        let mut unfit = Vec::new();
        if before.is_none() {
            unfit.extend(survey.missing_fields(&namespace, run.options.missing));
        }
        unfit.extend(survey.misfits(&namespace));
        if survey.by_hand() > 0 {
            // A statement that misses is an upsert that fails, and mongod demands both rights for it.
            unfit.extend(run.may(target, &["update", "insert"]));
        }
        let is_unfit = unfit.iter().any(Finding::is_error);
        findings.extend(unfit);
        if is_unfit {
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
                "adopts {}; no other program may write to it meanwhile",
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
    let text = "was changed while its buckets were adopted; stop the other programs that write to it, then run `mongoshape setup` again";
    findings.add(&Finding::error(&namespace, text));
    Ok(false)
}

fn adopted(namespace: &str, before: &Survey) -> Finding {
    let (count, miscounted) = (before.by_hand(), before.miscounted());
    let text = format!("buckets adopted: {count}; wrong numbers of items corrected: {miscounted}");
    Finding::fine(namespace, text)
}

/// The result of a pass, or of some statements.
enum PassOutcome {
    /// All statements were executed.
    Done,
    /// A document had changed since it was read, and must be read again.
    Missed,
    /// mongod refused a statement with this message.
    Refused(String),
}

async fn pass(target: &ShapedCollection, shape: &BucketShape) -> Result<PassOutcome, Error> {
    let mut documents = Ordered::open(target, shape).await?;
    let mut scan = AdoptionScan::new(shape);
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
            match scan.look_at(document) {
                Ok(DocumentKind::Page) => {}
                Ok(DocumentKind::ByHand(adoption)) => {
                    bytes += adoption
                        .statements
                        .iter()
                        .map(|one| one.as_bytes().len())
                        .sum::<usize>();
                    statements.extend(adoption.statements);
                }
                // The next pass reports the reason.
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
    // After a proxy has found only pages, it does not check again, so these writes must not be
    // rolled back.
    command.append(
        cstr!("writeConcern"),
        rawdoc! { "w": "majority", "wtimeout": REPLICATION_TIMEOUT_MS },
    );
    let reply = target.database.run_raw_command(command).await?;
    Ok(outcome(&reply))
}

/// Reads the reply to an ordered `update`, which ends with the first error.
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
    fn a_miss_is_read_again_and_other_errors_are_reported() {
        let error = |code: i32| doc! { "ok": 1, "writeErrors": [{ "index": 3, "code": code, "errmsg": "no" }] };
        assert!(matches!(outcome(&doc! { "ok": 1, "n": 2 }), PassOutcome::Done));
        assert!(matches!(outcome(&error(66)), PassOutcome::Missed));
        assert!(matches!(outcome(&error(11000)), PassOutcome::Missed));
        assert!(matches!(outcome(&error(17419)), PassOutcome::Refused(words) if words == "no"));
        let unsure = doc! { "ok": 1, "writeConcernError": { "code": 91, "errmsg": "down" } };
        assert!(matches!(outcome(&unsure), PassOutcome::Refused(words) if words == "down"));
    }
}
