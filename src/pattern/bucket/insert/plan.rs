//! Plans the next statement of a batch.

mod draft;

use std::cell::OnceCell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use bson::DateTime;
use bson::raw::RawBson;

use self::draft::Draft;
use super::item_times::ItemTimes;
use super::key_batch::{FirstPageState, Highest, KeyBatch, RetryChain};
use super::member::Member;
use super::page_name::{CUT_BY, LONE};
use super::push::{Demand, Push};
use super::push_record::RetryNumber;
use super::statement::{self, InsertStatement, StatementKind};
use super::{page_capacity, reserve};
use crate::pattern::bucket::item::{IdSource, Item};
use crate::pattern::bucket::layout::{self, NewPage, PageHeader, PageIds, Revision, TimeBounds};
use crate::pattern::shapes::BucketShape;

/// Whether a command may be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteGuarantee {
    /// The command is sent once.
    AtLeastOnce,
    /// A retry must be recognised: see the parent module.
    ExactlyOnce,
    /// The command is part of a transaction, which any failure aborts.
    Transaction,
}

/// The header fields of a new page that do not follow from its items.
#[derive(Clone, Copy)]
struct PageStart<'a> {
    /// The page before. `None`: the new page is the first of its key.
    before: Option<&'a PageHeader>,
    unordered: bool,
    nonce: Option<i64>,
    reserves: Option<i64>,
}

/// Plans the statements that are sent together. Gives no two pages the same name.
pub struct Planner<'a> {
    shape: &'a BucketShape,
    mint: &'a dyn IdSource,
    care: WriteGuarantee,
    /// The session and number of the command. Set if it is retryable.
    retry_number: Option<&'a RetryNumber>,
    names: HashSet<String>,
    /// Whether no two keys may have pages of the same name.
    distinguishes_keys: bool,
    /// Reservation id for pages that follow full pages: the same for all keys, so that one
    /// statement can record all reservations.
    nonce: OnceCell<i64>,
}

impl<'a> Planner<'a> {
    /// A planner for the statements that are sent together.
    #[must_use]
    pub fn new(shape: &'a BucketShape, mint: &'a dyn IdSource, care: WriteGuarantee) -> Self {
        Self {
            shape,
            mint,
            care,
            retry_number: None,
            names: HashSet::new(),
            distinguishes_keys: false,
            nonce: OnceCell::new(),
        }
    }

    /// The planner for a command with this session and number. Without them, a retryable command pushes items one
    /// by one.
    #[must_use]
    pub fn for_retries(mut self, number: Option<&'a RetryNumber>) -> Self {
        self.retry_number = number;
        self
    }

    /// The planner for a sharded collection. No index compares the `_id`s of two shards, and MongoDB requires that
    /// they differ. Keys with the same text, such as 123 and "123", may be on different shards.
    #[must_use]
    pub fn for_shards(mut self, is_sharded: bool) -> Self {
        self.distinguishes_keys = is_sharded;
        self
    }

    /// Appends the next statements of batch number `number`. Appends nothing if the head page is
    /// unknown or no item is pending.
    pub fn plan(&mut self, number: usize, group: &KeyBatch, statements: &mut Vec<InsertStatement>) {
        let Some(next) = group.pending().next().filter(|_| !group.is_lost()) else {
            return;
        };
        let highest = group.highest();
        let open = highest.filter(|page| !page.is_closed(self.shape));
        let bytes = group.item(next).map(Item::bytes).unwrap_or_default();
        let is_full =
            matches!(group.highest, Highest::Full(_)) || open.is_some_and(|page| !group.may_extend(page, bytes));
        let has_room = open.is_some_and(|page| page.fits(self.shape, bytes) && !is_full);
        // A chain with a page continues with pages, so the open page of another writer is closed.
        let leaves_room =
            self.care == WriteGuarantee::ExactlyOnce && group.chain != RetryChain::Pushes && self.is_whole(group, next);
        match open {
            Some(page) if has_room && !leaves_room => {
                let push = self.push(number, group, page);
                if push.late > 0 && page.page > 0 && !is_first_marked(group, page) {
                    statements.extend(self.mark(number, group, page));
                } else {
                    statements.push(push);
                }
            }
            Some(page) => statements.extend(self.close(number, group, page, has_room || is_full)),
            None => self.pages(number, group, highest, statements),
        }
    }

    /// Appends items to the open page. Reserves the next page if the batch has more items than fit.
    fn push(&self, number: usize, group: &KeyBatch, page: &PageHeader) -> InsertStatement {
        let mut items = page_capacity::of_push(self.shape, page, pending(group));
        let is_recorded = self.care == WriteGuarantee::ExactlyOnce
            && items.first().is_some_and(|first| group.is_push_recorded(*first));
        let record_for = self.retry_number.filter(|_| is_recorded);
        if group.one_at_a_time || (self.care == WriteGuarantee::ExactlyOnce && record_for.is_none()) {
            items.truncate(1);
        }
        let ids = items.iter().filter_map(|position| group.statement_id(*position));
        let record = record_for.map(|number| number.record(ids));
        let chosen: Vec<&Item> = items.iter().filter_map(|position| group.item(*position)).collect();
        let times = self.times(&chosen, page.newest());
        let count = page.count.saturating_add(length(&items));
        let has_more = group.pending().nth(items.len()).is_some();
        let reserves = (has_more && count >= self.shape.max_items()).then(|| self.mint.nonce());
        let random = self.mint.nonce();
        let demand = match page.revision {
            _ if page.contended > 0 => Demand::Room,
            Some(revision) => Demand::Revision(revision),
            None => Demand::Header,
        };
        // A push at a revision cannot look for an `_id` on the page. Deletions do not change the revision, so it
        // cannot demand either that the page is full after it.
        let ids = page.ids.as_ref().and_then(|_| PageIds::of(&chosen));
        let named = page.revision.filter(|_| {
            let has_new_ids = !self.shape.item_ids().are_indexed() || group.ids_are_new() || lacks(page, ids.as_ref());
            page.contended == 0 && page.count > 0 && has_new_ids && reserves.is_none()
        });
        let next = named.map_or_else(|| Revision::first(random), |named| named.next(random));
        let after = PageHeader {
            count,
            bytes: page.bytes.saturating_add(layout::sum_of_bytes(&chosen)),
            to: page.newest_with(times.bounds),
            late: page.late || times.late > 0,
            size: page
                .size
                .map(|size| size.saturating_add(layout::sum_of_element_bytes(&chosen))),
            revision: Some(next).filter(|_| named.is_some() || demand != Demand::Room),
            ids: demand.ids_after(page, ids.as_ref()),
            contended: page.contended.saturating_sub(1),
            ..page.clone()
        }
        .with_reservation(reserves);
        let push = Push {
            items: &chosen,
            times: &times,
            page,
            reserves,
            record: record.as_deref(),
        };
        InsertStatement {
            kind: StatementKind::Push,
            group: number,
            id: first_id(group, &items),
            document: match named {
                Some(named) => push.at_revision(self.shape, named, next),
                None => push.with_conditions(self.shape, demand, next),
            },
            late: times.late,
            items,
            after,
            closed: None,
            reserves,
        }
    }

    /// Reserves the page after one that takes no more items.
    fn reserve(&self, number: usize, group: &KeyBatch, page: &PageHeader) -> Option<InsertStatement> {
        let nonce = *self.nonce.get_or_init(|| self.mint.nonce());
        let next = group.pending().next()?;
        Some(InsertStatement {
            kind: StatementKind::Reserve,
            group: number,
            id: first_id(group, &[next]),
            document: reserve::reserve_page(self.shape, group.item(0).map(Item::key), page, nonce),
            late: 0,
            items: Vec::new(),
            after: page.clone().with_reservation(Some(nonce)),
            closed: None,
            reserves: Some(nonce),
        })
    }

    fn close(&self, number: usize, group: &KeyBatch, page: &PageHeader, forced: bool) -> Option<InsertStatement> {
        let next = group.pending().next()?;
        let bytes = group.item(next).map(Item::bytes).filter(|_| !forced);
        let key = group.item(0).map(Item::key);
        let nonce = self.mint.nonce();
        Some(InsertStatement {
            kind: StatementKind::Close,
            group: number,
            id: first_id(group, &[next]),
            document: reserve::close(self.shape, key, page, nonce, bytes),
            late: 0,
            items: Vec::new(),
            after: PageHeader {
                short: true,
                ..page.clone()
            }
            .with_reservation(Some(nonce)),
            closed: None,
            reserves: Some(nonce),
        })
    }

    fn pages(
        &mut self,
        number: usize,
        group: &KeyBatch,
        highest: Option<&PageHeader>,
        statements: &mut Vec<InsertStatement>,
    ) {
        let first_nonce = highest.and_then(|highest| group.reserved(highest));
        if let Some(highest) = highest
            && first_nonce.is_none()
        {
            statements.extend(self.reserve(number, group, highest));
            return;
        }
        let drafts = self.drafts(group, highest);
        let behind_first = drafts.iter().skip(usize::from(highest.is_none()));
        let is_late_behind_first = behind_first.clone().any(|draft| draft.times.late > 0);
        if let Some(highest) = highest
            && is_late_behind_first
            && !is_first_marked(group, highest)
        {
            statements.extend(self.mark(number, group, highest));
            return;
        }
        let mut before = highest.cloned();
        let mut nonce = first_nonce;
        let mut left = drafts.len();
        for draft in drafts {
            left = left.saturating_sub(1);
            // The first page is stored before the late page, so the first page is marked from the
            // beginning.
            let unordered = before
                .as_ref()
                .map_or(is_late_behind_first, PageHeader::makes_unordered);
            let reserves = (left > 0 || draft.has_more).then(|| self.mint.nonce());
            let start = PageStart {
                before: before.as_ref(),
                unordered,
                nonce,
                reserves,
            };
            let page = self.page(number, group, draft, start);
            nonce = reserves;
            before = Some(page.after.clone());
            statements.push(page);
        }
    }

    fn page(&mut self, number: usize, group: &KeyBatch, draft: Draft<'_>, start: PageStart<'_>) -> InsertStatement {
        let Draft {
            items, chosen, times, ..
        } = draft;
        let before = start.before;
        let page = before.map_or(0, |before| before.page.saturating_add(1));
        let mut name = self.name(group, chosen.first().copied(), before, page);
        if draft.is_lone {
            name.push_str(LONE);
        } else if let Some(bytes) = draft.cut_by {
            name = format!("{name}{CUT_BY}{bytes}");
        }
        let is_full = length(&items) >= self.shape.max_items();
        let short = draft.has_more && !is_full;
        let new = NewPage {
            id: &name,
            page,
            late: times.late > 0,
            short,
            unordered: start.unordered,
            nonce: start.nonce,
            next: start.reserves,
            // No item is pushed to another page.
            revision: (!short && !is_full).then(|| Revision::first(self.mint.nonce())),
        };
        let bucket = layout::build(self.shape, new, &chosen);
        let may_be_pushed_to = new.revision.is_some() && self.shape.item_ids().are_indexed();
        let after = PageHeader {
            page,
            count: length(&items),
            bytes: layout::sum_of_bytes(&chosen),
            to: times.bounds.and_then(TimeBounds::newest),
            short: new.short,
            late: new.late,
            unordered: start.unordered,
            nonce: start.nonce,
            next: start.reserves.into_iter().collect(),
            anchor: false,
            size: None,
            revision: new.revision,
            ids: may_be_pushed_to.then(|| PageIds::of_page(&chosen)).flatten(),
            contended: 0,
            id: RawBson::String(name),
        };
        InsertStatement {
            kind: StatementKind::Page,
            group: number,
            id: first_id(group, &items),
            document: bucket,
            late: times.late,
            items,
            after,
            closed: before.map(|before| before.count),
            reserves: start.reserves,
        }
    }

    /// Marks the key's page 0, so that a later page may become late.
    fn mark(&self, number: usize, group: &KeyBatch, highest: &PageHeader) -> Option<InsertStatement> {
        let key = group.item(0).map(Item::key)?;
        Some(InsertStatement {
            kind: StatementKind::Mark,
            group: number,
            id: group.pending().next().map(|next| first_id(group, &[next]))?,
            document: statement::mark(self.shape, key),
            late: 0,
            items: Vec::new(),
            after: highest.clone(),
            closed: None,
            reserves: None,
        })
    }

    /// The times of the items on a page after an item of time `newest`. Empty if the shape has no
    /// time.
    fn times(&self, items: &[&Item], newest: Option<DateTime>) -> ItemTimes {
        let times = self.shape.time().map(|_| ItemTimes::of(items.iter().copied(), newest));
        times.unwrap_or_default()
    }

    /// The `_id` of the new page: key text and seconds. A suffix follows if that name is known to
    /// be in use.
    fn name(&mut self, group: &KeyBatch, first: Option<&Item>, before: Option<&PageHeader>, page: i32) -> String {
        let time = first.and_then(Item::time).unwrap_or_else(|| self.mint.now());
        let text = first.map(|item| item.key().text()).unwrap_or_default();
        let mut base = format!("{text}_{}", time.timestamp_millis().div_euclid(1000));
        if self.distinguishes_keys {
            let mut hasher = DefaultHasher::new();
            group.identity().hash(&mut hasher);
            base = format!("{base}_x{:016x}", hasher.finish());
        }
        let used_before = before
            .and_then(|before| before.id.as_str())
            .is_some_and(|id| id.starts_with(&base));
        let mut tries = group.names_taken.max(u32::from(used_before));
        loop {
            // Different keys may have the same text, for example 123 and "123", or any two
            // documents.
            let name = match tries {
                0 => base.clone(),
                1 => format!("{base}_{page}"),
                _ => format!("{base}_{page}_{tries}"),
            };
            if self.names.insert(name.clone()) {
                return name;
            }
            tries = tries.saturating_add(1);
        }
    }
}

/// Whether the page is known to have none of these `_id`s.
fn lacks(page: &PageHeader, ids: Option<&PageIds>) -> bool {
    let known = page.ids.as_ref().zip(ids);
    known.is_some_and(|(known, ids)| !known.may_contain(ids))
}

/// Whether the key's page 0 is known to be marked as unordered.
fn is_first_marked(group: &KeyBatch, highest: &PageHeader) -> bool {
    group.first == FirstPageState::Marked || highest.is_first_marked()
}

fn pending(group: &KeyBatch) -> impl Iterator<Item = (usize, &Member)> {
    group
        .pending()
        .filter_map(|position| Some((position, group.members.get(position)?)))
}

fn first_id(group: &KeyBatch, items: &[usize]) -> i32 {
    let first = items.first().and_then(|position| group.members.get(*position));
    first.map(|member| member.statement_id).unwrap_or_default()
}

fn length(items: &[usize]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}
