//! A proxy dies before or after each of the commands that it makes of one of the client's. The client sends it again through
//! another proxy, and it was done once; or does not, and the documents are as they were before or as they are afterwards.
//!
//! `MONGOSHAPE_CRASHES=full` disturbs each of them, and takes some minutes.

mod commands;
mod world;

use anyhow::{Result, ensure};
use bson::doc;
use proto_tests::cut::Moment;
use proto_tests::mongod;
use proto_tests::raw::Connection;

use crate::commands::commands;
use crate::world::{Disturbance, Outcome, World};

/// Of the commands that the proxy makes, an ordinary run disturbs each of so many; the whole measure all.
const STEP: usize = 5;
/// Commands of the proxy for one of the client's, at most.
const MOST: usize = 60;
/// The proxy's code for a `findAndModify` that was done and whose answer is not known any more.
const ILLEGAL_OPERATION: i32 = 20;

/// Which of the proxy's commands are disturbed.
fn disturbed(kind: usize) -> impl Iterator<Item = usize> {
    let is_full = std::env::var("MONGOSHAPE_CRASHES").as_deref() == Ok("full");
    let step = if is_full { 1 } else { STEP };
    (1 + kind % step..=MOST).step_by(step)
}

/// Disturbs each command at each of the proxy's commands in turn, and sends it again.
fn is_done_once(disturbance: Disturbance) -> Result<()> {
    let mut world = World::new()?;
    let mut wrong = Vec::new();
    for (kind, command) in commands(0).iter().enumerate() {
        let undisturbed = world.run(kind, None)?;
        let reply = &undisturbed.reply;
        ensure!(
            reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) && !reply.contains_key("writeErrors"),
            "{command}: {reply}"
        );
        for number in disturbed(kind) {
            let outcome = world.run(kind, Some((disturbance, number)))?;
            let is_forgotten = outcome
                .reply
                .get_i32("code")
                .is_ok_and(|code| code == ILLEGAL_OPERATION);
            let which = format!("{command}, {disturbance:?} {number}");
            let Outcome { there, .. } = &outcome;
            if *there != undisturbed.there {
                wrong.push(format!("{which}:\n  {there:?}\n  {:?}", undisturbed.there));
            }
            if outcome.reply != *reply && !is_forgotten {
                wrong.push(format!("{which}:\n  said {}\n  for  {reply}", outcome.reply));
            }
            if !outcome.is_disturbed {
                break;
            }
            ensure!(number < MOST - STEP, "{command} takes more than {MOST} commands");
        }
    }
    wrong.extend(world.wrong_layout()?);
    ensure!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

#[test]
fn an_attempt_that_is_held_up_does_nothing_again() -> Result<()> {
    is_done_once(Disturbance::IsHeldUp)
}

#[test]
fn an_attempt_whose_answers_are_lost_is_taken_up_by_the_next() -> Result<()> {
    is_done_once(Disturbance::Breaks(Moment::After))
}

#[test]
fn an_attempt_that_is_cut_short_is_taken_up_by_the_next() -> Result<()> {
    is_done_once(Disturbance::Breaks(Moment::Before))
}

#[test]
fn what_nobody_sends_again_was_done_or_was_not() -> Result<()> {
    let mut world = World::new()?;
    world.sends_again = false;
    let mut wrong = Vec::new();
    for (kind, command) in commands(0).iter().enumerate() {
        if command
            .get_array("updates")
            .is_ok_and(|statements| statements.len() > 1)
        {
            // It may end between two.
            continue;
        }
        let before = world.before()?;
        let after = world.run(kind, None)?.there;
        for number in disturbed(kind) {
            let disturbance = Disturbance::Breaks(Moment::Before);
            let outcome = world.run(kind, Some((disturbance, number)))?;
            if outcome.there != before && outcome.there != after {
                wrong.push(format!("{command}, {number}:\n  {:?}", outcome.there));
            }
            if !outcome.is_disturbed {
                break;
            }
            // The next writer puts right what is left over: nothing but pages that nobody counts.
            let (left_over, said) = world.push_to_all()?;
            wrong.extend(left_over.map(|left_over| format!("{command}, {number}: left over: {left_over}; {said}")));
        }
    }
    wrong.extend(world.wrong_layout()?);
    ensure!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    // Nothing that a later `find` could take for a document.
    let mut direct = Connection::open(mongod::shared_replica_set().address())?;
    direct.command_ok(&doc! { "dropDatabase": 1, "$db": &world.books.database })?;
    Ok(())
}
