//! Decides whether buckets suit a collection, and with which options. Pure: from statistics to a
//! proposal, or reasons against one.

use std::collections::BTreeMap;

use super::candidate::{Candidate, Indexed};
use super::collection_stats::CollectionStats;
use super::cost::{self, BucketCost, Cost};
use super::evidence::Evidence;
use super::forecast::Measured;
use super::rename::{Renames, renames};
use super::report::{bytes, grouped};
use super::rounding::{count, real, round_up, whole};
use super::runs::Runs;
use super::sample::Sample;
use super::sizes::Sizes;
use super::traffic::Traffic;
use crate::pattern::shapes::{BucketOptions, BucketShape, ItemIds, NamespacePattern};

/// A collection with fewer documents is not worth a shape.
const FEW_DOCUMENTS: u64 = 1000;
/// Larger documents gain nothing from pages.
const LARGE_DOCUMENT: u64 = 8 << 10;
/// With fewer documents per key on average, pages are not filled.
const FEW_PER_KEY: f64 = 3.0;
/// Default number of items on a page, and the largest number proposed.
const PAGE: u32 = 10;
const LARGEST_PAGE: u64 = 1000;
/// If whole keys are read and have this many documents, pages are larger.
const LONG_KEY: f64 = 1000.0;
const PAGE_OF_LONG_KEYS: u64 = 100;
/// Sizes on disk of fewer documents decide nothing: units that are not full are a large part of them.
const FORECAST_FROM: u64 = 100_000;
/// Maximum bytes of a proposed page, because every insert rewrites its page.
const PAGE_BYTES: u64 = 64 << 10;

/// The stage that only outlier collections refuse.
const CHANGE_STREAM: &str = "$changeStream";

#[derive(Debug)]
pub(super) struct BucketProposal {
    pub(super) key: Vec<String>,
    pub(super) time: Option<String>,
    pub(super) max_items: u32,
    /// Whether the application has change streams.
    pub(super) change_streams: bool,
    /// Reasons for the key.
    pub(super) why: Vec<String>,
    /// Reason for the number of items on a page.
    pub(super) why_page: String,
    pub(super) sizes: Sizes,
    pub(super) now: Cost,
    pub(super) then: Cost,
    /// Whether the sizes on disk are too old to be compared.
    pub(super) is_before_checkpoint: bool,
    /// Bytes of `then` that `item_ids = "stored"` would save.
    pub(super) ids: u64,
    /// The cost with `item_ids = "dropped"`.
    pub(super) without_ids: Cost,
    /// Number of uses of the index on `_id`.
    pub(super) ids_used: Option<u64>,
    pub(super) renames: Renames,
}

/// A candidate, its sizes, and some of its documents.
#[derive(Debug)]
pub(super) struct ReadCandidate {
    pub(super) candidate: Candidate,
    pub(super) sizes: Sizes,
    /// Documents in the order of the key. `None`: no index begins with it.
    pub(super) by_key: Option<Runs>,
}

/// Reasons against any bucket shape. Empty if there are none.
pub(super) fn against(facts: &CollectionStats, sample: &Sample, traffic: &Traffic) -> Vec<String> {
    let mut reasons: Vec<String> = facts.unfit.iter().chain(&facts.unfit_for_buckets).cloned().collect();
    // A bucket shape can have change streams.
    let refused = traffic
        .refused()
        .iter()
        .copied()
        .filter(|feature| *feature != CHANGE_STREAM);
    let refused: Vec<&str> = refused.collect();
    if !refused.is_empty() {
        let text = format!(
            "the application uses {}, which is refused on bucket collections",
            refused.join(", ")
        );
        reasons.push(text);
    }
    if sample.are_buckets() {
        reasons.push("its documents already look like pages; see docs/hand-written-buckets.md".to_owned());
    }
    if facts.documents < FEW_DOCUMENTS {
        reasons.push(format!("has only {} documents", facts.documents));
    }
    if facts.mean_bytes() > LARGE_DOCUMENT {
        let text = format!("its documents are large, {} bytes on average", facts.mean_bytes());
        reasons.push(text);
    }
    reasons
}

/// Selects the best candidate. `by_index`: consecutive documents of each index, by its name.
///
/// # Errors
/// If no candidate suits, the reasons.
pub(super) fn decide(
    evidence: Evidence<'_>,
    by_index: &BTreeMap<String, Runs>,
    candidates: Vec<ReadCandidate>,
) -> Result<BucketProposal, Vec<String>> {
    let traffic = evidence.traffic;
    if candidates.is_empty() {
        let text = "no index begins with a field of repeated values, and no query has an equality on one";
        return Err(vec![text.to_owned()]);
    }
    let mut reasons = Vec::new();
    let mut good = Vec::new();
    for read in candidates {
        let ReadCandidate { candidate, sizes, .. } = &read;
        let name = candidate.key.join(", ");
        if sizes.mean() < FEW_PER_KEY {
            reasons.push(format!(
                "a key of {name} has {:.1} documents on average, which do not fill a page",
                sizes.mean()
            ));
        } else if !candidate.is_read_in_order(traffic) {
            reasons.push(format!(
                "an index begins with {name}, but there is no evidence that documents are read by it in the order of time: no index \
                 continues with a date, and no observed query reads in this order"
            ));
        } else {
            good.push(read);
        }
    }
    good.sort_by_key(|read| read.candidate.rank(traffic, read.sizes.mean() >= f64::from(PAGE)));
    while let Some(read) = good.pop() {
        match propose(evidence, by_index, read) {
            Ok(bucket) => return Ok(bucket),
            Err(against) => reasons.extend(against),
        }
    }
    Err(reasons)
}

fn propose(
    Evidence { facts, sample, traffic }: Evidence<'_>,
    by_index: &BTreeMap<String, Runs>,
    read: ReadCandidate,
) -> Result<BucketProposal, Vec<String>> {
    let (max_items, why_page) = page_size(facts, &traffic.limits_by(&read.candidate.key), &read.sizes);
    let forecast = |item_ids| -> Result<BucketCost, Vec<String>> {
        let shape = shape(facts, &read.candidate, max_items, item_ids)?;
        let measured = Measured {
            facts,
            sample,
            by_key: read.by_key.as_ref(),
            by_index,
            per_key: read.sizes.mean(),
            pages: read.sizes.pages(facts.documents, max_items),
        };
        let cost = cost::in_buckets(&measured, &shape);
        cost.ok_or_else(|| vec!["its documents cannot be items".to_owned()])
    };
    let (then, without_ids) = (forecast(ItemIds::Unique)?, forecast(ItemIds::Dropped)?);
    let ReadCandidate { candidate, sizes, .. } = read;
    let (now, ids, then) = (cost::now(facts), then.item_ids, then.cost);
    if facts.documents >= FORECAST_FROM
        && !facts.is_before_checkpoint()
        && let Some(reason) = loss(
            &candidate,
            now,
            then,
            Ids {
                facts,
                forecast: ids,
                dropped: without_ids.cost,
            },
        )
    {
        return Err(vec![reason]);
    }
    let mut why = candidate.reasons(traffic);
    if candidate.time.is_none() {
        why.push("no date field is in nearly all documents: items keep their insertion order".to_owned());
    }
    let keys = whole(sizes.keys(facts.documents));
    if keys < u64::from(PAGE) {
        why.push(format!(
            "there are only about {keys} keys: concurrent writers of one key wait for each other"
        ));
    }
    Ok(BucketProposal {
        renames: renames(sample, &candidate.key, facts.documents),
        why,
        key: candidate.key,
        time: candidate.time,
        max_items,
        change_streams: traffic.refused().contains(CHANGE_STREAM),
        why_page,
        now,
        then,
        is_before_checkpoint: facts.is_before_checkpoint(),
        ids_used: facts.id_index().and_then(|index| index.used),
        ids,
        without_ids: without_ids.cost,
        sizes,
    })
}

/// The proposed shape.
fn shape(
    facts: &CollectionStats,
    candidate: &Candidate,
    max_items: u32,
    item_ids: ItemIds,
) -> Result<BucketShape, Vec<String>> {
    let namespace = NamespacePattern::parse(&facts.namespace);
    let namespace = namespace.ok_or_else(|| vec!["its name cannot be configured".to_owned()])?;
    let mut options = BucketOptions::new(namespace, candidate.key.clone());
    options.time.clone_from(&candidate.time);
    options.max_items = max_items;
    options.item_ids = item_ids;
    let shape = BucketShape::new(options);
    shape.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())
}

/// The indexes on `_id`.
#[derive(Clone, Copy)]
struct Ids<'a> {
    facts: &'a CollectionStats,
    /// Forecast bytes of the one on the items' `_id`.
    forecast: u64,
    /// The forecast with `item_ids = "dropped"`.
    dropped: Cost,
}

/// The reason against a shape that would need as much disk space as the documents. `None`: it would
/// need less.
///
/// If no index begins with the key, the documents need an additional one for reads by the key. It is
/// assumed to be as large as the index on `_id`.
fn loss(candidate: &Candidate, now: Cost, then: Cost, ids: Ids<'_>) -> Option<String> {
    let of_id = ids.facts.id_index().map_or(0, |index| index.bytes);
    let (missing, with_index) = match candidate.indexed {
        Indexed::No => (of_id, " with an index on the key"),
        Indexed::Leads | Indexed::ThenTime => (0, ""),
    };
    let documents = now.on_disk().saturating_add(missing);
    if then.on_disk() < documents {
        return None;
    }
    let [stored, dropped] = [then, ids.dropped].map(|cost| {
        on_disk(Cost {
            indexes: then.indexes.saturating_sub(ids.forecast),
            ..cost
        })
    });
    Some(format!(
        "pages by {} would need {}; the documents{with_index} need {}; with item_ids = \"stored\" the pages would need {stored}, with \
         item_ids = \"dropped\" {dropped}",
        candidate.key.join(", "),
        on_disk(then),
        bytes(documents)
    ))
}

fn on_disk(cost: Cost) -> String {
    format!(
        "{} on disk ({} pages, storage {}, indexes {})",
        bytes(cost.on_disk()),
        grouped(cost.documents),
        bytes(cost.storage),
        bytes(cost.indexes)
    )
}

/// The number of items on a page, and the reason.
fn page_size(facts: &CollectionStats, limits: &[u64], sizes: &Sizes) -> (u32, String) {
    let most = LARGEST_PAGE
        .min(PAGE_BYTES / facts.mean_bytes().max(1))
        .min(whole(sizes.mean()));
    let larger = |wanted: u64| u32::try_from(wanted.min(most)).unwrap_or(PAGE).max(PAGE);
    let default = || (PAGE, "the default".to_owned());
    match limits.get(limits.len() / 2) {
        Some(0) if sizes.mean() >= LONG_KEY => {
            let why = "most observed reads of a key have no limit, and keys are long".to_owned();
            (larger(PAGE_OF_LONG_KEYS), why)
        }
        Some(limit) if *limit > u64::from(PAGE) => {
            let why = format!(
                "observed reads of a key have the limit {limit} (the median of {} reads)",
                limits.len()
            );
            (larger(round_up(*limit)), why)
        }
        _ => default(),
    }
}

impl BucketProposal {
    /// Full pages that would hold all items, as a fraction of the estimated pages.
    pub(super) fn fill(&self) -> f64 {
        let full = real(self.now.documents) / f64::from(self.max_items);
        full / real(self.then.documents.max(1))
    }

    /// Index entries that `item_ids = "stored"` would save.
    pub(super) fn id_entries(&self) -> u64 {
        self.now.documents
    }

    /// Estimated number of keys.
    pub(super) fn keys(&self) -> u64 {
        whole(self.sizes.keys(self.now.documents)).max(count(1))
    }
}

#[cfg(test)]
mod tests;
