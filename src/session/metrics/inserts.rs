//! Metrics of inserts on bucket collections.

use prometheus::{Histogram, HistogramOpts, IntCounter, Registry};

use super::registration::{counter, counters, registered};

/// The effect of an insert statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// Appended items to an open page.
    Push,
    /// Began a page.
    Page,
    /// Reserved the next page.
    Reserve,
    /// Closed a page, and reserved the next.
    Close,
    /// Marked the first page of a key, before another page got out-of-order items.
    Mark,
}

impl Placing {
    const ALL: [Self; 5] = [Self::Push, Self::Page, Self::Reserve, Self::Close, Self::Mark];

    fn label(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Page => "page",
            Self::Reserve => "reserve",
            Self::Close => "close",
            Self::Mark => "mark",
        }
    }
}

/// Whether the head page of a key was cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintUse {
    /// It was cached.
    Hit,
    /// It was looked up.
    Miss,
}

impl HintUse {
    const ALL: [Self; 2] = [Self::Hit, Self::Miss];

    fn label(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
        }
    }
}

/// Metrics of inserts.
#[derive(Clone, Debug)]
pub struct InsertMetrics {
    /// In the order of [`Placing::ALL`].
    placed: [IntCounter; Placing::ALL.len()],
    hints: [IntCounter; HintUse::ALL.len()],
    /// Statements that failed because a page had changed, and were planned again.
    pub conflicts: IntCounter,
    /// Items that an earlier attempt of the same command had stored.
    pub resent_items: IntCounter,
    /// Items that are out of order or have no time.
    pub late_items: IntCounter,
    /// Items in a bucket when the next bucket of its key is begun.
    pub bucket_fill: Histogram,
    /// Buckets begun.
    pub buckets_opened: IntCounter,
    /// Inserts in a group.
    group_inserts: Histogram,
}

impl InsertMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let placed = counters(registry, "bucket_statements_total", STATEMENTS, &["kind"])?;
        let hints = counters(registry, "head_page_lookups_total", LOOKUPS, &["outcome"])?;
        Ok(Self {
            placed: Placing::ALL.map(|placing| placed.with_label_values(&[placing.label()])),
            hints: HintUse::ALL.map(|hint| hints.with_label_values(&[hint.label()])),
            conflicts: counter(registry, "bucket_conflicts_total", CONFLICTS)?,
            resent_items: counter(registry, "bucket_resent_items_total", RESENT_ITEMS)?,
            late_items: counter(registry, "out_of_order_items_total", OUT_OF_ORDER_ITEMS)?,
            bucket_fill: bucket_fill(registry)?,
            buckets_opened: counter(registry, "buckets_opened_total", BUCKETS_OPENED)?,
            group_inserts: group_inserts(registry)?,
        })
    }

    /// Counts an executed statement.
    pub fn placed(&self, placing: Placing) {
        self.placed[placing as usize].inc();
    }

    /// Counts a group with this number of inserts.
    pub fn group(&self, inserts: usize) {
        self.group_inserts
            .observe(u32::try_from(inserts).unwrap_or(u32::MAX).into());
    }

    /// Counts a look-up in the head page cache.
    pub fn hint(&self, hint: HintUse) {
        self.hints[hint as usize].inc();
    }
}

const STATEMENTS: &str = "Statements of inserts into bucket collections, by kind: push appends items to the open page, page inserts a page, \
    reserve and close reserve the next page, mark marks a key's first page before a later page becomes out of order. When push grows as \
    fast as items, inserts have one item each: insertMany puts the items of a key into one statement.";
const LOOKUPS: &str = "Keys of inserts whose head page was in the cache (hit), or was looked up in mongod (miss). When miss grows, the cache is \
    too small for the keys that are written, or the writers of one key use several proxies.";
const CONFLICTS: &str = "Statements that lost a race for a page and were planned again. When it grows with the rate of inserts, several proxies \
    write the same keys: send the writes of a key through one proxy.";
const RESENT_ITEMS: &str = "Items that an earlier attempt of the same retryable write had stored. When it grows, drivers retry writes: \
                            look for broken connections and elections.";
const OUT_OF_ORDER_ITEMS: &str = "Items that are older than an earlier item of their key, or have no date in the time field. When it \
                                  grows, reads by time have to merge pages: send the items of a key from one writer, in the order of \
                                  time.";
const BUCKETS_OPENED: &str = "Pages begun. When it grows as fast as items, each key has few items and the pattern saves nothing: choose a key with \
    more items.";

fn bucket_fill(registry: &Registry) -> Result<Histogram, prometheus::Error> {
    let help = "Items on a page when the next page of its key is begun. When most are below max_items, max_bytes closes the pages: \
                raise it.";
    let bounds = vec![1.0, 2.0, 5.0, 9.0, 10.0, 20.0, 50.0, 100.0, 1000.0, 10_000.0];
    let options = HistogramOpts::new("mongoshape_bucket_fill_items", help).buckets(bounds);
    registered(registry, Histogram::with_opts(options)?)
}

fn group_inserts(registry: &Registry) -> Result<Histogram, prometheus::Error> {
    let help = "Inserts of one document that waited for others of their collection and were then executed as one command. When \
                most groups are large, mongod is busy with single inserts: insertMany costs it less.";
    let bounds = vec![1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];
    let options = HistogramOpts::new("mongoshape_insert_group_size", help).buckets(bounds);
    registered(registry, Histogram::with_opts(options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_in_their_places() {
        for (place, placing) in Placing::ALL.into_iter().enumerate() {
            assert_eq!(placing as usize, place);
        }
        for (place, hint) in HintUse::ALL.into_iter().enumerate() {
            assert_eq!(hint as usize, place);
        }
    }
}
