//! The record of a conversion, in a collection beside the converted one. A killed run is continued by it,
//! also on another machine.

use bson::{Binary, Bson, Document, doc};
use mongodb::Database;
use mongodb::change_stream::event::ResumeToken;
use mongodb::error::Error;

use super::layout::Layout;
use super::task::ConvertTask;
use crate::maintenance::finding::Finding;
use crate::maintenance::swap::{Halt, REPLICATION_TIMEOUT_MS, concern_kept};
use crate::maintenance::upstream::as_integer;
use crate::pattern::bucket::conversion::{self, kept_name, record_name};

/// The progress of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The copy is filled.
    Copying,
    /// The copy contains everything, and changes are applied to it.
    Following,
    /// The copy is filled, and writers are held while changes are read.
    HoldingCopying,
    /// Writers are held while changes are applied.
    Holding,
    /// The collections may have been renamed.
    Swapping,
    /// The copy has the collection's name.
    Done,
}

const PHASES: [(Phase, &str); 6] = [
    (Phase::Copying, "copying"),
    (Phase::Following, "following"),
    (Phase::HoldingCopying, "holding while copying"),
    (Phase::Holding, "holding"),
    (Phase::Swapping, "swapping"),
    (Phase::Done, "done"),
];

impl Phase {
    /// The phase that goes on after writers were held. `None`: no writers are held in this one.
    pub(super) fn after_holding(self) -> Option<Self> {
        match self {
            Self::HoldingCopying => Some(Self::Copying),
            Self::Holding => Some(Self::Following),
            _ => None,
        }
    }

    fn text(self) -> &'static str {
        PHASES
            .iter()
            .find(|(phase, _)| *phase == self)
            .map_or("", |(_, text)| text)
    }
}

/// The copy that a run makes equal to the collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// A new collection, which gets the name.
    Forward,
    /// The collection in its former layout, which gets the name again.
    Back,
    /// The collection in its former layout, which follows the changes under its own name. `phase` is never
    /// later than [`Phase::Following`] then.
    WayBack,
}

const DIRECTIONS: [(Direction, &str); 3] = [
    (Direction::Forward, "forward"),
    // Proxies read this one.
    (Direction::Back, conversion::BACK),
    (Direction::WayBack, "way back"),
];

impl Direction {
    fn text(self) -> &'static str {
        let mut all = DIRECTIONS.iter();
        all.find(|(direction, _)| *direction == self)
            .map_or("", |(_, text)| text)
    }
}

/// The collection in its former layout.
#[derive(Clone, Copy)]
pub(super) struct Kept<'a> {
    pub(super) layout: &'a Layout,
    pub(super) uuid: &'a Binary,
}

/// The record of a collection's conversion as it is stored. `None`: there is none.
pub(super) async fn stored(database: &Database, collection: &str) -> Result<Option<Document>, Error> {
    let command = doc! { "find": record_name(collection), "limit": 1, "singleBatch": true };
    let reply = database.run_command(command).await?;
    let batch = reply
        .get_document("cursor")
        .and_then(|cursor| cursor.get_array("firstBatch"));
    Ok(batch.ok().and_then(|batch| batch.first()?.as_document().cloned()))
}

/// The record.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) phase: Phase,
    pub(super) from: Layout,
    pub(super) to: Layout,
    /// The UUIDs of the converted collection and of its copy. Until the copy's is [known](Self::known_copy),
    /// that of the collection.
    pub(super) source: Binary,
    pub(super) copy: Binary,
    /// Whether the server stored images of the pages before the conversion.
    pub(super) had_images: bool,
    /// The position in the change stream up to which the copy contains all changes.
    pub(super) token: Option<ResumeToken>,
    pub(super) direction: Direction,
    /// The [number](Self::number_swap) of the last swap that was given up, or that `--back` made: the name
    /// then denotes a collection that proxies may know from before. 0: there was none. Recorded before that
    /// collection gets the name, so that proxies notice that the name denoted none.
    pub(super) swap_number: i64,
}

impl Record {
    /// Gives the swap a number that no other swap has. A proxy may remember that of an earlier conversion.
    pub(super) fn number_swap(&mut self) {
        self.swap_number = rand::random_range(1..i64::MAX);
    }

    /// Whether the run only keeps the collection in its former layout up to date.
    pub(super) fn is_way_back(&self) -> bool {
        self.direction == Direction::WayBack
    }

    /// Whether the last conversion has swapped, so that the collection in its former layout is kept.
    pub(super) fn is_done(&self) -> bool {
        self.phase == Phase::Done || self.is_way_back()
    }

    /// The layout and the UUID of the collection that is kept after a swap.
    pub(super) fn kept(&self) -> Kept<'_> {
        let (layout, uuid) = if self.is_way_back() {
            (&self.to, &self.copy)
        } else {
            (&self.from, &self.source)
        };
        Kept { layout, uuid }
    }

    /// The layout that the collection has after a swap.
    pub(super) fn current(&self) -> &Layout {
        if self.is_way_back() { &self.from } else { &self.to }
    }

    /// Whether the run makes the collection in its former layout equal, and gives it the name again.
    pub(super) fn is_back(&self) -> bool {
        self.direction == Direction::Back
    }

    /// The command that continues the conversion.
    fn continuation(&self) -> &'static str {
        let task = if self.is_back() {
            ConvertTask::Back
        } else if self.to.is_plain() {
            ConvertTask::ToPlain
        } else {
            ConvertTask::ToShape
        };
        task.command()
    }

    /// The command that ends the conversion before its swap.
    pub(super) fn ending(&self) -> &'static str {
        // The copy of the way back is the former collection, which only this command drops.
        let task = if self.is_back() {
            ConvertTask::Finish
        } else {
            ConvertTask::Back
        };
        task.command()
    }

    /// That the conversion has not swapped, and the commands that continue or end it.
    pub(super) fn unfinished(&self) -> String {
        let what_ends = if self.is_back() {
            "drops the former collection instead"
        } else {
            "ends it"
        };
        format!(
            "a conversion from {} to {} is in progress, or was stopped; `{}` continues it, and `{}` {what_ends}",
            self.from,
            self.to,
            self.continuation(),
            self.ending()
        )
    }

    /// The UUID of the copy. `None`: a copy may have been created, but its UUID was not recorded.
    pub(super) fn known_copy(&self) -> Option<&Binary> {
        (self.copy != self.source).then_some(&self.copy)
    }

    /// The record of a collection's conversion. `None`: there is none.
    pub(super) async fn read(database: &Database, collection: &str) -> Result<Option<Self>, Halt> {
        let found = stored(database, collection).await?;
        found.map(|found| Self::of(&found, database, collection)).transpose()
    }

    /// The record in a stored document.
    pub(super) fn of(found: &Document, database: &Database, collection: &str) -> Result<Self, Halt> {
        let unknown = || {
            let name = record_name(collection);
            Halt::Words(format!(
                "{name} was written by another version; drop it if no conversion is in progress"
            ))
        };
        let uuid = |name: &str| match found.get(name) {
            Some(Bson::Binary(uuid)) => Some(uuid.clone()),
            _ => None,
        };
        let layout = |name: &str| Layout::recorded(found.get(name).unwrap_or(&Bson::Null), database, collection);
        let phase = found.get_str("phase").ok();
        let phase = PHASES.iter().find(|(_, text)| Some(*text) == phase);
        let direction = found.get_str(conversion::DIRECTION).ok();
        let direction = DIRECTIONS.iter().find(|(_, text)| Some(*text) == direction);
        Ok(Self {
            phase: phase.map(|(phase, _)| *phase).ok_or_else(unknown)?,
            from: layout("from")?,
            to: layout("to")?,
            source: uuid("source").ok_or_else(unknown)?,
            copy: uuid("copy").ok_or_else(unknown)?,
            had_images: found.get_bool("had_images").map_err(|_| unknown())?,
            token: found
                .get("token")
                .and_then(|token| bson::deserialize_from_bson(token.clone()).ok()),
            direction: direction.map(|(direction, _)| *direction).ok_or_else(unknown)?,
            swap_number: found
                .get(conversion::SWAP_NUMBER)
                .and_then(as_integer)
                .unwrap_or_default(),
        })
    }

    /// The state of the conversion, and the commands that continue or end it.
    pub(super) fn finding(&self, namespace: &str, collection: &str) -> Finding {
        let phase = if self.is_way_back() { Phase::Done } else { self.phase };
        match phase {
            Phase::Copying | Phase::Following => Finding::note(namespace, self.unfinished()),
            Phase::HoldingCopying | Phase::Holding | Phase::Swapping => {
                let text = format!(
                    "a conversion from {} to {} holds writers or swaps the collections, or was stopped meanwhile: commands may wait or fail until \
                     `{}` runs again",
                    self.from,
                    self.to,
                    self.continuation()
                );
                Finding::warning(namespace, text)
            }
            Phase::Done => {
                let text = format!(
                    "the former collection of {} is kept as {}; `mongoshape convert --back` returns to its layout, `--follow` applies later \
                     writes to it, and `--finish` drops it",
                    self.kept().layout,
                    kept_name(collection)
                );
                Finding::note(namespace, text)
            }
        }
    }

    /// Writes the record, and waits for the majority.
    pub(super) async fn write(&self, database: &Database, collection: &str) -> Result<(), Halt> {
        let token = self
            .token
            .as_ref()
            .and_then(|token| bson::serialize_to_bson(token).ok());
        let fields = doc! {
            "phase": self.phase.text(), "from": self.from.record(), "to": self.to.record(), "source": &self.source,
            "copy": &self.copy, "had_images": self.had_images, "token": token,
            conversion::DIRECTION: self.direction.text(), conversion::SWAP_NUMBER: self.swap_number,
        };
        let command = doc! {
            "update": record_name(collection),
            "updates": [{ "q": { "_id": 0 }, "u": { "$set": fields }, "upsert": true }],
            "writeConcern": { "w": "majority", "wtimeout": REPLICATION_TIMEOUT_MS },
        };
        let reply: Document = database.run_command(command).await?;
        if let Some(error) = reply.get_array("writeErrors").ok().and_then(|errors| errors.first()) {
            return Err(Halt::Words(format!("its record cannot be written: {error}")));
        }
        concern_kept(&reply)
    }
}

#[cfg(test)]
mod tests {
    use bson::spec::BinarySubtype;

    use super::*;

    /// The record of a conversion that has not swapped yet.
    fn record() -> Record {
        let uuid = Binary {
            subtype: BinarySubtype::Uuid,
            bytes: vec![0; 16],
        };
        Record {
            phase: Phase::Swapping,
            from: Layout::Plain,
            to: Layout::Plain,
            source: uuid.clone(),
            copy: uuid,
            had_images: false,
            token: None,
            direction: Direction::Forward,
            swap_number: 0,
        }
    }

    #[test]
    fn swaps_of_two_conversions_have_different_numbers() {
        let numbers = [record(), record()].map(|mut record| {
            record.number_swap();
            record.swap_number
        });
        assert_ne!(numbers[0], numbers[1]);
        assert!(numbers.iter().all(|number| *number > 0));
    }
}
