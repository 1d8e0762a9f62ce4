//! Unique indexes that were refused, so that the missing uniqueness is seen.
//!
//! The operator's page lists them, and a task of `serve` records them for other proxies and for `check`. An
//! entry ends when a client drops the index, drops the collection, or creates the index. See
//! `docs/decisions/0036-refused-unique-indexes-are-recorded.md`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bson::raw::{RawBsonRef, RawDocumentBuf};
use prometheus::IntGauge;
use tokio::sync::Notify;

use super::error::RunError;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::indexes::{self, Dropped};
use crate::command::registry::Command;
use crate::command::value_text::value_text;
use crate::pattern::bucket::item_index::{is_unique, key, name};

/// The most entries, and the most drops that are not recorded yet.
pub const MAX_INDEXES: usize = 1000;
/// Characters of a name, a key pattern or a message that are kept. Clients choose them.
const MAX_CHARACTERS: usize = 200;
/// The shortest time between two records of one index.
const RECORD_INTERVAL: Duration = Duration::from_mins(1);

/// Identifies an index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexId {
    /// `database.collection`.
    pub namespace: String,
    /// The index's name, cut to 200 characters.
    pub name: String,
}

/// A unique index that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedUniqueIndex {
    /// Its namespace and name.
    pub id: IndexId,
    /// The key pattern as text.
    pub key: String,
    /// The error that the application received.
    pub message: String,
    /// The time of the last refusal.
    pub at: SystemTime,
}

/// Indexes of one collection that a client has dropped or created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedIndexes {
    /// `database.collection`.
    pub namespace: String,
    /// Which of its indexes.
    pub which: WhichIndexes,
}

/// Some indexes of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhichIndexes {
    /// All.
    All,
    /// Those with these names.
    Named(Vec<String>),
    /// Those with this key pattern.
    WithKey(String),
}

/// Changes that are not recorded yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingRecords {
    /// To be removed first.
    pub ended: Vec<EndedIndexes>,
    /// To be stored then.
    pub refused: Vec<RefusedUniqueIndex>,
}

/// The refused unique indexes that this proxy knows.
#[derive(Debug)]
pub struct RefusedUniqueIndexes {
    known: Mutex<KnownIndexes>,
    /// Notified when there is something to record.
    changed: Notify,
    count: IntGauge,
}

#[derive(Debug, Default)]
struct KnownIndexes {
    entries: HashMap<IndexId, KnownIndex>,
    ended: Vec<EndedIndexes>,
}

#[derive(Debug)]
struct KnownIndex {
    index: RefusedUniqueIndex,
    /// The `at` that is recorded. `None` for a new entry.
    recorded: Option<SystemTime>,
}

impl KnownIndex {
    fn is_pending(&self) -> bool {
        let age = self.recorded.map(|recorded| self.index.at.duration_since(recorded));
        age.is_none_or(|age| age.is_ok_and(|age| age >= RECORD_INTERVAL))
    }
}

impl EndedIndexes {
    /// Whether an entry is of one of these indexes.
    #[must_use]
    pub fn includes(&self, index: &RefusedUniqueIndex) -> bool {
        self.namespace == index.id.namespace
            && match &self.which {
                WhichIndexes::All => true,
                WhichIndexes::Named(names) => names.contains(&index.id.name),
                WhichIndexes::WithKey(key) => *key == index.key,
            }
    }
}

impl RefusedUniqueIndexes {
    /// None yet. `count` shows the number of entries.
    pub(super) fn new(count: IntGauge) -> Self {
        Self {
            known: Mutex::default(),
            changed: Notify::new(),
            count,
        }
    }

    /// Notes the result of a command on a shaped collection. Costs nothing for most commands.
    pub(super) fn note(&self, head: &CommandHeader<'_>, result: &Result<RawDocumentBuf, RunError>) {
        use Command::{CreateIndexes, Drop, DropIndexes};
        if !matches!(head.command, CreateIndexes | DropIndexes | Drop) {
            return;
        }
        let Some(namespace) = head.namespace().map(|namespace| namespace.to_string()) else {
            return;
        };
        let is_error = |code| matches!(result, Err(RunError::Command(error)) if error.is(code));
        let which = match head.command {
            CreateIndexes => match result {
                Ok(_) => created(head),
                Err(RunError::Command(CommandError::Own { code, message }))
                    if *code == ErrorCode::CommandNotSupported =>
                {
                    return self.refused(head, &namespace, message);
                }
                Err(_) => None,
            },
            DropIndexes if result.is_ok() || is_error(ErrorCode::IndexNotFound) => dropped(head),
            DropIndexes | Drop if is_error(ErrorCode::NamespaceNotFound) => Some(WhichIndexes::All),
            Drop if result.is_ok() => Some(WhichIndexes::All),
            _ => None,
        };
        if let Some(which) = which {
            self.end(EndedIndexes { namespace, which }, head.command);
        }
    }

    fn refused(&self, head: &CommandHeader<'_>, namespace: &str, message: &str) {
        let specs = indexes::wanted(head.body()).unwrap_or_default();
        let unique: Vec<_> = specs.into_iter().filter(|spec| is_unique(spec)).collect();
        if unique.is_empty() {
            return;
        }
        self.change(|known| {
            for spec in unique {
                let id = IndexId {
                    namespace: namespace.to_owned(),
                    name: shortened(name(spec)),
                };
                let recorded = known.entries.get(&id).and_then(|entry| entry.recorded);
                if known.entries.len() >= MAX_INDEXES && !known.entries.contains_key(&id) {
                    continue;
                }
                let index = RefusedUniqueIndex {
                    id: id.clone(),
                    key: shortened(&value_text(RawBsonRef::Document(key(spec)))),
                    message: shortened(message),
                    at: SystemTime::now(),
                };
                known.entries.insert(id, KnownIndex { index, recorded });
            }
        });
        self.notify();
    }

    fn end(&self, ended: EndedIndexes, command: Command) {
        self.change(|known| {
            let before = known.entries.len();
            known.entries.retain(|_, entry| !ended.includes(&entry.index));
            // A drop is recorded in any case: another proxy may have recorded the index.
            let is_new = known.entries.len() < before || command != Command::CreateIndexes;
            if is_new && known.ended.len() < MAX_INDEXES && !known.ended.contains(&ended) {
                known.ended.push(ended);
            }
        });
        self.notify();
    }

    /// Notifies the task if there is something to record.
    fn notify(&self) {
        if self.pending() != PendingRecords::default() {
            self.changed.notify_one();
        }
    }

    fn change(&self, change: impl FnOnce(&mut KnownIndexes)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut known);
        self.count.set(i64::try_from(known.entries.len()).unwrap_or(i64::MAX));
    }

    /// Waits until there is something to record. Cancel safe.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The entries, the latest first.
    #[must_use]
    pub fn all(&self) -> Vec<RefusedUniqueIndex> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = known.entries.values().map(|entry| entry.index.clone()).collect();
        all.sort_by(|one, other| other.at.cmp(&one.at).then_with(|| one.id.name.cmp(&other.id.name)));
        all
    }

    /// The changes that are not recorded yet.
    #[must_use]
    pub fn pending(&self) -> PendingRecords {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = known.entries.values().filter(|entry| entry.is_pending());
        PendingRecords {
            ended: known.ended.clone(),
            refused: pending.map(|entry| entry.index.clone()).collect(),
        }
    }

    /// Takes over the records of all proxies, read after these were recorded.
    pub fn recorded(&self, done: &PendingRecords, records: Vec<RefusedUniqueIndex>) {
        self.change(|known| {
            known.ended.retain(|ended| !done.ended.contains(ended));
            for index in &done.refused {
                if let Some(entry) = known.entries.get_mut(&index.id) {
                    entry.recorded = Some(index.at);
                }
            }
            let mut before = std::mem::take(&mut known.entries);
            for index in records {
                if known.ended.iter().any(|ended| ended.includes(&index)) {
                    continue;
                }
                let recorded = Some(index.at);
                let earlier = before.remove(&index.id).map(|entry| entry.index);
                let index = earlier.filter(|earlier| earlier.at > index.at).unwrap_or(index);
                known.entries.insert(index.id.clone(), KnownIndex { index, recorded });
            }
            // An entry without a record was ended through another proxy, unless it is newer than the records.
            known
                .entries
                .extend(before.into_iter().filter(|(_, entry)| entry.is_pending()));
        });
    }
}

fn created(head: &CommandHeader<'_>) -> Option<WhichIndexes> {
    let names = indexes::wanted(head.body())?.into_iter().map(name);
    Some(WhichIndexes::Named(names.map(shortened).collect()))
}

fn dropped(head: &CommandHeader<'_>) -> Option<WhichIndexes> {
    Some(match Dropped::parse(head.body()).ok()? {
        Dropped::All => WhichIndexes::All,
        Dropped::Names(names) => WhichIndexes::Named(names.into_iter().map(shortened).collect()),
        Dropped::Key(key) => WhichIndexes::WithKey(shortened(&value_text(RawBsonRef::Document(key)))),
    })
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::command::document::{put, single};

    fn indexes() -> RefusedUniqueIndexes {
        RefusedUniqueIndexes::new(IntGauge::new("count", "help").unwrap())
    }

    fn note(indexes: &RefusedUniqueIndexes, body: &RawDocumentBuf, code: Option<ErrorCode>) {
        let result = match code {
            Some(code) => Err(RunError::Command(CommandError::new(code, "why"))),
            None => Ok(RawDocumentBuf::new()),
        };
        indexes.note(&CommandHeader::of_body(body).unwrap(), &result);
    }

    fn refuse(indexes: &RefusedUniqueIndexes, names: &[&str]) {
        let specs = names.iter().map(|name| {
            let mut spec = single("key", single(name, 1));
            put(&mut spec, "name", *name);
            put(&mut spec, "unique", true);
            spec
        });
        let specs: bson::raw::RawArrayBuf = specs.chain([rawdoc! { "key": { "z": 1 }, "name": "z" }]).collect();
        let body = rawdoc! { "createIndexes": "c", "indexes": specs, "$db": "d" };
        note(indexes, &body, Some(ErrorCode::CommandNotSupported));
    }

    fn names(indexes: &RefusedUniqueIndexes) -> Vec<String> {
        let mut names: Vec<_> = indexes.all().into_iter().map(|index| index.id.name).collect();
        names.sort();
        names
    }

    #[test]
    fn an_entry_ends_when_the_index_is_dropped_or_created() {
        let of = |body: RawDocumentBuf, code: Option<ErrorCode>, left: &[&str]| {
            let indexes = indexes();
            refuse(&indexes, &["a", "b"]);
            assert_eq!(names(&indexes), ["a", "b"]);
            assert_eq!(indexes.all()[0].message, "why");
            assert_eq!(
                indexes.all().iter().find(|index| index.id.name == "a").unwrap().key,
                "{ a: 1 }"
            );
            note(&indexes, &body, code);
            assert_eq!(names(&indexes), left, "{body:?}");
            assert_eq!(indexes.count.get(), i64::try_from(left.len()).unwrap());
        };
        let drop = |index: bson::RawBson| rawdoc! { "dropIndexes": "c", "index": index, "$db": "d" };
        of(drop("a".into()), Some(ErrorCode::IndexNotFound), &["b"]);
        of(drop("a".into()), None, &["b"]);
        of(drop("a".into()), Some(ErrorCode::Unauthorized), &["a", "b"]);
        of(drop("*".into()), None, &[]);
        of(drop(rawdoc! { "b": 1 }.into()), Some(ErrorCode::IndexNotFound), &["a"]);
        of(rawdoc! { "drop": "c", "$db": "d" }, None, &[]);
        of(rawdoc! { "drop": "c", "$db": "e" }, None, &["a", "b"]);
        let create = rawdoc! { "createIndexes": "c", "indexes": [{ "key": { "b": 1 }, "name": "b" }], "$db": "d" };
        of(create.clone(), None, &["a"]);
        of(create, Some(ErrorCode::IndexOptionsConflict), &["a", "b"]);
    }

    #[test]
    fn entries_follow_the_records_of_all_proxies() {
        let indexes = indexes();
        refuse(&indexes, &["a"]);
        let first = indexes.pending();
        assert_eq!(first.refused.len(), 1);
        refuse(&indexes, &["b"]);
        let mut other = first.refused[0].clone();
        other.id.name = "of another proxy".to_owned();
        indexes.recorded(&first, vec![first.refused[0].clone(), other]);
        assert_eq!(names(&indexes), ["a", "b", "of another proxy"]);
        // It was recorded in the last minute.
        refuse(&indexes, &["a"]);
        let second = indexes.pending();
        assert_eq!(second.refused.len(), 1);
        assert_eq!(second.refused[0].id.name, "b");
        // Another proxy has ended it.
        indexes.recorded(&second, vec![second.refused[0].clone()]);
        assert_eq!(names(&indexes), ["b"]);
        assert_eq!(indexes.pending(), PendingRecords::default());
        note(&indexes, &rawdoc! { "drop": "c", "$db": "d" }, None);
        let third = indexes.pending();
        assert_eq!(third.ended.len(), 1);
        indexes.recorded(&PendingRecords::default(), second.refused);
        assert!(names(&indexes).is_empty());
        indexes.recorded(&third, Vec::new());
        assert_eq!(indexes.pending(), PendingRecords::default());
    }

    #[test]
    fn entries_are_bounded() {
        let indexes = indexes();
        let named: Vec<String> = (0..MAX_INDEXES + 9).map(|number| number.to_string()).collect();
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        refuse(&indexes, &named);
        refuse(&indexes, &[&"x".repeat(2 * MAX_CHARACTERS), "0"]);
        assert_eq!(indexes.all().len(), MAX_INDEXES);
        assert_eq!(shortened(&"x".repeat(2 * MAX_CHARACTERS)).len(), MAX_CHARACTERS);
    }
}
