//! Metrics of inserts on bucket collections.

use prometheus::{Histogram, HistogramOpts, IntCounter, Registry};

use super::registration::{counter, counters, registered};

/// What a statement did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// It put items on an open page.
    Push,
    /// It began a page.
    Page,
    /// It announced a page.
    Announce,
    /// It closed a page, and announced the next.
    Close,
    /// It marked a key's first page, before another became late.
    Mark,
}

impl Placing {
    const ALL: [Self; 5] = [Self::Push, Self::Page, Self::Announce, Self::Close, Self::Mark];

    fn label(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Page => "page",
            Self::Announce => "announce",
            Self::Close => "close",
            Self::Mark => "mark",
        }
    }
}

/// Whether a writer knew its key's highest page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintUse {
    /// It did.
    Hit,
    /// It had to look.
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

/// The handles.
#[derive(Clone, Debug)]
pub struct InsertMetrics {
    /// As they are in [`Placing::ALL`].
    placed: [IntCounter; Placing::ALL.len()],
    hints: [IntCounter; HintUse::ALL.len()],
    /// Statements that failed, since a page was not as it was known, and were planned again.
    pub conflicts: IntCounter,
    /// Items that an earlier attempt at the same command had stored.
    pub resent_items: IntCounter,
    /// Items stored behind newer ones, or without a time.
    pub late_items: IntCounter,
    /// Items in a bucket when the next one of its key is begun.
    pub bucket_fill: Histogram,
    /// Buckets begun.
    pub buckets_opened: IntCounter,
}

impl InsertMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let placed = counters(registry, "bucket_statements_total", STATEMENTS, &["kind"])?;
        let hints = counters(registry, "bucket_hints_total", HINTS, &["outcome"])?;
        Ok(Self {
            placed: Placing::ALL.map(|placing| placed.with_label_values(&[placing.label()])),
            hints: HintUse::ALL.map(|hint| hints.with_label_values(&[hint.label()])),
            conflicts: counter(registry, "bucket_conflicts_total", CONFLICTS)?,
            resent_items: counter(registry, "bucket_resent_items_total", RESENT_ITEMS)?,
            late_items: counter(registry, "late_items_total", LATE_ITEMS)?,
            bucket_fill: bucket_fill(registry)?,
            buckets_opened: counter(registry, "buckets_opened_total", BUCKETS_OPENED)?,
        })
    }

    /// Counts an executed statement.
    pub fn placed(&self, placing: Placing) {
        self.placed[placing as usize].inc();
    }

    /// Counts a writer's question for a hint.
    pub fn hint(&self, hint: HintUse) {
        self.hints[hint as usize].inc();
    }
}

const STATEMENTS: &str = "Statements that inserts on bucket collections were written with, by what they did: push items onto an open \
    page, begin a page, announce the next, close one, mark a first page before another becomes late. When push grows as fast as items, \
    inserts come one by one: insertMany puts the items of a key into one statement.";
const HINTS: &str = "Keys of inserts whose highest page was known (hit), or had to be looked up (miss). When miss grows, more keys are \
    written than a proxy remembers, or writers of one key are spread over many proxies.";
const CONFLICTS: &str = "Statements that lost a race for a page and were planned again. When it grows with the rate of inserts, several \
    proxies write the same keys: let the writers of a key go through one proxy.";
const RESENT_ITEMS: &str = "Items that an earlier attempt at the same command had stored. When it grows, drivers send writes again: look \
    for broken connections and elections.";
const LATE_ITEMS: &str = "Items stored behind newer ones of their key, or without a date in the time field. When it grows, reads by time \
    have to merge pages: have the items of a key sent by one writer, in their order.";
const BUCKETS_OPENED: &str = "Buckets begun. When it grows as fast as items do, a key has few of them: the pattern saves nothing there, \
    choose a key with more items.";

fn bucket_fill(registry: &Registry) -> Result<Histogram, prometheus::Error> {
    let help = "Items in a bucket when it is closed, that is when the next one of its key is begun. When most are below max_items, \
                max_bytes closes them: raise it.";
    let bounds = vec![1.0, 2.0, 5.0, 9.0, 10.0, 20.0, 50.0, 100.0, 1000.0, 10_000.0];
    let options = HistogramOpts::new("mongoshape_bucket_fill_items", help).buckets(bounds);
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
