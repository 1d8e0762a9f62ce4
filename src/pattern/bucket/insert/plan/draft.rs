//! Distributes items over new pages, before the pages get numbers and names.

use super::{Planner, WriteGuarantee, pending};
use crate::pattern::bucket::insert::item_times::ItemTimes;
use crate::pattern::bucket::insert::key_batch::{KeyBatch, RetryChain};
use crate::pattern::bucket::insert::member::{ItemState, Member};
use crate::pattern::bucket::insert::page_capacity;
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::layout::{PageHeader, TimeBounds};

/// A planned page.
pub(super) struct Draft<'a> {
    /// The positions of its items in the batch.
    pub(super) items: Vec<usize>,
    /// The items.
    pub(super) chosen: Vec<&'a Item>,
    /// The times of the items, compared with the page before.
    pub(super) times: ItemTimes,
    /// Whether another page follows.
    pub(super) has_more: bool,
    /// Whether the page has one item although more would fit, and is no page of the retry chain.
    pub(super) is_lone: bool,
    /// The `max_bytes` that the page's name must record.
    pub(super) cut_by: Option<i64>,
}

impl Planner<'_> {
    /// The pages that are begun together after the key's head page, in order.
    pub(super) fn drafts<'g>(&self, group: &'g KeyBatch, highest: Option<&PageHeader>) -> Vec<Draft<'g>> {
        let coming: Vec<(usize, &Member)> = pending(group).collect();
        let mut coming = coming.as_slice();
        let mut newest = highest.and_then(PageHeader::newest);
        let alone =
            group.one_at_a_time || (self.care == WriteGuarantee::ExactlyOnce && group.chain != RetryChain::Settled);
        let records_cut = self.care == WriteGuarantee::ExactlyOnce && group.depends_on_max_bytes(self.shape);
        let cut_by = records_cut.then(|| group.max_bytes(self.shape));
        let mut drafts = Vec::new();
        while let Some((next, _)) = coming.first().copied() {
            // The items that other attempts assume on a page with this name.
            let extent = (self.care == WriteGuarantee::ExactlyOnce).then(|| group.extent(self.shape, next));
            let whole = extent.as_ref().is_none_or(|extent| are_pending(group, extent));
            if !whole && !drafts.is_empty() {
                break;
            }
            let whole_page =
                || page_capacity::of_page(self.shape, self.shape.max_bytes().into(), coming.iter().copied());
            let mut items = extent.clone().unwrap_or_else(whole_page);
            if !whole || group.one_at_a_time {
                items.truncate(1);
            }
            let is_lone = extent.is_some_and(|extent| extent.len() > items.len() || group.is_repeated(next));
            coming = coming.get(items.len()..).unwrap_or_default();
            let chosen: Vec<&Item> = items.iter().filter_map(|position| group.item(*position)).collect();
            let times = self.times(&chosen, newest);
            newest = times.bounds.and_then(TimeBounds::newest);
            drafts.push(Draft {
                items,
                chosen,
                times,
                has_more: whole && !group.one_at_a_time && !coming.is_empty(),
                is_lone,
                cut_by,
            });
            if alone || !whole {
                break;
            }
        }
        drafts
    }

    /// Whether the retry chain can continue with a page that begins with this item: all items that belong on
    /// that page are pending.
    pub(super) fn is_whole(&self, group: &KeyBatch, next: usize) -> bool {
        !group.is_repeated(next) && are_pending(group, &group.extent(self.shape, next))
    }
}

fn are_pending(group: &KeyBatch, positions: &[usize]) -> bool {
    let members = positions.iter().filter_map(|position| group.members.get(*position));
    members.into_iter().all(|member| member.state == ItemState::Pending)
}
