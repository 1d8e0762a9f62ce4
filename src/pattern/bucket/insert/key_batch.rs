//! A key batch: the items of one command with one key, and their state.

mod recovery;

use bson::raw::RawBson;

pub use self::recovery::{Recorded, UnknownPush};
use super::failure::Failure;
use super::member::{ItemState, Member};
use super::page_capacity;
use super::page_name::LONE;
use super::statement::{InsertStatement, StatementKind};
use crate::command::error::WriteError;
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::layout::PageHeader;
use crate::pattern::shapes::BucketShape;

/// The known state of a key's head page.
#[derive(Clone, Debug)]
pub(super) enum Highest {
    Unknown,
    /// `None`: the key has no page.
    Known(Option<PageHeader>),
    /// The page takes no more items, even if its header suggests otherwise.
    Full(PageHeader),
}

/// The known state of a key's page 0, beyond what the head page records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstPageState {
    Unknown,
    /// Marked as unordered, because a later page will become late.
    Marked,
}

/// The pushes that only demand room after a push has missed: another proxy pushes to the page, and each miss costs a
/// round trip.
const PUSHES_AFTER_A_MISS: u32 = 32;

/// The reservation of a page that is not begun yet.
#[derive(Clone, Debug, PartialEq)]
pub struct PageReservation {
    /// The `_id` of the page that records the reservation.
    pub before: RawBson,
    /// The reservation's id.
    pub nonce: i64,
}

/// The form of the statement that reserves a batch's next page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReservationMode {
    /// In one statement with the reservations of other batches.
    Together,
    /// In its own statement: a statement for several batches missed some of them.
    Alone,
}

/// Progress of the chain of statements. Used only with [`super::WriteGuarantee::ExactlyOnce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryChain {
    /// No page of the chain is stored.
    Pushes,
    /// A page of the chain is stored.
    Pages,
    /// A page of the chain is stored, and the head page is the last page that this attempt stored.
    Settled,
}

/// The lookup of the `_id`s of the pending items, and of their keys in unique indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdLookup {
    /// Not needed.
    NotDue,
    /// Some may be stored.
    Due,
    /// None was stored, after the head page was read.
    Done,
}

/// The items of one command with one key.
///
/// Invariants: never empty. Members are in the client's order. Items that can never be stored are
/// not members, so two attempts at one command have the same members.
#[derive(Clone, Debug)]
pub struct KeyBatch {
    pub(super) members: Vec<Member>,
    /// All members before this position are stored or refused.
    next: usize,
    pub(super) highest: Highest,
    /// The number of candidate names for a new page that are already in use.
    pub(super) names_taken: u32,
    pub(super) chain: RetryChain,
    /// The `max_bytes` by which an earlier attempt cut this chain's pages. Every attempt continues
    /// with it.
    chain_bytes: Option<i64>,
    /// One item in each statement: a statement with several items failed because of one of them.
    pub(super) one_at_a_time: bool,
    pub(super) first: FirstPageState,
    /// The reservation for the next page.
    reserved: Option<PageReservation>,
    /// Reservations of pages that were not begun.
    abandoned: Vec<PageReservation>,
    pub(super) reservation_mode: ReservationMode,
    /// The `_id` of a page to which no item is added.
    avoided: Option<RawBson>,
    id_lookup: IdLookup,
    /// Whether a push missed its page. The next header of the key's head page records it.
    is_contended: bool,
    resent: bool,
}

/// The outcome of a statement.
#[derive(Clone, Debug)]
pub enum StatementOutcome {
    /// It was executed.
    Stored,
    /// A statement with this id was executed before, by an earlier attempt at the command.
    Resent,
    /// The statement failed and changed nothing.
    Failed(Failure),
    /// Executed or not. Only for statements that are safe to repeat.
    Unclear,
}

impl KeyBatch {
    pub(super) fn new(first: Member) -> Self {
        Self {
            members: vec![first],
            next: 0,
            highest: Highest::Unknown,
            names_taken: 0,
            chain: RetryChain::Pushes,
            chain_bytes: None,
            one_at_a_time: false,
            first: FirstPageState::Unknown,
            reserved: None,
            abandoned: Vec::new(),
            reservation_mode: ReservationMode::Together,
            avoided: None,
            id_lookup: IdLookup::NotDue,
            is_contended: false,
            resent: false,
        }
    }

    /// The item at this position. All items have the same key.
    #[must_use]
    pub fn item(&self, position: usize) -> Option<&Item> {
        self.members.get(position).map(|member| &member.item)
    }

    /// The key's identity, see [`crate::pattern::bucket::key::Key::identity`].
    #[must_use]
    pub fn identity(&self) -> &[u8] {
        self.item(0).map(Item::identity).unwrap_or_default()
    }

    /// Whether some item is pending.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.next < self.members.len()
    }

    /// The positions of the pending items.
    pub fn pending(&self) -> impl Iterator<Item = usize> + '_ {
        let rest = self.members.iter().enumerate().skip(self.next);
        rest.filter(|(_, member)| member.state == ItemState::Pending)
            .map(|(position, _)| position)
    }

    /// The positions of the stored items.
    pub fn stored_items(&self) -> impl Iterator<Item = usize> + '_ {
        let members = self.members.iter().enumerate();
        members
            .filter(|(_, member)| member.state == ItemState::Stored)
            .map(|(position, _)| position)
    }

    /// The number of stored items.
    #[must_use]
    pub fn stored(&self) -> usize {
        self.stored_items().count()
    }

    /// Whether an earlier item of the command has the same `_id` as the item at this position.
    #[must_use]
    pub fn is_repeated(&self, position: usize) -> bool {
        self.members.get(position).is_some_and(|member| member.is_repeated)
    }

    /// The positions of the pending items, with the id of a statement that begins there.
    pub fn statement_ids(&self) -> impl Iterator<Item = (usize, i32)> + '_ {
        self.pending()
            .filter_map(|position| Some((position, self.members.get(position)?.statement_id)))
    }

    /// Whether the head page must be looked up.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.highest, Highest::Unknown)
    }

    /// The header of the key's head page, if one is known to exist.
    #[must_use]
    pub fn highest(&self) -> Option<&PageHeader> {
        match &self.highest {
            Highest::Unknown => None,
            Highest::Known(facts) => facts.as_ref(),
            Highest::Full(facts) => Some(facts),
        }
    }

    /// Adds no item to the page with this `_id`.
    pub fn avoid(&mut self, page: RawBson) {
        self.avoided = Some(page);
    }

    /// Whether the open page may take an item of `bytes` bytes, apart from the limits of the shape.
    pub(super) fn may_extend(&self, page: &PageHeader, bytes: i64) -> bool {
        self.avoided.as_ref() != Some(&page.id) && page.has_space(bytes)
    }

    /// Sets the key's head page. The header may be stale. `None`: the key has no page.
    pub fn know(&mut self, mut highest: Option<PageHeader>) {
        if let Some(page) = highest.as_mut().filter(|_| std::mem::take(&mut self.is_contended)) {
            page.contended = PUSHES_AFTER_A_MISS;
        }
        self.highest = Highest::Known(highest);
        self.unsettle();
    }

    /// The id of this batch's reservation on `page`, if there is one.
    pub(super) fn reserved(&self, page: &PageHeader) -> Option<i64> {
        let reserved = self.reserved.as_ref();
        reserved
            .filter(|reserved| reserved.before == page.id)
            .map(|reserved| reserved.nonce)
    }

    /// Takes the reservations of pages that were not begun, so that the caller can withdraw them.
    pub fn abandon(&mut self) -> Vec<PageReservation> {
        self.abandoned.extend(self.reserved.take());
        std::mem::take(&mut self.abandoned)
    }

    fn record_reservation(&mut self, reserved: Option<PageReservation>) {
        self.abandoned.extend(std::mem::replace(&mut self.reserved, reserved));
    }

    /// Forgets the head page.
    pub fn forget(&mut self) {
        self.highest = Highest::Unknown;
        if self.id_lookup == IdLookup::Done {
            self.id_lookup = IdLookup::NotDue;
        }
        // The collection may have been replaced as well, so the mark on page 0 is unknown, too.
        self.first = FirstPageState::Unknown;
        self.unsettle();
    }

    /// Forgets all pages and reservations: the collection was replaced, and the pages of the new
    /// collection may have the same names.
    pub fn begin_anew(&mut self) {
        self.forget();
        self.reserved = None;
        self.abandoned.clear();
    }

    fn unsettle(&mut self) {
        if self.chain == RetryChain::Settled {
            self.chain = RetryChain::Pages;
        }
    }

    /// Records that the chosen name for a new page is already in use.
    pub fn name_is_taken(&mut self) {
        self.names_taken = self.names_taken.saturating_add(1);
    }

    /// Whether `_id`s of pending items, or their keys in unique indexes, may be stored already.
    #[must_use]
    pub fn ids_are_suspect(&self) -> bool {
        self.id_lookup == IdLookup::Due && self.has_work()
    }

    /// Records that `_id`s of pending items, or their keys in unique indexes, may be stored already.
    pub fn suspect_ids(&mut self) {
        self.id_lookup = IdLookup::Due;
    }

    /// Records that the suspect `_id`s were looked up after the head page was read.
    pub fn record_id_lookup(&mut self) {
        if self.id_lookup == IdLookup::Due {
            self.id_lookup = if self.is_lost() {
                IdLookup::NotDue
            } else {
                IdLookup::Done
            };
        }
    }

    /// Whether no page had the `_id`s of the pending items after the head page was read. So the head page has none of
    /// them while it has the same revision.
    pub(super) fn ids_are_new(&self) -> bool {
        self.id_lookup == IdLookup::Done
    }

    /// The positions of the items on a page that begins with the item at `from`, if all of them
    /// could be stored. The same for every attempt at a command. An item with a repeated `_id` has a page
    /// of its own.
    pub(super) fn extent(&self, shape: &BucketShape, from: usize) -> Vec<usize> {
        if self.is_repeated(from) {
            return vec![from];
        }
        let coming = self.members.iter().enumerate().skip(from);
        let coming = coming.filter(|(_, member)| !member.is_repeated);
        page_capacity::of_page(shape, self.max_bytes(shape), coming)
    }

    /// The `max_bytes` by which the pages of this chain are cut.
    pub(super) fn max_bytes(&self, shape: &BucketShape) -> i64 {
        self.chain_bytes.unwrap_or_else(|| shape.max_bytes().into())
    }

    /// Whether a page's name must record the `max_bytes` by which the chain is cut.
    pub(super) fn depends_on_max_bytes(&self, shape: &BucketShape) -> bool {
        let chain = self.members.iter().filter(|member| !member.is_repeated);
        page_capacity::depends_on_max_bytes(shape, &chain.collect::<Vec<_>>())
    }

    /// Leaves pending items out of the statements that are planned until [`Self::call_back`].
    pub fn set_aside(&mut self, positions: &[usize]) {
        self.mark(positions, ItemState::SetAside);
    }

    /// Makes items pending again that were set aside.
    pub fn call_back(&mut self, positions: &[usize]) {
        self.next = positions.iter().copied().fold(self.next, usize::min);
        self.mark(positions, ItemState::Pending);
    }

    /// Refuses an item.
    pub fn refuse(&mut self, position: usize) {
        self.mark(&[position], ItemState::Refused);
    }

    /// The positions of the stored items after number `index` of the client's command.
    pub fn stored_behind(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        let is_behind = move |member: &Member| member.state == ItemState::Stored && member.item.index() > index;
        let members = self.members.iter().enumerate();
        members
            .filter(move |(_, member)| is_behind(member))
            .map(|(position, _)| position)
    }

    /// The id of the statement that begins with the item at this position.
    #[must_use]
    pub fn statement_id(&self, position: usize) -> Option<i32> {
        self.members.get(position).map(|member| member.statement_id)
    }

    /// Refuses all pending items after number `index` of the client's command. Does nothing while
    /// it is unknown which of them an earlier attempt stored.
    pub fn refuse_behind(&mut self, index: usize) {
        if self.resent {
            return;
        }
        let behind: Vec<usize> = self
            .pending()
            .filter(|position| self.item(*position).is_some_and(|item| item.index() > index))
            .collect();
        self.mark(&behind, ItemState::Refused);
    }

    /// Applies the outcome of a statement. Returns an error if it refuses an item: the statement's
    /// first.
    pub fn apply(&mut self, statement: &InsertStatement, outcome: StatementOutcome) -> Option<WriteError> {
        match outcome {
            StatementOutcome::Stored => self.advance(statement),
            StatementOutcome::Resent => {
                self.forget();
                // With one pending item, the executed statement contained that item, whatever the statement's
                // kind.
                if self.pending().nth(1).is_none() {
                    self.mark(&statement.items, ItemState::Stored);
                } else {
                    self.resent = true;
                }
            }
            StatementOutcome::Failed(failure) => return self.learn(statement, failure),
            StatementOutcome::Unclear => self.doubt(statement),
        }
        None
    }

    fn doubt(&mut self, statement: &InsertStatement) {
        let before = statement.after.id.clone();
        let reserved = statement.reserves.map(|nonce| PageReservation { before, nonce });
        self.abandoned.extend(reserved);
        self.reservation_mode = ReservationMode::Alone;
        self.forget();
    }

    fn advance(&mut self, statement: &InsertStatement) {
        if statement.kind == StatementKind::Mark {
            self.first = FirstPageState::Marked;
            return;
        }
        self.mark(&statement.items, ItemState::Stored);
        self.know(Some(statement.after.clone()));
        self.names_taken = 0;
        self.reservation_mode = ReservationMode::Together;
        if statement.kind == StatementKind::Page {
            // The next page is begun, so its reservation is no longer open.
            self.reserved = None;
        }
        if let Some(nonce) = statement.reserves {
            let before = statement.after.id.clone();
            self.record_reservation(Some(PageReservation { before, nonce }));
        }
        if statement.kind == StatementKind::Page && !is_lone(&statement.after.id) {
            self.chain = RetryChain::Settled;
        }
    }

    fn learn(&mut self, statement: &InsertStatement, failure: Failure) -> Option<WriteError> {
        match failure {
            Failure::Miss => {
                self.is_contended = statement.kind == StatementKind::Push;
                self.suspect_ids();
            }
            Failure::Duplicate | Failure::Violation { .. } | Failure::Invalid(_) => self.suspect_ids(),
            Failure::PageTaken | Failure::NotReady => {}
            Failure::NameTaken => self.name_is_taken(),
            Failure::TooLarge(_) | Failure::Incompatible(_) if statement.kind == StatementKind::Push => {
                if let Highest::Known(Some(page)) = &self.highest {
                    self.highest = Highest::Full(page.clone());
                }
                return None;
            }
            Failure::TooLarge(error) | Failure::Incompatible(error) | Failure::Final(error) => {
                match statement.items.as_slice() {
                    [position] => {
                        self.mark(&[*position], ItemState::Refused);
                        return Some(error);
                    }
                    _ => self.one_at_a_time = true,
                }
            }
        }
        self.forget();
        None
    }

    fn mark(&mut self, positions: &[usize], state: ItemState) {
        for position in positions {
            if let Some(member) = self.members.get_mut(*position) {
                member.state = state;
            }
        }
        let pending = |member: &Member| member.state == ItemState::Pending;
        let rest = self.members.get(self.next..).unwrap_or_default();
        let done = rest.iter().position(pending).unwrap_or(rest.len());
        self.next = self.next.saturating_add(done);
    }
}

/// Whether the page with this name was begun with one item although more would fit.
fn is_lone(page: &RawBson) -> bool {
    page.as_str().is_some_and(|name| name.ends_with(LONE))
}
