//! The keys of the command's items in the application's unique indexes.
//!
//! mongod refuses a statement that would store a second item with a key. Only then are the keys of the
//! pending items looked up, and those with a stored key refused. In two cases the keys are looked up before
//! the first statement: in a transaction, because a refused statement would end it; and in an ordered command
//! on several keys of the shape, because statements for later items could succeed before the refused one.
//!
//! Of several items with one key or `_id`, only the first is sent. The others wait until it is stored, and
//! are then refused, or until it is refused. A command on one key of the shape needs that for keys in indexes
//! only after a refused statement.

use std::collections::{HashMap, HashSet};

use bson::raw::RawDocument;

use super::batch::{InsertBatch, Placed, RepeatedId};
use crate::command::duplicate::duplicate_id;
use crate::command::error::WriteError;
use crate::pattern::bucket::insert::{KeyBatch, WriteGuarantee};
use crate::pattern::bucket::unique_index::{
    IndexKey, KeyLookup, KeysHeld, MAX_KEYS_BYTES, NoKeys, UniqueIndex, Violation, interrupted, lookups,
};
use crate::pattern::shapes::BucketShape;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::indexes;
use crate::session::error::RunError;

/// Violations of an unknown index, after which the items are refused. The index may have been dropped after
/// the first.
const MAX_UNKNOWN: u32 = 2;

/// A statement that mongod refused because of a unique index.
#[derive(Clone, Debug)]
pub(super) struct RefusedStatement {
    pub(super) violation: Violation,
    pub(super) error: WriteError,
}

/// The unique indexes, and the keys of the items in them.
#[derive(Debug, Default)]
pub(super) struct UniqueValues {
    indexes: Vec<UniqueIndex>,
    /// The keys of the items, by group and position.
    keys: Vec<Vec<ItemKeys>>,
    /// Whether several items have one key.
    has_repeated: bool,
    is_learned: bool,
    /// Whether the list of indexes was read for this command, and not cached.
    is_current: bool,
    refused: Option<RefusedStatement>,
    unknown: u32,
    /// Items with a key of an item that this attempt has stored, and other keys before it. Those are looked
    /// up once, because the error names the first key that is held.
    looked_up: HashSet<Placed>,
}

/// The keys of an item. Empty if the item was not pending.
#[derive(Clone, Debug, Default)]
struct ItemKeys {
    /// The keys in each index, or in those before the first one that refuses the item.
    keys: Vec<Vec<IndexKey>>,
    /// Why the next index refuses the item, as mongod's does.
    refusal: Option<NoKeys>,
}

impl UniqueValues {
    /// Records a refused statement.
    pub(super) fn report(&mut self, refused: RefusedStatement) {
        self.refused = Some(refused);
    }

    fn of_item(&self, placed: Placed) -> Option<&ItemKeys> {
        self.keys.get(placed.group)?.get(placed.position)
    }

    fn keys(&self, placed: Placed) -> impl Iterator<Item = (&UniqueIndex, &[IndexKey])> {
        let keys = self.of_item(placed).map(|item| item.keys.as_slice());
        self.indexes
            .iter()
            .zip(keys.unwrap_or_default().iter().map(Vec::as_slice))
    }

    /// The error of the index that refuses an item.
    fn refusal(&self, run: &BucketCommand<'_>, placed: Placed) -> Option<WriteError> {
        let item = self.of_item(placed)?;
        let index = self.indexes.get(item.keys.len())?;
        Some(index.without_keys(run.namespace, item.refusal?))
    }

    /// Whether an index refuses an item.
    pub(super) fn has_refusal(&self) -> bool {
        self.keys.iter().flatten().any(|item| item.refusal.is_some())
    }

    /// The keys of an item in the index at this position.
    fn keys_in(&self, index: usize, placed: Placed) -> &[IndexKey] {
        let keys = self.keys(placed).nth(index);
        keys.map(|(_, keys)| keys).unwrap_or_default()
    }

    /// The keys of all items in the index at this position.
    fn all_in(&self, index: usize) -> impl Iterator<Item = &IndexKey> {
        let of_items = self.keys.iter().flatten().filter_map(move |item| item.keys.get(index));
        of_items.flatten()
    }

    /// Whether two items have an equal key.
    fn has_equal_keys(&self) -> bool {
        (0..self.indexes.len()).any(|index| {
            let mut seen = HashSet::new();
            !self.all_in(index).all(|key| seen.insert(key.identity()))
        })
    }

    /// Bytes that are the same for equal keys of one index.
    fn identities(&self, placed: Placed) -> impl Iterator<Item = Vec<u8>> {
        let keys = self.keys(placed).enumerate();
        keys.flat_map(|(number, (_, keys))| keys.iter().map(move |key| key_identity(number, key)))
    }
}

/// Learns the unique indexes if the next statements need them, and the keys of the items. Refuses items that
/// have no key.
pub(super) async fn learn(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<(), RunError> {
    let refused = batch.unique.refused.take();
    let is_of_several = batch.groups.len() > 1;
    if refused.is_none() && (batch.unique.is_learned || !(is_of_several || batch.in_transaction())) {
        return Ok(());
    }
    let looks_up = refused.is_some() || batch.ordered || batch.in_transaction();
    if refused.is_some() {
        indexes::forget(run);
    }
    batch.unique.indexes.clone_from(&indexes::stored(run).await?.unique);
    batch.unique.is_learned = true;
    batch.unique.is_current = refused.is_some();
    if let Some(refused) = refused
        && refused.violation.index(&batch.unique.indexes).is_none()
    {
        batch.unique.unknown = batch.unique.unknown.saturating_add(1);
        if batch.unique.unknown >= MAX_UNKNOWN {
            let error = match &refused.violation {
                Violation::SamePage(index) => interrupted(run.namespace, index),
                Violation::OtherPage { .. } => refused.error,
            };
            batch.refuse_pending(&error);
        }
    }
    let mut without_key = read_keys(run, batch);
    if !without_key.is_empty() && was_outdated(run, batch).await? {
        without_key = read_keys(run, batch);
    }
    refuse(run, batch, without_key);
    // An item with the key of another item may have a stored `_id`, too, which mongod reports first.
    if (looks_up || batch.unique.has_repeated) && !batch.unique.indexes.is_empty() {
        batch.groups.iter_mut().for_each(KeyBatch::suspect_ids);
    }
    Ok(())
}

/// Learns the indexes again if the cached list was outdated, because another proxy dropped an index. Returns
/// whether it was. No item is refused because of a cached list.
pub(super) async fn learn_again(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<bool, RunError> {
    let was_outdated = was_outdated(run, batch).await?;
    if was_outdated {
        let without_key = read_keys(run, batch);
        refuse(run, batch, without_key);
    }
    Ok(was_outdated)
}

/// Reads the list of indexes if it was cached. Returns whether it differs from the cached one.
async fn was_outdated(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<bool, RunError> {
    if batch.unique.is_current {
        return Ok(false);
    }
    indexes::forget(run);
    let indexes = indexes::stored(run).await?.unique.clone();
    batch.unique.is_current = true;
    let is_outdated = batch.unique.indexes != indexes;
    batch.unique.indexes = indexes;
    Ok(is_outdated)
}

/// An item that has no key in an index.
struct ItemWithoutKey {
    placed: Placed,
    /// The position of the index.
    index: usize,
    reason: NoKeys,
}

/// Computes the keys of the pending items. Returns the items that have none.
fn read_keys(run: &BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Vec<ItemWithoutKey> {
    let mut without_key = Vec::new();
    batch.unique.keys.clear();
    if batch.unique.indexes.is_empty() {
        return without_key;
    }
    let mut bytes = 0_usize;
    for (group, of_key) in batch.groups.iter().enumerate() {
        let pending: Vec<usize> = of_key.pending().collect();
        let mut of_items = vec![ItemKeys::default(); pending.last().map_or(0, |last| last.saturating_add(1))];
        for position in pending {
            let (Some(item), Some(of_item)) = (of_key.item(position), of_items.get_mut(position)) else {
                continue;
            };
            for (index, unique) in batch.unique.indexes.iter().enumerate() {
                let keys = if bytes > MAX_KEYS_BYTES {
                    Err(NoKeys::TooLarge)
                } else {
                    unique.keys_of(run.shape, item)
                };
                match keys {
                    Ok(keys) => {
                        bytes = keys.iter().map(IndexKey::bytes).fold(bytes, usize::saturating_add);
                        of_item.keys.push(keys);
                    }
                    // The item can have a key of another item in an index before this one.
                    Err(refusal @ NoKeys::ParallelArrays { .. }) => {
                        of_item.refusal = Some(refusal);
                        break;
                    }
                    Err(reason) => {
                        let placed = Placed { group, position };
                        without_key.push(ItemWithoutKey { placed, index, reason });
                        of_item.keys.clear();
                        break;
                    }
                }
            }
        }
        batch.unique.keys.push(of_items);
    }
    without_key
}

/// Refuses the items without a key. After that, the keys of the others are known.
fn refuse(run: &BucketCommand<'_>, batch: &mut InsertBatch<'_>, without_key: Vec<ItemWithoutKey>) {
    let mut refused = Vec::new();
    for ItemWithoutKey { placed, index, reason } in without_key {
        let (Some(group), Some(index)) = (batch.groups.get_mut(placed.group), batch.unique.indexes.get(index)) else {
            continue;
        };
        group.refuse(placed.position);
        let error = index.without_keys(run.namespace, reason);
        refused.extend(group.item(placed.position).map(|item| (item.index(), error)));
    }
    batch.refuse(refused);
    batch.unique.has_repeated = batch.unique.has_equal_keys();
}

/// A lookup of keys in one of the unique indexes.
pub(super) struct UniqueKeyLookup {
    /// The position of the index.
    pub(super) index: usize,
    pub(super) lookup: KeyLookup,
}

/// The lookups of the suspect items' keys.
pub(super) fn key_lookups(shape: &BucketShape, batch: &InsertBatch<'_>) -> Vec<UniqueKeyLookup> {
    let mut all = Vec::new();
    for (number, index) in batch.unique.indexes.iter().enumerate() {
        let is_suspect = |placed: &Placed| batch.groups.get(placed.group).is_some_and(KeyBatch::ids_are_suspect);
        let suspects = batch.pending_placed().filter(is_suspect);
        let mut keys: Vec<&IndexKey> = suspects
            .flat_map(|placed| batch.unique.keys_in(number, placed))
            .collect();
        if batch.unique.has_repeated {
            let mut seen = HashSet::new();
            keys.retain(|key| seen.insert(key.identity()));
        }
        let lookups = lookups(shape, index, &keys).into_iter();
        all.extend(lookups.map(|lookup| UniqueKeyLookup { index: number, lookup }));
    }
    all
}

/// The keys that stored items have in the unique indexes.
#[derive(Default)]
pub(super) struct KeysFound(HashMap<usize, KeysHeld>);

impl KeysFound {
    /// Whether no stored item has one of the keys.
    pub(super) fn is_empty(&self) -> bool {
        self.0.values().all(KeysHeld::is_empty)
    }

    /// Adds the keys of a page that the lookup of an index returned.
    pub(super) fn add(&mut self, shape: &BucketShape, unique: &UniqueValues, number: usize, page: &RawDocument) {
        if let Some(index) = unique.indexes.get(number) {
            let held = self.0.entry(number);
            let held = held.or_insert_with(|| KeysHeld::among(unique.all_in(number)));
            held.add(shape, index, page);
        }
    }

    /// The error of an item with a key that is held, or that an index refuses.
    pub(super) fn error(&self, run: &BucketCommand<'_>, unique: &UniqueValues, placed: Placed) -> Option<WriteError> {
        let duplicate = unique.keys(placed).enumerate().find_map(|(number, (index, keys))| {
            let held = self.0.get(&number)?;
            let key = keys.iter().find(|key| held.contains(key))?;
            Some(index.duplicate(run.namespace, key))
        });
        duplicate.or_else(|| unique.refusal(run, placed))
    }
}

/// Keys and repeated `_id`s of items.
#[derive(Default)]
pub(super) struct EarlierKeys(HashSet<Vec<u8>>);

impl EarlierKeys {
    /// Whether an added item has the item's `_id` or one of its keys.
    pub(super) fn contain(&self, batch: &InsertBatch<'_>, placed: Placed) -> bool {
        exclusive(batch, placed).any(|key| self.0.contains(&key))
    }

    /// Adds an item.
    pub(super) fn add(&mut self, batch: &InsertBatch<'_>, placed: Placed) {
        self.0.extend(exclusive(batch, placed));
    }

    /// The duplicate of an item that is stored beside the added ones. `None`: it is none.
    fn duplicate(&self, run: &BucketCommand<'_>, batch: &InsertBatch<'_>, placed: Placed) -> Option<Duplicate> {
        if let Some(repeated) = batch.repeated_id(placed).filter(|id| self.0.contains(&id_identity(id))) {
            let error = duplicate_id(run.namespace, repeated.id);
            return Some(Duplicate {
                placed,
                error,
                is_of_index: false,
                is_first_key: true,
            });
        }
        if !batch.unique.has_repeated {
            return None;
        }
        let of_indexes = batch.unique.keys(placed).enumerate();
        let mut keys = of_indexes
            .flat_map(|(number, (index, keys))| keys.iter().map(move |key| (number, index, key)))
            .enumerate();
        let (before, (_, index, key)) =
            keys.find(|(_, (number, _, key))| self.0.contains(&key_identity(*number, key)))?;
        Some(Duplicate {
            placed,
            error: index.duplicate(run.namespace, key),
            is_of_index: true,
            // mongod checks the `_id` first.
            is_first_key: before == 0 && batch.repeated_id(placed).is_none(),
        })
    }
}

/// The unique values of an item, as bytes: its keys in unique indexes, and its `_id` if other items of the
/// batch have the same. Of two items with equal bytes, only one can be stored.
fn exclusive(batch: &InsertBatch<'_>, placed: Placed) -> impl Iterator<Item = Vec<u8>> {
    let has_repeated = batch.unique.has_repeated;
    let keys = has_repeated.then(|| batch.unique.identities(placed));
    keys.into_iter()
        .flatten()
        .chain(batch.repeated_id(placed).map(|repeated| id_identity(&repeated)))
}

fn id_identity(repeated: &RepeatedId<'_>) -> Vec<u8> {
    // No index has this number.
    [&usize::MAX.to_le_bytes()[..], &repeated.unique[..]].concat()
}

/// `number`: the position of the index.
fn key_identity(number: usize, key: &IndexKey) -> Vec<u8> {
    [&number.to_le_bytes()[..], key.identity()].concat()
}

/// An item with the `_id` or a key of another item of the command.
struct Duplicate {
    placed: Placed,
    error: WriteError,
    /// Whether the items are equal in a unique index of the application, and not only in their `_id`s.
    is_of_index: bool,
    /// Whether the item has no key before this one, in the order in which mongod checks them.
    is_first_key: bool,
}

/// Pending items with the `_id` or a key of another item of the command.
#[derive(Default)]
struct RepeatedItems {
    /// This attempt has stored the other item.
    duplicates: Vec<Duplicate>,
    /// This attempt has stored the other item, and the error may name an earlier key of the item.
    unclear: Vec<Placed>,
    /// The unclear items, and those whose other item is pending. In a command that ends with its first
    /// failure: also all items behind.
    waiting: HashSet<Placed>,
}

impl RepeatedItems {
    fn of(run: &BucketCommand<'_>, batch: &InsertBatch<'_>) -> Self {
        let mut stored = EarlierKeys::default();
        for placed in batch.stored_placed() {
            stored.add(batch, placed);
        }
        let mut repeated = Self::default();
        let mut earlier = EarlierKeys::default();
        let mut is_behind = false;
        for placed in batch.pending_in_order() {
            let waits = is_behind || earlier.contain(batch, placed);
            let is_looked_up = !waits && batch.unique.looked_up.contains(&placed);
            let duplicate = stored.duplicate(run, batch, placed);
            let is_unclear = duplicate.is_some() && !waits;
            match duplicate.filter(|duplicate| duplicate.is_first_key || is_looked_up) {
                Some(duplicate) => {
                    repeated.duplicates.push(duplicate);
                    continue;
                }
                None if is_unclear => repeated.unclear.push(placed),
                None => {}
            }
            if waits || is_unclear {
                is_behind = batch.ends_with_first_failure();
                repeated.waiting.insert(placed);
            }
            earlier.add(batch, placed);
        }
        repeated
    }
}

/// Refuses the items with the `_id` or a key of an item that this attempt has stored. Determines the items
/// that the next statements leave out: those with the `_id` or a key of a pending item, and those whose error
/// needs a lookup.
pub(super) async fn hold_back(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<(), RunError> {
    batch.set_aside.clear();
    if !batch.unique.has_repeated && batch.repeated_ids.is_empty() {
        return Ok(());
    }
    let mut repeated = RepeatedItems::of(run, batch);
    let concerns_index = !repeated.unclear.is_empty() || repeated.duplicates.iter().any(|found| found.is_of_index);
    if concerns_index && learn_again(run, batch).await? {
        repeated = RepeatedItems::of(run, batch);
    }
    let mut refused = Vec::new();
    for Duplicate { placed, error, .. } in repeated.duplicates {
        if let Some(group) = batch.groups.get_mut(placed.group) {
            group.refuse(placed.position);
        }
        refused.extend(batch.item(placed).map(|item| (item.index(), error)));
    }
    batch.refuse(refused);
    for placed in &repeated.unclear {
        if let Some(group) = batch.groups.get_mut(placed.group) {
            group.suspect_ids();
        }
    }
    batch.unique.looked_up.extend(repeated.unclear);
    for number in 0..batch.groups.len() {
        let left_out = left_out(batch, number, &repeated.waiting);
        if !left_out.is_empty() {
            batch.set_aside.insert(number, left_out);
        }
    }
    Ok(())
}

/// The pending items of a group that the next statements leave out. In a retry chain, an item is sent after
/// all earlier ones, apart from those with repeated `_id`s. These have statements of their own.
fn left_out(batch: &InsertBatch<'_>, group: usize, waiting: &HashSet<Placed>) -> Vec<usize> {
    let Some(of_key) = batch.groups.get(group) else {
        return Vec::new();
    };
    let waits = |position: usize| waiting.contains(&Placed { group, position });
    if batch.care != WriteGuarantee::ExactlyOnce {
        return of_key.pending().filter(|position| waits(*position)).collect();
    }
    let ends = |position: &usize| waits(*position) && !of_key.is_repeated(*position);
    let end = of_key.pending().find(ends).unwrap_or(usize::MAX);
    let is_ready = |position: &usize| *position < end && !waits(*position);
    let first = of_key.pending().find(is_ready);
    let alone = first.filter(|position| of_key.is_repeated(*position));
    let is_sent = |position: usize| match alone {
        Some(alone) => position == alone,
        None => position < end && !of_key.is_repeated(position),
    };
    of_key.pending().filter(|position| !is_sent(*position)).collect()
}
