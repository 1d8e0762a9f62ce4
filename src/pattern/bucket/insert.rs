//! Which statements put items on pages.
//!
//! One statement an item, so that each is atomic and has an answer of its own. A statement that finds its page as the
//! planner knew it succeeds; any other fails without a trace, and the item is planned again on fresh facts:
//!
//! * *push* into the open page, only while the page is as expected. It is written as an upsert that cannot insert
//!   (`$setOnInsert` of another `_id`), so that a miss is error 66 rather than a silent `n: 0`: an ordered batch stops there.
//! * *open* a page that begins with the item: an upsert that cannot match (`count: -1`) and so inserts, with the page index
//!   as its hint, so that it fails where the index is missing. Two writers who open one page collide on that index.
//! * *close* a page whose bytes leave no room: marks it `short`, which no arithmetic may miss. A miss is an error here too.

mod failure;
mod statement;

use std::collections::{HashMap, HashSet};

use bson::raw::{RawBson, RawDocumentBuf, cstr};

pub use self::failure::{Failure, failure};
use self::statement::{close, push, upsert};
use super::index;
use super::item::{Item, Mint};
use super::layout::{self, NewPage, PageFacts, path};
use crate::command::document::{put, single};
use crate::pattern::shapes::BucketShape;

/// An item still to be placed.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The item.
    pub item: Item,
    /// How many names for a new page were found taken.
    pub names_taken: u32,
    /// How often its page was not as it was known.
    pub misses: u32,
}

/// What is known of the highest page of each key, by [`super::key::Key::identity`]. `None`: the key has no page yet.
pub type Pages = HashMap<Vec<u8>, Option<PageFacts>>;

/// One statement of an `update` command.
#[derive(Clone, Debug)]
pub struct Statement {
    /// The position among the pending items of the one it is for.
    pub item: usize,
    /// What it does for it.
    pub kind: StatementKind,
    /// The element of `updates`.
    pub update: RawDocumentBuf,
}

/// What a statement does for its item; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// Puts it on a page that is there.
    Push,
    /// Begins a page with it.
    Open,
    /// Closes a page that has no room for it. The item itself is not placed.
    Close,
}

/// Plans the pending items in their order. `pages` is kept up with what the statements will have done; a key that is
/// missing in it counts as one without pages.
///
/// Each statement is planned on the success of those before it, so they must be sent as `ordered: true`, also for an
/// unordered command. Behind a failure, a page would be begun although the one before it has room left; an item would be
/// compared with the time of one that is not there, and be overtaken; and of two items with one `_id` the second could be
/// the one that is stored.
pub fn plan(shape: &BucketShape, pending: &[Pending], pages: &mut Pages, mint: &dyn Mint) -> Vec<Statement> {
    let mut planner = Planner {
        shape,
        mint,
        names: HashSet::new(),
        statements: Vec::with_capacity(pending.len()),
    };
    for (position, pending) in pending.iter().enumerate() {
        let highest = pages.entry(pending.item.identity().to_vec()).or_default();
        planner.place(position, pending, highest);
    }
    planner.statements
}

struct Planner<'a> {
    shape: &'a BucketShape,
    mint: &'a dyn Mint,
    /// Names that this plan has given.
    names: HashSet<String>,
    statements: Vec<Statement>,
}

impl Planner<'_> {
    fn place(&mut self, position: usize, pending: &Pending, highest: &mut Option<PageFacts>) {
        let item = &pending.item;
        if let Some(facts) = highest {
            if facts.fits(self.shape, item.bytes()) {
                self.statements.push(Statement {
                    item: position,
                    kind: StatementKind::Push,
                    update: push(self.shape, item, facts),
                });
                facts.count = facts.count.saturating_add(1);
                facts.bytes = facts.bytes.saturating_add(item.bytes());
                facts.to = facts.to.max(item.time());
                return;
            }
            if !facts.is_closed(self.shape) {
                self.statements.push(Statement {
                    item: position,
                    kind: StatementKind::Close,
                    update: close(self.shape, item, facts),
                });
                facts.short = true;
            }
        }
        let (update, facts) = self.open(pending, highest.as_ref());
        self.statements.push(Statement {
            item: position,
            kind: StatementKind::Open,
            update,
        });
        *highest = Some(facts);
    }

    fn open(&mut self, pending: &Pending, before: Option<&PageFacts>) -> (RawDocumentBuf, PageFacts) {
        let (shape, item) = (self.shape, &pending.item);
        let page = before.map_or(0, |before| before.page.saturating_add(1));
        let name = self.name(pending, before, page);
        let late = match (item.time(), before.and_then(|before| before.to)) {
            (None, _) => shape.time().is_some(),
            (Some(time), Some(to)) => time < to,
            (Some(_), None) => false,
        };
        let bucket = layout::build(shape, item.key(), NewPage { id: &name, page, late }, item);
        let mut query = single("_id", name.as_str());
        item.key().append_filter(shape, &mut query);
        put(&mut query, path::PAGE, page);
        put(&mut query, shape.count(), -1);
        let mut update = upsert(&query, &bucket);
        update.append(cstr!("hint"), index::PAGE);
        let facts = PageFacts {
            id: RawBson::String(name),
            page,
            count: 1,
            bytes: item.bytes(),
            to: item.time(),
            short: false,
        };
        (update, facts)
    }

    /// The new page's `_id`: the pattern's name, and a suffix where that is known or was found to be taken.
    fn name(&mut self, pending: &Pending, before: Option<&PageFacts>, page: i32) -> String {
        let time = pending.item.time().unwrap_or_else(|| self.mint.now());
        let base = format!(
            "{}_{}",
            pending.item.key().text(),
            time.timestamp_millis().div_euclid(1000)
        );
        let used_before = before
            .and_then(|before| before.id.as_str())
            .is_some_and(|id| id.starts_with(&base));
        let name = match pending.names_taken {
            0 if !used_before && !self.names.contains(&base) => base,
            0 | 1 => format!("{base}_{page}"),
            // Only keys of other types with the same text, such as 123 and "123", come here.
            tries => format!("{base}_{page}_{tries}"),
        };
        self.names.insert(name.clone());
        name
    }
}

/// The query for a key's highest page: its arguments of a `find`, without the collection.
pub fn append_facts_query(shape: &BucketShape, item: &Item, find: &mut RawDocumentBuf) {
    let mut filter = RawDocumentBuf::new();
    item.key().append_filter(shape, &mut filter);
    find.append(cstr!("filter"), &filter);
    find.append(cstr!("sort"), single(path::PAGE, -1));
    find.append(cstr!("projection"), single(shape.items(), 0));
    find.append(cstr!("limit"), 1);
    find.append(cstr!("singleBatch"), true);
}

#[cfg(test)]
mod tests;
