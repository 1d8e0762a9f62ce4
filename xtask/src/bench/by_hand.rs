//! The bucket pattern as an application writes it by hand.

use std::collections::BTreeMap;

use bson::raw::{CString, cstr};
use bson::{Document, Regex, doc};

use super::model::Write;
use super::trades::{KEY, Trade};

/// Trades on a page, at most.
pub(super) const MAX_ITEMS: u8 = 10;

/// The statement that puts a trade on a page of its customer that has room, or on a new one.
pub(super) fn upsert(trade: &Trade) -> Document {
    let pages = Regex {
        pattern: CString::try_from(format!("^{}_", trade.customer)).expect("digits"),
        options: cstr!("").to_owned(),
    };
    let update = doc! {
        "$push": { "history": trade.element() },
        "$inc": { "count": 1 },
        "$setOnInsert": { "_id": trade.page_id(), KEY: trade.customer },
    };
    doc! { "q": { "_id": pages, "count": { "$lt": i32::from(MAX_ITEMS) } }, "u": update, "upsert": true }
}

/// The trades on the pages that these statements would leave in an empty collection, by customer.
pub(super) fn pages(trades: &[Trade]) -> Vec<Vec<Trade>> {
    let mut customers: BTreeMap<i32, Vec<Trade>> = BTreeMap::new();
    for trade in trades {
        customers.entry(trade.customer).or_default().push(*trade);
    }
    let pages = customers.values().flat_map(|trades| trades.chunks(MAX_ITEMS.into()));
    pages.map(<[Trade]>::to_vec).collect()
}

/// The command that stores these pages.
pub(super) fn insert(collection: &str, pages: &[Vec<Trade>]) -> Write {
    Write::insert(collection, pages.iter().filter_map(|trades| page(trades)).collect())
}

fn page(trades: &[Trade]) -> Option<Document> {
    let first = trades.first()?;
    let history: Vec<_> = trades.iter().map(Trade::element).collect();
    let count = i32::try_from(history.len()).ok()?;
    Some(doc! { "_id": first.page_id(), KEY: first.customer, "count": count, "history": history })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::trades::Trades;

    #[test]
    fn pages_hold_ten_trades_of_one_customer() {
        let trades = Trades::new().among(3, 100);
        let pages = insert("c", &pages(&trades)).documents;
        let counts: Vec<_> = pages.iter().filter_map(|page| page.get_i32("count").ok()).collect();
        assert_eq!(counts.iter().sum::<i32>(), 100);
        assert!(counts.iter().filter(|count| **count < 10).count() <= 3);
        for page in &pages {
            let key = page.get_i32(KEY).expect("a key");
            assert!(page.get_str("_id").is_ok_and(|id| id.starts_with(&format!("{key}_"))));
        }
    }

    #[test]
    fn statement_equals_the_documented_pattern() {
        let trades = Trades::new().of(123, 1);
        let statement = upsert(&trades[0]).to_string();
        assert!(
            statement.contains("/^123_/") && statement.contains(r#""$lt": 10"#),
            "{statement}"
        );
        assert!(
            statement.contains(r#""_id": "123_1698335223_0", "customerId": 123"#),
            "{statement}"
        );
    }
}
