//! Reads of hand-written pages: one document is one page.

use bson::raw::{CString, cstr};
use bson::{Document, Regex, doc};

use super::answer::Item;
use super::data::{Data, LARGEST, SECOND, SPACING_MS};
use super::query::{LARGE_QUANTITY, Order, ReadQuery, items_before, number_of};
use crate::bench::by_hand::MAX_ITEMS;

/// From the beginning of a page to that of the next.
const PAGE_MS: i64 = SPACING_MS * MAX_ITEMS as i64;

/// The command. `None`: there is no index for it.
pub(super) fn command(query: ReadQuery, collection: &str, data: &Data) -> Option<Document> {
    let find = |filter: Document| doc! { "find": collection, "filter": filter };
    let by_name = doc! { "_id": 1 };
    Some(match query {
        ReadQuery::Page(number, order) => {
            let mut command = find(doc! { "_id": pages_of(LARGEST) });
            command.insert("skip", number_of(number - 1));
            // The newest page is rarely full, so ten items counted from there are on two.
            let (direction, limit) = match order {
                Order::OldestFirst => (Some(1), 1),
                Order::NewestFirst => (Some(-1), 2),
                Order::Any => (None, 1),
            };
            if let Some(direction) = direction {
                command.insert("sort", doc! { "_id": direction });
            }
            command.insert("limit", limit);
            command
        }
        ReadQuery::Week => {
            let week = data.week();
            // From the page on that may have begun before the week.
            let from = name(week.start.timestamp_millis() - PAGE_MS);
            let until = name(week.end.timestamp_millis());
            let mut command = find(doc! { "_id": { "$gte": from, "$lt": until } });
            command.insert("sort", by_name);
            command
        }
        ReadQuery::WholeKey => {
            let mut command = find(doc! { "_id": pages_of(SECOND) });
            command.insert("sort", by_name);
            command
        }
        ReadQuery::Count(customer) => aggregate(
            collection,
            &[
                doc! { "$match": { "_id": pages_of(customer) } },
                doc! { "$group": { "_id": null, "n": { "$sum": "$count" } } },
            ],
        ),
        ReadQuery::ById => return None,
        ReadQuery::ByQuantity => {
            let large = doc! { "$gt": LARGE_QUANTITY };
            let pages = doc! { "_id": pages_of(SECOND), "history.qty": &large };
            aggregate(
                collection,
                &[
                    doc! { "$match": pages },
                    doc! { "$unwind": "$history" },
                    doc! { "$match": { "history.qty": &large } },
                ],
            )
        }
    })
}

/// What the application keeps of the items on the pages that it has read.
pub(super) fn trim(query: ReadQuery, data: &Data, mut items: Vec<Item>) -> Vec<Item> {
    match query {
        ReadQuery::Page(number, Order::NewestFirst) => {
            items.sort_by_key(|item| std::cmp::Reverse(item.date));
            let on_newest = data.largest % usize::from(MAX_ITEMS);
            let before = if number == 1 { 0 } else { items_before(2) - on_newest };
            items.into_iter().skip(before).take(MAX_ITEMS.into()).collect()
        }
        ReadQuery::Week => {
            let week = data.week();
            items.retain(|item| week.contains(&item.date));
            items
        }
        _ => items,
    }
}

/// The condition on a page's `_id` that the pattern reads a customer's pages by.
fn pages_of(customer: i32) -> Regex {
    Regex {
        pattern: CString::try_from(format!("^{customer}_")).expect("digits"),
        options: cstr!("").to_owned(),
    }
}

/// What the `_id` of a page of the largest key begins with that begins at this time.
fn name(millis: i64) -> String {
    format!("{LARGEST}_{:010}", millis / 1000)
}

fn aggregate(collection: &str, pipeline: &[Document]) -> Document {
    doc! { "aggregate": collection, "pipeline": pipeline, "cursor": {} }
}
