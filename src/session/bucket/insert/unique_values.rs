//! The keys of the command's items in the application's unique indexes.
//!
//! mongod refuses a statement that would store a second item with a key. Only then are the keys of the
//! pending items looked up, and those with a stored key refused. In two cases the keys are looked up before
//! the first statement: in a transaction, because a refused statement would end it; and in an ordered command
//! on several keys of the shape, because statements for later items could succeed before the refused one.
//!
//! Of several items with one key or `_id`, only the first is sent. The others wait until it is stored or
//! refused. A command on one key of the shape needs that for keys in indexes only after a refused statement.

use std::collections::{HashMap, HashSet};

use bson::raw::{RawBson, RawDocument};

use super::batch::{InsertBatch, Placed};
use crate::command::error::WriteError;
use crate::pattern::bucket::insert::KeyBatch;
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::key::value_identity;
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
}

/// The keys of an item in each index. Empty if the item was not pending.
#[derive(Clone, Debug, Default)]
struct ItemKeys(Vec<Vec<IndexKey>>);

impl UniqueValues {
    /// Records a refused statement.
    pub(super) fn report(&mut self, refused: RefusedStatement) {
        self.refused = Some(refused);
    }

    fn keys(&self, placed: Placed) -> impl Iterator<Item = (&UniqueIndex, &[IndexKey])> {
        let keys = self.keys.get(placed.group).and_then(|group| group.get(placed.position));
        let keys = keys.map(|keys| keys.0.as_slice()).unwrap_or_default();
        self.indexes.iter().zip(keys.iter().map(Vec::as_slice))
    }

    /// The keys of an item in the index at this position.
    fn keys_in(&self, index: usize, placed: Placed) -> &[IndexKey] {
        let keys = self.keys(placed).nth(index);
        keys.map(|(_, keys)| keys).unwrap_or_default()
    }

    /// The keys of all items in the index at this position.
    fn all_in(&self, index: usize) -> impl Iterator<Item = &IndexKey> {
        let of_items = self.keys.iter().flatten().filter_map(move |keys| keys.0.get(index));
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
        let keys = keys.flat_map(|(number, (_, keys))| keys.iter().map(move |key| (number, key)));
        keys.map(|(number, key)| [&number.to_le_bytes()[..], key.identity()].concat())
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
    if looks_up && !batch.unique.indexes.is_empty() {
        batch.groups.iter_mut().for_each(|group| group.suspect_ids(true));
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
                        of_item.0.push(keys);
                    }
                    // mongod refuses the item, unless it finds another mistake first.
                    Err(NoKeys::ParallelArrays { .. }) if !batch.in_transaction() => of_item.0.push(Vec::new()),
                    Err(reason) => {
                        let placed = Placed { group, position };
                        without_key.push(ItemWithoutKey { placed, index, reason });
                        of_item.0.clear();
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

    /// The error of an item with a key that is held.
    pub(super) fn error(&self, run: &BucketCommand<'_>, unique: &UniqueValues, placed: Placed) -> Option<WriteError> {
        unique.keys(placed).enumerate().find_map(|(number, (index, keys))| {
            let held = self.0.get(&number)?;
            let key = keys.iter().find(|key| held.contains(key))?;
            Some(index.duplicate(run.namespace, key))
        })
    }
}

/// The keys and repeated `_id`s of the pending items before an item, in the client's order.
#[derive(Default)]
pub(super) struct EarlierKeys(HashSet<Vec<u8>>);

impl EarlierKeys {
    /// Whether an earlier item has the item's `_id` or one of its keys.
    pub(super) fn contain(&self, batch: &InsertBatch<'_>, placed: Placed) -> bool {
        exclusive(batch, placed).any(|key| self.0.contains(&key))
    }

    /// Adds a pending item.
    pub(super) fn add(&mut self, batch: &InsertBatch<'_>, placed: Placed) {
        self.0.extend(exclusive(batch, placed));
    }
}

/// The unique values of an item, as bytes: its keys in unique indexes, and its `_id` if other items of the
/// batch have the same. Of two items with equal bytes, only one can be stored.
fn exclusive(batch: &InsertBatch<'_>, placed: Placed) -> impl Iterator<Item = Vec<u8>> {
    let has_repeated = batch.unique.has_repeated;
    let keys = has_repeated.then(|| batch.unique.identities(placed));
    let item = batch.item(placed).filter(|_| !batch.repeated_ids.is_empty());
    let id = item.and_then(Item::id).map(RawBson::as_raw_bson_ref);
    let id = id.filter(|id| batch.repeated_ids.contains(*id));
    // No index has this number.
    let id = id.map(|id| [&usize::MAX.to_le_bytes()[..], &value_identity(id)[..]].concat());
    keys.into_iter().flatten().chain(id)
}

/// For each group, the position of the first item that must wait for another item with the same `_id` or key.
/// In a command that ends with its first failure, all items behind that one wait, too.
pub(super) fn waiting(batch: &InsertBatch<'_>) -> HashMap<usize, usize> {
    let mut waiting = HashMap::new();
    if !batch.unique.has_repeated && batch.repeated_ids.is_empty() {
        return waiting;
    }
    let mut earlier = EarlierKeys::default();
    let mut is_behind = false;
    for placed in batch.pending_in_order() {
        if is_behind || earlier.contain(batch, placed) {
            is_behind = batch.ends_with_first_failure();
            waiting.entry(placed.group).or_insert(placed.position);
        }
        earlier.add(batch, placed);
    }
    waiting
}
