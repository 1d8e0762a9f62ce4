//! Which statement a group is at next.

use std::collections::HashSet;

use bson::raw::RawBson;

use super::group::{Chain, Group, Highest, Member, State};
use super::statement::{self, Statement, StatementKind};
use super::times::Times;
use super::{LONE, extent};
use crate::pattern::bucket::item::{Item, Mint};
use crate::pattern::bucket::layout::{self, NewPage, PageFacts};
use crate::pattern::shapes::BucketShape;

/// Whether a command may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Care {
    /// It is sent once.
    Free,
    /// It must be recognised when it comes again: see the parent's documentation.
    Once,
    /// It is part of a transaction, which ends with whatever fails.
    Transaction,
}

/// Plans the statements that go together. Names of pages are not given twice.
pub struct Planner<'a> {
    shape: &'a BucketShape,
    mint: &'a dyn Mint,
    care: Care,
    names: HashSet<String>,
}

impl<'a> Planner<'a> {
    /// A planner for one flight of statements.
    #[must_use]
    pub fn new(shape: &'a BucketShape, mint: &'a dyn Mint, care: Care) -> Self {
        Self {
            shape,
            mint,
            care,
            names: HashSet::new(),
        }
    }

    /// Appends what the group number `number` is at next: nothing while its highest page is unknown or none of its items is
    /// pending.
    pub fn plan(&mut self, number: usize, group: &Group, statements: &mut Vec<Statement>) {
        let Some((highest, next)) = group.highest().zip(group.pending().next()) else {
            return;
        };
        let open = highest.filter(|page| !page.is_closed(self.shape));
        let is_full = matches!(group.highest, Highest::Full(_));
        let has_room = open.is_some_and(|page| {
            let bytes = group.item(next).map(Item::bytes).unwrap_or_default();
            page.fits(self.shape, bytes) && !is_full
        });
        // A chain that has a page goes on with pages: another writer's open page is closed.
        let leaves_room = self.care == Care::Once && group.chain != Chain::Pushes && self.is_whole(group, next);
        match open {
            Some(page) if has_room && !leaves_room => statements.push(self.push(number, group, page)),
            Some(page) => statements.push(self.close(number, group, (page, next), has_room || is_full)),
            None => self.pages(number, group, highest, statements),
        }
    }

    /// Whether a page that begins with this item may have all that belong on it.
    fn is_whole(&self, group: &Group, next: usize) -> bool {
        let extent = group.extent(self.shape, next);
        let pending = |position: &usize| {
            let member = group.members.get(*position);
            member.is_some_and(|member| member.state == State::Pending)
        };
        extent.iter().all(pending)
    }

    fn push(&self, number: usize, group: &Group, page: &PageFacts) -> Statement {
        let mut items = extent::of_push(self.shape, page, pending(group));
        if self.care == Care::Once || group.cautious {
            items.truncate(1);
        }
        let chosen: Vec<&Item> = items.iter().filter_map(|position| group.item(*position)).collect();
        let times = Times::of(chosen.iter().copied(), page.to);
        let after = PageFacts {
            count: page.count.saturating_add(length(&items)),
            bytes: page.bytes.saturating_add(layout::sum_of_bytes(&chosen)),
            to: page.to.max(times.to),
            ..page.clone()
        };
        Statement {
            kind: StatementKind::Push,
            group: number,
            id: first_id(group, &items),
            document: statement::push(self.shape, &chosen, page, &times),
            late: self.late(&times),
            items,
            after,
            closed: None,
        }
    }

    fn close(&self, number: usize, group: &Group, (page, next): (&PageFacts, usize), forced: bool) -> Statement {
        let bytes = group.item(next).map(Item::bytes).filter(|_| !forced);
        let key = group.item(0).map(Item::key);
        Statement {
            kind: StatementKind::Close,
            group: number,
            id: first_id(group, &[next]),
            document: statement::close(self.shape, key, page, bytes),
            late: 0,
            items: Vec::new(),
            after: PageFacts {
                short: true,
                ..page.clone()
            },
            closed: None,
        }
    }

    fn pages(&mut self, number: usize, group: &Group, highest: Option<&PageFacts>, statements: &mut Vec<Statement>) {
        let coming: Vec<(usize, &Member)> = pending(group).collect();
        let mut coming = coming.as_slice();
        let mut before = highest.cloned();
        let alone = group.cautious || (self.care == Care::Once && group.chain != Chain::Settled);
        while let Some((next, _)) = coming.first().copied() {
            let whole = self.care != Care::Once || self.is_whole(group, next);
            if !whole && before.as_ref().map(|before| before.page) != highest.map(|highest| highest.page) {
                break;
            }
            let mut items = extent::of_page(self.shape, coming.iter().copied());
            if !whole || group.cautious {
                items.truncate(1);
            }
            coming = coming.get(items.len()..).unwrap_or_default();
            let has_more = whole && !group.cautious && !coming.is_empty();
            let page = self.page(number, group, items, (before.as_ref(), has_more, !whole));
            before = Some(page.after.clone());
            statements.push(page);
            if alone || !whole {
                break;
            }
        }
    }

    fn page(
        &mut self,
        number: usize,
        group: &Group,
        items: Vec<usize>,
        (before, has_more, lone): (Option<&PageFacts>, bool, bool),
    ) -> Statement {
        let chosen: Vec<&Item> = items.iter().filter_map(|position| group.item(*position)).collect();
        let page = before.map_or(0, |before| before.page.saturating_add(1));
        let mut name = self.name(group, (chosen.first().copied(), before), page);
        if lone {
            name.push_str(LONE);
        }
        let times = Times::of(chosen.iter().copied(), before.and_then(|before| before.to));
        let late = self.late(&times);
        let short = has_more && length(&items) < self.shape.max_items();
        let new = NewPage {
            id: &name,
            page,
            late: late > 0,
            short,
        };
        let bucket = layout::build(self.shape, new, &chosen);
        let after = PageFacts {
            page,
            count: length(&items),
            bytes: layout::sum_of_bytes(&chosen),
            to: times.to,
            short,
            id: RawBson::String(name),
        };
        Statement {
            kind: StatementKind::Page,
            group: number,
            id: first_id(group, &items),
            document: bucket,
            late,
            items,
            after,
            closed: before.map(|before| before.count),
        }
    }

    fn late(&self, times: &Times) -> u32 {
        if self.shape.time().is_some() { times.late } else { 0 }
    }

    /// The new page's `_id`: the pattern's name, and a suffix where that is known or was found to be taken.
    fn name(&mut self, group: &Group, (first, before): (Option<&Item>, Option<&PageFacts>), page: i32) -> String {
        let time = first.and_then(Item::time).unwrap_or_else(|| self.mint.now());
        let text = first.map(|item| item.key().text()).unwrap_or_default();
        let base = format!("{text}_{}", time.timestamp_millis().div_euclid(1000));
        let used_before = before
            .and_then(|before| before.id.as_str())
            .is_some_and(|id| id.starts_with(&base));
        let name = match group.names_taken {
            0 if !used_before && !self.names.contains(&base) => base,
            0 | 1 => format!("{base}_{page}"),
            // Only keys of other types with the same text, such as 123 and "123", come here.
            tries => format!("{base}_{page}_{tries}"),
        };
        self.names.insert(name.clone());
        name
    }
}

fn pending(group: &Group) -> impl Iterator<Item = (usize, &Member)> {
    group
        .pending()
        .filter_map(|position| Some((position, group.members.get(position)?)))
}

fn first_id(group: &Group, items: &[usize]) -> i32 {
    let first = items.first().and_then(|position| group.members.get(*position));
    first.map(|member| member.statement_id).unwrap_or_default()
}

fn length(items: &[usize]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}
