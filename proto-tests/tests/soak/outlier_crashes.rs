//! A proxy is killed before or after each of its internal commands for one client command. If the client
//! resends the command through another proxy, it is executed once. If not, the documents are as before or as
//! after the command.
//!
//! In an ordinary run each test has a third of the client commands. `MONGOSHAPE_CRASHES=full` has all of
//! them, disturbs every internal command, and takes some minutes.

mod commands;
mod fixture;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::attempts::{Disturbance, disturbed};
use proto_tests::breaking_relay::Moment;
use proto_tests::measure::is_full;
use proto_tests::mongod;
use proto_tests::raw::Connection;

use crate::outlier_crashes::commands::{commands, third};
use crate::outlier_crashes::fixture::Fixture;

/// The step between the commands of the proxy that an ordinary run disturbs.
const STEP: usize = 4;
/// Commands of the proxy for one of the client's, at most.
const MOST: usize = 60;

/// The client commands of a run.
type Commands = fn(i64) -> Vec<Document>;

/// `part`: those of an ordinary run.
fn chosen(part: Commands) -> Commands {
    if is_full("MONGOSHAPE_CRASHES") { commands } else { part }
}

/// Disturbs each command at each of the proxy's commands in turn, and sends it again.
fn is_done_once(part: Commands, disturbance: Disturbance) -> Result<()> {
    let mut fixture = Fixture::new(chosen(part))?;
    let mut wrong = fixture
        .attempts
        .done_otherwise(disturbance, |kind| disturbed(kind, STEP, MOST))?;
    wrong.extend(fixture.wrong_layout()?);
    ensure!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

#[test]
fn delayed_attempt_has_no_effect_after_a_retry() -> Result<()> {
    is_done_once(third::<0>, Disturbance::IsHeldUp)
}

#[test]
fn retry_completes_an_attempt_whose_replies_were_lost() -> Result<()> {
    is_done_once(third::<1>, Disturbance::Breaks(Moment::After))
}

#[test]
fn retry_completes_an_interrupted_attempt() -> Result<()> {
    is_done_once(third::<2>, Disturbance::Breaks(Moment::Before))
}

#[test]
fn interrupted_command_without_retry_is_atomic() -> Result<()> {
    let commands = chosen(third::<1>);
    let mut fixture = Fixture::new(commands)?;
    fixture.attempts.sends_again = false;
    let mut wrong = Vec::new();
    for (kind, command) in commands(0).iter().enumerate() {
        if command
            .get_array("updates")
            .is_ok_and(|statements| statements.len() > 1)
        {
            // It may end between two.
            continue;
        }
        let before = fixture.attempts.before()?;
        let after = fixture.attempts.run(kind, None)?.there;
        for number in disturbed(kind, STEP, MOST) {
            let disturbance = Disturbance::Breaks(Moment::Before);
            let outcome = fixture.attempts.run(kind, Some((disturbance, number)))?;
            if outcome.there != before && outcome.there != after {
                wrong.push(format!("{command}, {number}:\n  {:?}", outcome.there));
            }
            if !outcome.is_disturbed {
                break;
            }
            // The next write repairs the remains: only orphans.
            let (left_over, reply) = fixture.push_to_all()?;
            wrong.extend(left_over.map(|left_over| format!("{command}, {number}: left over: {left_over}; {reply}")));
        }
    }
    wrong.extend(fixture.wrong_layout()?);
    ensure!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    // Nothing that a later `find` could take for a document.
    let mut direct = Connection::open(mongod::shared_replica_set().address())?;
    direct.command_ok(&doc! { "dropDatabase": 1, "$db": &fixture.books.database })?;
    Ok(())
}
