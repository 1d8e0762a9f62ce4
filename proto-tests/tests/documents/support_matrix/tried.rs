//! Tries the rows of a document on both sides.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::sides::{Pattern, Sides};

use crate::support_matrix::answer::{self, Answer, Cursors};
use crate::support_matrix::document::{Class, NOT_SUPPORTED, Support};
use crate::support_matrix::probe::{Compared, Probe};

/// What `create` answers to options that a bucket collection cannot have.
const INVALID_OPTIONS: i32 = 72;

/// A pattern whose rows are tried.
pub(crate) trait Tried: Pattern + Sized {
    /// Its document.
    const DOCUMENT: &'static str;
    /// Whether its probes name the commands that fail on a plain collection, too.
    const TELLS_ERRORS: bool;

    /// Has both sides hold the same again after a command that may have changed something, and fails where it
    /// has changed one otherwise than the other.
    fn renew(sides: &mut Sides<Self>, sent: &Document, expected: Expected) -> Result<()>;
}

/// What a command should have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The same on both sides.
    Alike,
    /// Nothing on the shaped one.
    Refused,
}

/// What is wrong with a row, given the two answers.
fn judge<P: Tried>(probe: &Probe, class: Class, [plain, shaped]: &[Answer; 2]) -> Option<String> {
    let is_as_told = |fails: bool| !P::TELLS_ERRORS || plain.code().is_some() == fails;
    let refused = |code| shaped.code() == Some(code) && plain != shaped;
    let expected = match (class, probe.compared) {
        (Class::Refused(code), _) => refused(code),
        (Class::Note, Compared::Refused) => refused(NOT_SUPPORTED) || refused(INVALID_OPTIONS),
        (Class::Exact | Class::Note, Compared::Whole | Compared::WholeIfUnique) => plain == shaped && is_as_told(false),
        (Class::Exact | Class::Note, Compared::Success) => plain.code() == shaped.code() && is_as_told(false),
        (Class::Exact | Class::Note, Compared::OnEachVersion) => plain == shaped,
        (Class::Exact | Class::Note, Compared::Error) => plain == shaped && is_as_told(true),
        (Class::Exact | Class::Note, Compared::Code) => plain.code() == shaped.code() && is_as_told(true),
        (Class::Exact, Compared::Refused) | (Class::Passed, _) => false,
    };
    (!expected).then(|| {
        format!(
            "{} {}: not {class:?}\n  {}\n  plain:  {plain}\n  shaped: {shaped}",
            probe.command, probe.option, probe.sent
        )
    })
}

/// Tries all of them, one after the other.
pub(crate) fn all<P: Tried>(sides: &mut Sides<P>, probes: &[Probe]) -> Result<()> {
    let support = Support::read(P::DOCUMENT)?;
    let mut cursors = Cursors::default();
    let mut wrong = Vec::new();
    for probe in probes {
        let Some(class) = support.class(probe.command, probe.option) else {
            wrong.push(format!("{} {}: in no table", probe.command, probe.option));
            continue;
        };
        let is_refused = matches!(class, Class::Refused(_)) || probe.compared == Compared::Refused;
        let expected = if is_refused { Expected::Refused } else { Expected::Alike };
        let before = is_refused.then(|| stored(sides)).transpose()?;
        let answers = answer::of_both(sides, &probe.sent, &mut cursors);
        let answers = answers.with_context(|| format!("{}\n{}", wrong.join("\n"), probe.sent))?;
        wrong.extend(judge::<P>(probe, class, &answers));
        if let Some(before) = before
            && stored(sides)? != before
        {
            wrong.push(format!("{} has changed something", probe.sent));
        }
        if answers[0].is_error() {
            continue;
        }
        let context = || format!("after {}", probe.sent);
        if let Err(error) = P::renew(sides, &probe.sent, expected).with_context(context) {
            wrong.push(format!("{error:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    sides.check()
}

/// All that mongod holds in the shaped collection's database.
fn stored<P: Pattern>(sides: &mut Sides<P>) -> Result<Vec<Document>> {
    let database = sides.shaped_database();
    let filter = doc! { "type": "collection" };
    let mut found = sides
        .plain
        .all(&doc! { "listCollections": 1, "filter": filter, "$db": &database })?;
    found.sort_by_cached_key(|collection| collection.get_str("name").map(ToOwned::to_owned).ok());
    let names: Vec<_> = found
        .iter()
        .map(|collection| collection.get_str("name").map(ToOwned::to_owned))
        .collect();
    for name in names {
        let name = name?;
        for command in ["find", "listIndexes"] {
            found.extend(sides.plain.all(&doc! { command: &name, "$db": &database })?);
        }
    }
    Ok(found)
}

fn rows<'a>(probes: impl IntoIterator<Item = &'a Probe>) -> BTreeSet<(String, String)> {
    let rows = probes.into_iter();
    rows.map(|probe| (probe.command.to_owned(), probe.option.to_owned()))
        .collect()
}

/// Fails where something that a row refuses in part is tried by none of these.
pub(crate) fn no_refusal_is_left_out<P: Tried>(probes: &[Probe]) -> Result<()> {
    let refused = rows(probes.iter().filter(|probe| probe.compared == Compared::Refused));
    let in_part = Support::read(P::DOCUMENT)?.refused_in_part();
    let untried: Vec<_> = in_part.difference(&refused).collect();
    ensure!(untried.is_empty(), "refusals that no probe tries: {untried:?}");
    Ok(())
}

/// Fails where there are rows that none of these tries.
pub(crate) fn none_is_left_out<P: Tried>(probes: &[Probe]) -> Result<()> {
    let support = Support::read(P::DOCUMENT)?;
    let (rows, tried) = (support.rows(), rows(probes));
    let untried: Vec<_> = rows.difference(&tried).collect();
    ensure!(untried.is_empty(), "rows that no probe tries: {untried:?}");
    let without_reason = support.without_reason();
    ensure!(without_reason.is_empty(), "refused for no reason: {without_reason:?}");
    Ok(())
}
