//! The items of one command with one key, and their state.

use bson::raw::RawBson;

use super::failure::Failure;
use super::page_name::{CUT_BY, LONE};
use super::page_span;
use super::statement::{InsertStatement, StatementKind};
use crate::command::error::WriteError;
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::layout::PageHeader;
use crate::pattern::shapes::BucketShape;

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemState {
    /// It is still to be stored.
    Pending,
    /// It is stored, by this attempt at the command or by one before.
    Stored,
    /// It is not to be stored.
    Refused,
}

/// One of the items.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) item: Item,
    /// The id of a statement that begins with it.
    pub(super) statement_id: i32,
    pub(super) state: ItemState,
}

/// What is known of a key's highest page.
#[derive(Clone, Debug)]
pub(super) enum Highest {
    Unknown,
    /// `None`: the key has no page.
    Known(Option<PageHeader>),
    /// It takes no more, whatever its facts say.
    Full(PageHeader),
}

/// What is known of a key's page 0, beside what the highest page tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstPageState {
    Unknown,
    /// It was marked as unordered, for a page that is to become late.
    Marked,
}

/// A page to be, as the one before it announces it.
#[derive(Clone, Debug, PartialEq)]
pub struct Announcement {
    /// The `_id` of the page before.
    pub before: RawBson,
    /// By what.
    pub nonce: i64,
}

/// How a group's next page is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Announcing {
    /// In one statement with those of other groups.
    Together,
    /// By itself: a statement for several has missed some.
    Alone,
}

/// How far the chain of statements has come; only of interest with [`super::WriteGuarantee::ExactlyOnce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryChain {
    /// No page of it is stored.
    Pushes,
    /// One is.
    Pages,
    /// One is, and what is known of the highest page was so when the items before the next were stored and
    /// the next was not.
    Settled,
}

/// The items of one command under one key.
///
/// Invariants: never empty; members stand in the client's order, and those that may never be stored are not
/// among them, so that two attempts at one command have the same members.
#[derive(Clone, Debug)]
pub struct KeyBatch {
    pub(super) members: Vec<Member>,
    /// All members before it are no longer pending.
    next: usize,
    pub(super) highest: Highest,
    /// How many names for a new page were found taken.
    pub(super) names_taken: u32,
    pub(super) chain: RetryChain,
    /// The `max_bytes` by which an earlier attempt cuts this chain's pages, which every attempt goes on with.
    chain_bytes: Option<i64>,
    /// One item a statement: something was wrong with one of several.
    pub(super) one_at_a_time: bool,
    pub(super) first: FirstPageState,
    /// The page that is to be begun next.
    announced: Option<Announcement>,
    /// Pages that are not begun although they were announced.
    abandoned: Vec<Announcement>,
    pub(super) announcing: Announcing,
    ids_suspect: bool,
    resent: bool,
}

/// What came of a statement.
#[derive(Clone, Debug)]
pub enum StatementOutcome {
    /// It was executed.
    Stored,
    /// Its id was executed before: by an earlier attempt at the command.
    Resent,
    /// It failed without a trace.
    Failed(Failure),
    /// It was executed or not; only of what may be done twice.
    Unclear,
}

/// What mongod remembers of a statement.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// An update.
    Update,
    /// An insert, of a document with this `_id`.
    Insert(RawBson),
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
            announced: None,
            abandoned: Vec::new(),
            announcing: Announcing::Together,
            ids_suspect: false,
            resent: false,
        }
    }

    /// An item of the group, by its position. All have the same key.
    #[must_use]
    pub fn item(&self, position: usize) -> Option<&Item> {
        self.members.get(position).map(|member| &member.item)
    }

    /// [`crate::pattern::bucket::key::Key::identity`].
    #[must_use]
    pub fn identity(&self) -> &[u8] {
        self.item(0).map(Item::identity).unwrap_or_default()
    }

    /// Whether an item is still to be stored.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.next < self.members.len()
    }

    /// The positions of the items that are still to be stored.
    pub fn pending(&self) -> impl Iterator<Item = usize> + '_ {
        let rest = self.members.iter().enumerate().skip(self.next);
        rest.filter(|(_, member)| member.state == ItemState::Pending)
            .map(|(position, _)| position)
    }

    /// How many are stored.
    #[must_use]
    pub fn stored(&self) -> usize {
        let stored = |member: &&Member| member.state == ItemState::Stored;
        self.members.iter().filter(stored).count()
    }

    /// The ids that statements of the pending items would have, with their positions.
    pub fn statement_ids(&self) -> impl Iterator<Item = (usize, i32)> + '_ {
        self.pending()
            .filter_map(|position| Some((position, self.members.get(position)?.statement_id)))
    }

    /// Whether the highest page must be looked up.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.highest, Highest::Unknown)
    }

    /// The header of the key's highest page, if it is known that there is one.
    #[must_use]
    pub fn highest(&self) -> Option<&PageHeader> {
        match &self.highest {
            Highest::Unknown => None,
            Highest::Known(facts) => facts.as_ref(),
            Highest::Full(facts) => Some(facts),
        }
    }

    /// Tells what the key's highest page is, or was a while ago.
    pub fn know(&mut self, highest: Option<PageHeader>) {
        self.highest = Highest::Known(highest);
        self.unsettle();
    }

    /// What this group has announced behind that page.
    pub(super) fn announced(&self, page: &PageHeader) -> Option<i64> {
        let announced = self.announced.as_ref();
        announced
            .filter(|announced| announced.before == page.id)
            .map(|announced| announced.nonce)
    }

    /// What it has announced and not begun, to be taken back.
    pub fn abandon(&mut self) -> Vec<Announcement> {
        self.abandoned.extend(self.announced.take());
        std::mem::take(&mut self.abandoned)
    }

    fn announce(&mut self, announced: Option<Announcement>) {
        self.abandoned.extend(std::mem::replace(&mut self.announced, announced));
    }

    /// Forgets what was known of the highest page.
    pub fn forget(&mut self) {
        self.highest = Highest::Unknown;
        // Whether the collection is still the same is not known either.
        self.first = FirstPageState::Unknown;
        self.unsettle();
    }

    /// Forgets all pages, those that it has announced among them: the collection is another, whose pages may
    /// have the same names.
    pub fn begin_anew(&mut self) {
        self.forget();
        self.announced = None;
        self.abandoned.clear();
    }

    fn unsettle(&mut self) {
        if self.chain == RetryChain::Settled {
            self.chain = RetryChain::Pages;
        }
    }

    /// Says that another page has the name of the one to be begun.
    pub fn name_is_taken(&mut self) {
        self.names_taken = self.names_taken.saturating_add(1);
    }

    /// Whether some of the pending items' `_id`s may be stored already.
    #[must_use]
    pub fn ids_are_suspect(&self) -> bool {
        self.ids_suspect && self.has_work()
    }

    /// Says whether they may be.
    pub fn suspect_ids(&mut self, suspect: bool) {
        self.ids_suspect = suspect;
    }

    /// Whether an earlier attempt may have stored pending items.
    #[must_use]
    pub fn is_resent(&self) -> bool {
        self.resent && self.has_work()
    }

    /// Says that one may have.
    pub fn suspect_resend(&mut self) {
        self.resent = true;
    }

    /// Takes over what earlier attempts stored, by what mongod remembers of statements that began with an
    /// item. Gives the positions of their items.
    pub fn recover(&mut self, shape: &BucketShape, recorded: &[(usize, Recorded)]) -> Vec<usize> {
        let mut found = Vec::new();
        for (position, recorded) in recorded {
            match recorded {
                Recorded::Insert(id) if !is_lone(id) => {
                    self.chain = RetryChain::Pages;
                    // Where the name does not tell, the items are cut alike under any `max_bytes`, or an
                    // earlier build has begun the page, under the same as here.
                    self.chain_bytes = recorded_max_bytes(id).or(self.chain_bytes);
                    found.extend(self.extent(shape, *position));
                }
                Recorded::Insert(_) | Recorded::Update => found.push(*position),
            }
        }
        found.retain(|position| {
            self.members
                .get(*position)
                .is_some_and(|member| member.state == ItemState::Pending)
        });
        self.mark(&found, ItemState::Stored);
        self.resent = false;
        self.forget();
        found
    }

    /// The positions of the items that a page which begins with this one would have, if all could be stored.
    /// The same for every attempt at a command.
    pub(super) fn extent(&self, shape: &BucketShape, from: usize) -> Vec<usize> {
        let coming = self.members.iter().enumerate().skip(from);
        page_span::of_page(shape, self.max_bytes(shape), coming)
    }

    /// By which the pages of this chain are cut.
    pub(super) fn max_bytes(&self, shape: &BucketShape) -> i64 {
        self.chain_bytes.unwrap_or_else(|| shape.max_bytes().into())
    }

    /// Whether the name of a page is to tell by which `max_bytes` the chain is cut.
    pub(super) fn depends_on_max_bytes(&self, shape: &BucketShape) -> bool {
        page_span::depends_on_max_bytes(shape, &self.members)
    }

    /// Gives up on an item.
    pub fn refuse(&mut self, position: usize) {
        self.mark(&[position], ItemState::Refused);
    }

    /// The positions of the items that are stored and stand behind one of the client's command.
    pub fn stored_behind(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        let is_behind = move |member: &Member| member.state == ItemState::Stored && member.item.index() > index;
        let members = self.members.iter().enumerate();
        members
            .filter(move |(_, member)| is_behind(member))
            .map(|(position, _)| position)
    }

    /// The id of the statement that begins with an item.
    #[must_use]
    pub fn statement_id(&self, position: usize) -> Option<i32> {
        self.members.get(position).map(|member| member.statement_id)
    }

    /// Gives up on all pending items behind one of the client's command, once it is known which of them an
    /// earlier attempt has stored.
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

    /// Takes in what came of a statement; the error of an item that is refused for it, which is the
    /// statement's first.
    pub fn apply(&mut self, statement: &InsertStatement, outcome: StatementOutcome) -> Option<WriteError> {
        match outcome {
            StatementOutcome::Stored => self.advance(statement),
            StatementOutcome::Resent => {
                self.forget();
                // One item is covered by one statement, of whatever kind.
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
        let announced = statement.announces.map(|nonce| Announcement { before, nonce });
        self.abandoned.extend(announced);
        self.announcing = Announcing::Alone;
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
        self.announcing = Announcing::Together;
        if statement.kind == StatementKind::Page {
            // Begun, and so no longer to be.
            self.announced = None;
        }
        if let Some(nonce) = statement.announces {
            let before = statement.after.id.clone();
            self.announce(Some(Announcement { before, nonce }));
        }
        if statement.kind == StatementKind::Page && !is_lone(&statement.after.id) {
            self.chain = RetryChain::Settled;
        }
    }

    fn learn(&mut self, statement: &InsertStatement, failure: Failure) -> Option<WriteError> {
        match failure {
            Failure::Miss | Failure::Duplicate => self.ids_suspect = true,
            Failure::PageTaken | Failure::NotReady => {}
            Failure::NameTaken => self.name_is_taken(),
            Failure::TooLarge(_) if statement.kind == StatementKind::Push => {
                if let Highest::Known(Some(page)) = &self.highest {
                    self.highest = Highest::Full(page.clone());
                }
                return None;
            }
            Failure::TooLarge(error) | Failure::Final(error) => match statement.items.as_slice() {
                [position] => {
                    self.mark(&[*position], ItemState::Refused);
                    return Some(error);
                }
                _ => self.one_at_a_time = true,
            },
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

/// The `max_bytes` that the name of a page tells, as [`CUT_BY`] says.
fn recorded_max_bytes(page: &RawBson) -> Option<i64> {
    let (_, bytes) = page.as_str()?.rsplit_once(CUT_BY)?;
    bytes.parse().ok().filter(|bytes| *bytes > 0)
}

/// Whether the page of that name was begun with one item whatever it could have had.
fn is_lone(page: &RawBson) -> bool {
    page.as_str().is_some_and(|name| name.ends_with(LONE))
}
