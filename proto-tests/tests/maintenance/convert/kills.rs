//! `mongoshape convert` is killed at every command that changes the state of a conversion, before mongod gets
//! the command, and after mongod has executed it. Clients of two proxies notice nothing, and a next run succeeds.
//!
//! `MONGOSHAPE_CRASHES=full` kills at every such command in both ways, and takes some minutes:
//!
//! ```sh
//! MONGOSHAPE_CRASHES=full cargo test -p proto-tests --test maintenance convert::kills
//! ```

mod clients;
mod interruptions;
mod random;
mod subject;
mod validators;
mod writers;

use anyhow::{Context as _, Result, ensure};
use bson::Document;
use proto_tests::measure::is_full;
use proto_tests::stopping_relay::Moment;
use proto_tests::{Shape, mongod};

use self::clients::beside_clients;
use self::subject::{Ended, Layout, Subject, changes_state, other_shape, shape};
use super::fixture::{COLLECTION, KEPT, RECORD};

/// Commands from one kill to the next, unless all are disturbed.
const STEP: usize = 12;

/// A conversion that is killed.
struct Killed {
    from: Layout,
    to: Layout,
    /// The shape in the converter's configuration.
    shape: Shape,
    options: &'static [&'static str],
    /// A conversion that is completed before.
    before: Option<&'static [&'static str]>,
    /// The options of a run that goes on with the conversion.
    go_on: &'static [&'static str],
}

/// Where a run is killed.
type Kill = (usize, Moment);

impl Killed {
    /// Kills runs at each command, and counts the kills. `earlier`: kills of runs before that.
    fn at_every_command(&self, subject: &mut Subject, first: usize, earlier: &[Kill]) -> Result<usize> {
        let (step, moments): (usize, &[Moment]) = if is_full("MONGOSHAPE_CRASHES") {
            (1, &[Moment::Before, Moment::After])
        } else {
            (STEP, &[])
        };
        let first = if step == 1 { 1 } else { first };
        let (mut kills, mut number) = (0, first);
        loop {
            let alternating = [[Moment::Before, Moment::After][number % 2]];
            for moment in if moments.is_empty() { &alternating } else { moments } {
                let is_back = kills % 2 == 1;
                let all = [earlier, &[(number, *moment)]].concat();
                if !self.killed_at(subject, &all, is_back)? {
                    return Ok(kills);
                }
                kills += 1;
            }
            number += step;
        }
    }

    /// Kills one run after the other, and checks the collection after a further run. `false`: the last run
    /// ended by itself.
    fn killed_at(&self, subject: &mut Subject, kills: &[Kill], is_back: bool) -> Result<bool> {
        self.renew(subject)?;
        let mut commands = Vec::new();
        let killed = beside_clients(subject, || {
            let mut options = self.options;
            for kill in kills {
                let ended = subject.convert_until(&self.shape, options, Some(*kill))?;
                commands = subject.relay.commands();
                if let Some(ended) = ended {
                    ensure!(ended.code == Some(0), "{:?}: {}", ended.code, ended.printed);
                    return Ok(false);
                }
                options = self.go_on;
            }
            self.next_run(subject, is_back).map(|()| true)
        });
        let what = || format!("killed at {kills:?}, then {is_back}: {commands:#?}");
        let was_killed = killed.with_context(what)?;
        self.check(subject, was_killed && is_back).with_context(what)?;
        Ok(was_killed)
    }

    /// The number of the first command of this name.
    fn number_of(&self, subject: &mut Subject, name: &str) -> Result<usize> {
        self.renew(subject)?;
        subject.convert_well(&self.shape, self.options)?;
        let commands = subject.relay.commands();
        let place = commands.iter().position(|command| command == name);
        Ok(1 + place.with_context(|| format!("no {name}: {commands:#?}"))?)
    }

    fn renew(&self, subject: &mut Subject) -> Result<()> {
        let is_plain = matches!(self.from, Layout::Plain) != self.before.is_some();
        subject.renew(is_plain)?;
        if let Some(options) = self.before {
            subject.convert_well(&self.shape, options)?;
        }
        Ok(())
    }

    /// Goes on with the conversion, or ends it.
    fn next_run(&self, subject: &Subject, is_back: bool) -> Result<()> {
        let Ended { code, printed } = if is_back {
            let ended = subject
                .convert_until(&self.shape, &["--back"], None)?
                .context("killed")?;
            if ended.code == Some(0) || !ended.printed.contains("there is no conversion to undo") {
                ended
            } else {
                // The run was killed before it recorded the conversion.
                subject.convert_well(&self.shape, self.go_on)?;
                subject
                    .convert_until(&self.shape, &["--back"], None)?
                    .context("killed")?
            }
        } else {
            subject
                .convert_until(&self.shape, self.go_on, None)?
                .context("killed")?
        };
        ensure!(code == Some(0), "the next run ended with {code:?}: {printed}");
        Ok(())
    }

    fn check(&self, subject: &mut Subject, is_back: bool) -> Result<()> {
        subject.check_definitions()?;
        let collections = subject.collections()?;
        let (alone, beside) = (vec![COLLECTION], vec![COLLECTION, RECORD, KEPT]);
        // The former collection is kept, also by a run that continues the way back.
        let may_be_alone = is_back && self.before.is_none();
        ensure!(
            collections == beside || (may_be_alone && collections == alone),
            "{collections:?}"
        );
        if !is_back {
            return subject.check_layout(&self.to);
        }
        let has_returned = subject.check_layout(&self.from);
        if self.before.is_some() && has_returned.is_err() {
            // The next run has continued the way back.
            return subject.check_layout(&self.to);
        }
        has_returned
    }
}

fn to_pages() -> Killed {
    Killed {
        from: Layout::Plain,
        to: Layout::Pages(shape()),
        shape: shape(),
        options: &[],
        before: None,
        go_on: &[],
    }
}

fn to_another_shape() -> Killed {
    Killed {
        from: Layout::Pages(shape()),
        to: Layout::Pages(other_shape()),
        shape: other_shape(),
        options: &[],
        before: None,
        go_on: &[],
    }
}

fn to_plain() -> Killed {
    Killed {
        from: Layout::Pages(shape()),
        to: Layout::Plain,
        shape: shape(),
        options: &["--to", "plain"],
        before: None,
        go_on: &["--to", "plain"],
    }
}

/// The way back from pages to plain documents.
fn back_to_plain() -> Killed {
    Killed {
        options: &["--back"],
        before: Some(&[]),
        ..to_plain()
    }
}

fn subject() -> Result<Subject> {
    Subject::start(mongod::shared_replica_set())
}

#[test]
fn runs_from_plain_documents_to_pages_are_killed() -> Result<()> {
    let kills = to_pages().at_every_command(&mut subject()?, 6, &[])?;
    ensure!(kills > 1, "{kills}");
    Ok(())
}

#[test]
fn runs_from_pages_to_others_are_killed() -> Result<()> {
    let kills = to_another_shape().at_every_command(&mut subject()?, 5, &[])?;
    ensure!(kills > 1, "{kills}");
    Ok(())
}

#[test]
fn runs_from_pages_to_plain_documents_are_killed() -> Result<()> {
    let kills = to_plain().at_every_command(&mut subject()?, 4, &[])?;
    ensure!(kills > 1, "{kills}");
    Ok(())
}

#[test]
fn runs_of_the_way_back_are_killed() -> Result<()> {
    let kills = back_to_plain().at_every_command(&mut subject()?, 2, &[])?;
    ensure!(kills > 1, "{kills}");
    Ok(())
}

/// Names the command that records the end of a conversion.
fn is_end(command: &Document) -> Option<String> {
    changes_state(command).filter(|name| *name == format!("update {RECORD} done"))
}

#[test]
fn a_way_back_that_is_killed_after_its_swap_is_not_undone() -> Result<()> {
    let mut subject = Subject::counting(mongod::shared_replica_set(), is_end)?;
    let conversion = back_to_plain();
    conversion.renew(&mut subject)?;
    let kill = Some((1, Moment::Before));
    let ended = subject.convert_until(&conversion.shape, conversion.options, kill)?;
    ensure!(ended.is_none(), "the run was not killed");
    let printed = subject.convert_well(&conversion.shape, conversion.options)?;
    ensure!(printed.contains("contains plain documents now"), "{printed}");
    subject.check_layout(&conversion.to)
}

#[test]
fn a_run_that_undoes_a_swap_is_killed() -> Result<()> {
    let subject = &mut subject()?;
    let conversions = [(2, to_pages()), (3, to_another_shape())];
    let number = if is_full("MONGOSHAPE_CRASHES") { 2 } else { 1 };
    for (first, conversion) in conversions.into_iter().take(number) {
        let rename = conversion.number_of(subject, &format!("renameCollection {COLLECTION}"))?;
        let kills = conversion.at_every_command(subject, first, &[(rename, Moment::After)])?;
        ensure!(kills > 1, "{kills}");
    }
    Ok(())
}
