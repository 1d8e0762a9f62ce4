//! The items of one `insert` and their states.

use std::collections::{HashMap, HashSet};

use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};

use super::unique_values::{RefusedStatement, UniqueValues};
use super::validity::Validity;
use super::write_concern::Concern;
use crate::command::document::{as_flag, get, single};
use crate::command::duplicate::{duplicate_id, duplicate_id_in_clustered, duplicate_of};
use crate::command::error::{ErrorCode, WriteError};
use crate::command::header::CommandHeader;
use crate::command::insert::Insert;
use crate::command::namespace::Namespace;
use crate::command::write_reply::WriteReply;
use crate::pattern::bucket::insert::{
    Failure, Groups, IdSet, InsertStatement, KeyBatch, Planner, RetryNumber, StatementKind, StatementOutcome,
    WriteGuarantee, page_as_upsert, unique_id,
};
use crate::pattern::bucket::item::{Item, KeepsTimestamps};
use crate::pattern::bucket::key::canonical;
use crate::pattern::shapes::BucketShape;
use crate::session::bucket::command::{BucketCommand, EmptyTimestamps};
use crate::session::bucket::retry_on_swap::interrupted;
use crate::session::collection_catalog::ReadyCollection;
use crate::session::head_page_cache::KnownHeadPage;
use crate::session::id_source::SystemIdSource;
use crate::session::metrics::{InsertMetrics, Placing};

/// Largest `_id` with its field name, in bytes, that a clustered collection certainly accepts.
/// mongod limits the encoded form to 8 MiB, and encoding can double the size.
const MAX_CLUSTERED_ID_BYTES: usize = 4 << 20;

/// The position of an item: its group, and its position in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Placed {
    pub(super) group: usize,
    pub(super) position: usize,
}

/// The `_id` of an item that another item of the batch has, too, where it must be unique.
pub(super) struct RepeatedId<'b> {
    pub(super) id: RawBsonRef<'b>,
    /// See [`unique_id`].
    pub(super) unique: Vec<u8>,
}

pub(super) struct InsertBatch<'a> {
    pub(super) shape: &'a BucketShape,
    pub(super) groups: Vec<KeyBatch>,
    pub(super) ordered: bool,
    pub(super) care: WriteGuarantee,
    /// The session and number of a retryable command.
    pub(super) retry_number: Option<RetryNumber>,
    pub(super) strict_api: bool,
    pub(super) concern: Concern,
    /// Failures, by the client's index. An ordered command has at most one, and no item after it is
    /// in `placed`.
    pub(super) failed: Vec<(usize, WriteError)>,
    /// The error of a statement that stores several items, if it concerns one of them.
    pub(super) error_of_several: Option<WriteError>,
    /// Pages on which this attempt stored items. Kept because an ordered command may have to remove
    /// these items.
    pub(super) placed: HashMap<Placed, RawBson>,
    /// The client's indexes of items that an earlier attempt stored.
    pub(super) resent: Vec<usize>,
    /// The last write concern error that mongod reported.
    pub(super) concern_error: Option<RawDocumentBuf>,
    /// The items' keys in the application's unique indexes.
    pub(super) unique: UniqueValues,
    /// Whether the items satisfy the application's validator.
    pub(super) validity: Validity,
    /// The `_id`s that occur in several items. Empty if the command ends with its first failure.
    pub(super) repeated_ids: IdSet,
    /// For each group, the pending items that the next statements leave out.
    pub(super) set_aside: HashMap<usize, Vec<usize>>,
    /// Whether the collection is known to be clustered.
    is_clustered: bool,
    /// mongod's last reply. The command's reply copies fields from it, for example the cluster
    /// time.
    pub(super) last_answer: RawDocumentBuf,
    mint: SystemIdSource<'a>,
}

impl<'a> InsertBatch<'a> {
    pub(super) fn prepare(run: &BucketCommand<'a>, command: &Insert<'_>) -> Self {
        let care = if run.context.head.in_transaction() {
            WriteGuarantee::Transaction
        } else if run.context.head.is_retryable_write() {
            WriteGuarantee::ExactlyOnce
        } else {
            WriteGuarantee::AtLeastOnce
        };
        let mut batch = Self {
            shape: run.shape,
            groups: Vec::new(),
            ordered: command.ordered,
            care,
            retry_number: match care {
                WriteGuarantee::ExactlyOnce => RetryNumber::of(run.context.head.body()),
                WriteGuarantee::AtLeastOnce | WriteGuarantee::Transaction => None,
            },
            strict_api: get(run.context.head.body(), "apiStrict")
                .and_then(as_flag)
                .unwrap_or(false),
            concern: Concern::of(run),
            failed: Vec::new(),
            error_of_several: None,
            placed: HashMap::new(),
            resent: Vec::new(),
            concern_error: None,
            unique: UniqueValues::default(),
            validity: Validity::default(),
            repeated_ids: IdSet::default(),
            set_aside: HashMap::new(),
            is_clustered: false,
            last_answer: RawDocumentBuf::new(),
            mint: SystemIdSource::new(&run.context.shared.timestamps),
        };
        batch.gather(run, command);
        batch
    }

    /// Groups the items by key, without those that cannot be stored. Depends only on the command,
    /// so every attempt has the same groups.
    fn gather(&mut self, run: &BucketCommand<'a>, command: &Insert<'_>) {
        let mut groups = Groups::default();
        let mut ids = IdSet::default();
        for (index, document) in command.documents.iter().enumerate() {
            let item = match run.timestamps {
                EmptyTimestamps::Filled => Item::prepare(run.shape, index, document, &mut self.mint),
                EmptyTimestamps::Kept => {
                    Item::prepare(run.shape, index, document, &mut KeepsTimestamps(&mut self.mint))
                }
            };
            let error = match item {
                Ok(item) => {
                    let repeated = item.id().filter(|_| !ids.add_item(run.shape, &item));
                    match repeated.map(|id| duplicate_id(run.namespace, id.as_raw_bson_ref())) {
                        Some(error) if self.ends_with_first_failure() => error,
                        repeated => {
                            let statement_id = command.statement_id(index);
                            if repeated.is_some() {
                                self.repeated_ids.add_item(run.shape, &item);
                                groups.add_repeated(item, statement_id);
                            } else {
                                groups.add(item, statement_id);
                            }
                            continue;
                        }
                    }
                }
                Err(error) => error,
            };
            self.failed.push((index, error));
            if self.ends_with_first_failure() {
                break;
            }
        }
        self.groups = groups.into_vec();
        if let Some(page) = &run.avoided_page {
            self.groups.iter_mut().for_each(|group| group.avoid(page.clone()));
        }
        if run.shape.item_ids().are_indexed() {
            // The statement of a single item reports a duplicate `_id` itself. In a transaction that error would
            // end the transaction, and an ordered command would have stored later items before it.
            let look_first = self.in_transaction() || (self.ordered && self.pending() > 1);
            let look_first = look_first || !self.repeated_ids.is_empty();
            let suspects = self.groups.iter_mut();
            let suspects = suspects.filter(|group| look_first || group.pending().nth(1).is_some());
            suspects.for_each(KeyBatch::suspect_ids);
        }
    }

    /// The `_id` of an item if another item of the batch has it, too.
    pub(super) fn repeated_id(&self, placed: Placed) -> Option<RepeatedId<'_>> {
        let item = self.item(placed).filter(|_| !self.repeated_ids.is_empty())?;
        let repeated = RepeatedId {
            id: item.id()?.as_raw_bson_ref(),
            unique: unique_id(self.shape, item)?,
        };
        self.repeated_ids.contains_item(self.shape, item).then_some(repeated)
    }

    pub(super) fn in_transaction(&self) -> bool {
        self.care == WriteGuarantee::Transaction
    }

    pub(super) fn ends_with_first_failure(&self) -> bool {
        self.ordered || self.in_transaction()
    }

    pub(super) fn has_work(&self) -> bool {
        self.groups.iter().any(KeyBatch::has_work)
    }

    pub(super) fn pending(&self) -> usize {
        self.groups.iter().map(|group| group.pending().count()).sum()
    }

    /// The pending items, group by group.
    pub(super) fn pending_placed(&self) -> impl Iterator<Item = Placed> {
        let groups = self.groups.iter().enumerate();
        groups.flat_map(|(group, of_key)| of_key.pending().map(move |position| Placed { group, position }))
    }

    /// The items that this attempt has stored.
    pub(super) fn stored_placed(&self) -> Vec<Placed> {
        let before: HashSet<usize> = self.resent.iter().copied().collect();
        let groups = self.groups.iter().enumerate();
        let stored = groups.flat_map(|(group, of_key)| {
            let stored = of_key.stored_items();
            stored.map(move |position| Placed { group, position })
        });
        let is_new = |placed: &Placed| self.item(*placed).is_some_and(|item| !before.contains(&item.index()));
        stored.filter(is_new).collect()
    }

    /// The pending items in the client's order.
    pub(super) fn pending_in_order(&self) -> Vec<Placed> {
        let mut placed: Vec<Placed> = self.pending_placed().collect();
        placed.sort_by_cached_key(|placed| self.item(*placed).map(Item::index));
        placed
    }

    /// Number of items stored by this attempt or an earlier one.
    pub(super) fn stored(&self) -> u64 {
        let stored: usize = self.groups.iter().map(KeyBatch::stored).sum();
        u64::try_from(stored).unwrap_or(u64::MAX)
    }

    /// Number of items stored by this attempt.
    pub(super) fn stored_now(&self) -> u64 {
        let before = u64::try_from(self.resent.len()).unwrap_or(u64::MAX);
        self.stored().saturating_sub(before)
    }

    pub(super) fn identity(&self, group: usize) -> &[u8] {
        self.groups.get(group).map(KeyBatch::identity).unwrap_or_default()
    }

    /// The head page that the next writer of the key gets from the cache. `None` if it is not
    /// known.
    pub(super) fn hint(&self, group: usize) -> KnownHeadPage {
        let group = self.groups.get(group).filter(|group| !group.is_lost())?;
        Some(group.highest().cloned())
    }

    /// Records whether the collection is clustered. If it is or may be, items whose `_id` is too long
    /// for a record id are refused.
    pub(super) fn learn(&mut self, run: &BucketCommand<'_>, ready: &ReadyCollection) {
        self.is_clustered = ready.is_clustered == Some(true);
        if ready.is_clustered == Some(false) {
            return;
        }
        let mut refused = Vec::new();
        for group in &mut self.groups {
            let is_long = |position: &usize| {
                let id = group.item(*position).and_then(Item::id);
                id.is_some_and(|id| single("_id", id).as_bytes().len() > MAX_CLUSTERED_ID_BYTES)
            };
            let long: Vec<usize> = group.pending().filter(is_long).collect();
            for position in long {
                group.refuse(position);
                let what = "an _id of more than 4 MiB in a collection that may be clustered";
                let error = run.unsupported(what);
                let error = WriteError::new(ErrorCode::CommandNotSupported, error.message());
                refused.extend(group.item(position).map(|item| (item.index(), error)));
            }
        }
        self.refuse(refused);
    }

    /// Plans the next statements of every group.
    pub(super) fn plan(&mut self, run: &BucketCommand<'_>) -> Vec<InsertStatement> {
        let mut planner = Planner::new(run.shape, &self.mint, self.care)
            .for_retries(self.retry_number.as_ref())
            .for_shards(run.is_sharded());
        let mut statements = Vec::new();
        for (number, group) in self.groups.iter_mut().enumerate() {
            let left_out = self.set_aside.get(&number).map(Vec::as_slice).unwrap_or_default();
            group.set_aside(left_out);
            planner.plan(number, group, &mut statements);
            group.call_back(left_out);
        }
        if self.strict_api {
            // Under `apiStrict`, a command cannot name the collection's UUID. An upsert with a hint of
            // the page index fails instead if the collection was recreated without the index.
            let pages = statements
                .iter_mut()
                .filter(|statement| statement.kind == StatementKind::Page);
            pages.for_each(|page| page.document = page_as_upsert(run.shape, &page.document));
        }
        statements
    }

    /// Applies the outcome of a statement.
    pub(super) fn apply(&mut self, metrics: &InsertMetrics, statement: &InsertStatement, outcome: StatementOutcome) {
        match &outcome {
            StatementOutcome::Stored => {
                count(metrics, statement);
                if self.ordered {
                    let placed = statement.items.iter().map(|position| Placed {
                        group: statement.group,
                        position: *position,
                    });
                    self.placed
                        .extend(placed.map(|placed| (placed, statement.after.id.clone())));
                }
            }
            StatementOutcome::Resent => {}
            StatementOutcome::Failed(Failure::Violation { violation, error }) => self.unique.report(RefusedStatement {
                violation: violation.clone(),
                error: error.clone(),
            }),
            StatementOutcome::Failed(Failure::Invalid(_)) => self.validity.report(),
            StatementOutcome::Failed(Failure::Final(error) | Failure::Incompatible(error))
                if statement.items.len() > 1 =>
            {
                metrics.conflicts.inc();
                self.error_of_several.get_or_insert_with(|| error.clone());
            }
            StatementOutcome::Failed(_) | StatementOutcome::Unclear => metrics.conflicts.inc(),
        }
        let Some(group) = self.groups.get_mut(statement.group) else {
            return;
        };
        let resent = matches!(outcome, StatementOutcome::Resent);
        let error = group.apply(statement, outcome);
        let first = statement.items.first();
        let index = first.and_then(|position| Some(group.item(*position)?.index()));
        if resent && !group.has_work() {
            metrics.resent_items.inc();
            self.resent.extend(index);
        }
        if let (Some(index), Some(error)) = (index, error) {
            if self.care == WriteGuarantee::ExactlyOnce && self.ordered {
                // An earlier attempt may have stopped before it removed the items that it had stored
                // after this one.
                self.groups.iter_mut().for_each(KeyBatch::suspect_resend);
            }
            self.refuse(vec![(index, error)]);
        }
    }

    /// Records refused items, by the client's index. In an ordered command, items after the first
    /// refused one are not stored. A transaction ends with any refused item.
    pub(super) fn refuse(&mut self, refused: Vec<(usize, WriteError)>) {
        self.failed.extend(refused);
        if !self.ends_with_first_failure() {
            return;
        }
        if let Some(first) = self.failed.iter().map(|(index, _)| *index).min() {
            self.failed.retain(|(index, _)| *index == first);
            for group in &mut self.groups {
                group.refuse_behind(first);
            }
        }
    }

    /// Stored items after `index` in the client's order.
    pub(super) fn stored_behind(&self, index: usize) -> Vec<Placed> {
        let groups = self.groups.iter().enumerate();
        groups
            .flat_map(|(group, of_key)| {
                let stored = of_key.stored_behind(index);
                stored.map(move |position| Placed { group, position })
            })
            .collect()
    }

    /// Whether mongod has replied to a statement.
    pub(super) fn has_sent(&self) -> bool {
        !self.last_answer.is_empty()
    }

    pub(super) fn item(&self, placed: Placed) -> Option<&Item> {
        self.groups.get(placed.group)?.item(placed.position)
    }

    /// The `_id`s of the items, by the client's index.
    pub(super) fn ids(&self) -> HashMap<usize, RawBsonRef<'_>> {
        let groups = self.groups.iter();
        let items = groups.flat_map(|group| (0..).map_while(|position| group.item(position)));
        let ids = items.filter_map(|item| Some((item.index(), item.id()?.as_raw_bson_ref())));
        ids.collect()
    }

    /// Fails each pending item with a write conflict.
    pub(super) fn give_up(&mut self) {
        let message = "write conflict: the page was changed by other writers before each attempt; this document is not stored: try again";
        self.refuse_pending(&WriteError::new(ErrorCode::WriteConflict, message));
    }

    /// Fails each pending item with this error.
    pub(super) fn refuse_pending(&mut self, error: &WriteError) {
        let mut refused = Vec::new();
        for group in &mut self.groups {
            let left: Vec<usize> = group.pending().collect();
            for position in left {
                group.refuse(position);
                refused.extend(group.item(position).map(|item| (item.index(), error.clone())));
            }
        }
        self.refuse(refused);
    }

    /// Marks each pending item as not stored. Unlike for a refused item, later items that are stored stay.
    pub(super) fn interrupt(&mut self) {
        for group in &mut self.groups {
            let left: Vec<usize> = group.pending().collect();
            for position in left {
                group.refuse(position);
                let index = group.item(position).map(Item::index);
                self.failed.extend(index.map(|index| (index, interrupted())));
            }
        }
    }

    pub(super) fn reply(
        mut self,
        namespace: Namespace<'_>,
        head: &CommandHeader<'_>,
        command: &Insert<'_>,
    ) -> RawDocumentBuf {
        self.failed.sort_by_key(|(index, _)| *index);
        if self.is_clustered {
            for (_, error) in &mut self.failed {
                // A clustered collection compares record ids, which do not distinguish numeric types.
                if let Some(id) = duplicate_of(error).map(canonical) {
                    *error = duplicate_id_in_clustered(namespace, id.as_raw_bson_ref());
                }
            }
        }
        let mut reply = WriteReply::default();
        reply.count(i64::try_from(self.stored()).unwrap_or(i64::MAX));
        for (index, error) in &self.failed {
            reply.fail(*index, error);
        }
        for index in &self.resent {
            reply.add_retried(command.statement_id(*index));
        }
        if let Some(error) = &self.concern_error {
            reply.set_write_concern_error(error);
        }
        reply.take_answer(self.last_answer);
        reply.into_document(head)
    }
}

fn count(metrics: &InsertMetrics, statement: &InsertStatement) {
    metrics.late_items.inc_by(statement.late.into());
    metrics.placed(match statement.kind {
        StatementKind::Push => Placing::Push,
        StatementKind::Page => Placing::Page,
        StatementKind::Reserve => Placing::Reserve,
        StatementKind::Close => Placing::Close,
        StatementKind::Mark => Placing::Mark,
    });
    if statement.kind == StatementKind::Page {
        metrics.buckets_opened.inc();
        if let Some(items) = statement.closed {
            metrics.bucket_fill.observe(items.into());
        }
    }
}
