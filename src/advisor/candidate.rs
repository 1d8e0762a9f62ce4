//! Candidates for the key, and the reasons for them. Pure.

use super::collection_stats::CollectionStats;
use super::rounding::whole;
use super::sample::Sample;
use super::traffic::Traffic;

/// Maximum number of candidates to examine.
const MOST: usize = 6;
/// Maximum number of fields in a key. Documents are rarely read by more.
const MOST_FIELDS: usize = 4;
/// Fraction of reads by a key that is a sufficient reason for it.
const MANY: f64 = 0.5;

/// A candidate: a key, and the time that orders its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) key: Vec<String>,
    pub(super) time: Option<String>,
    /// The extent to which indexes match the key.
    pub(super) indexed: Indexed,
    /// The name of an index that begins with the key and contains all documents.
    pub(super) index: Option<String>,
    /// Number of uses of indexes that begin with the key.
    pub(super) used: Option<u64>,
}

/// The extent to which indexes match a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Indexed {
    /// No index begins with the key.
    No,
    /// An index begins with the key.
    Leads,
    /// An index begins with the key, followed by the time.
    ThenTime,
}

/// The candidates that indexes and queries suggest, the best first.
pub(super) fn candidates(facts: &CollectionStats, sample: &Sample, traffic: &Traffic) -> Vec<Candidate> {
    let mut keys: Vec<Vec<String>> = Vec::new();
    for index in &facts.indexes {
        let usable = index.fields.iter().take_while(|field| sample.may_be_key(field));
        let fields: Vec<String> = usable.take(MOST_FIELDS).cloned().collect();
        keys.extend(
            (1..=fields.len())
                .filter_map(|length| fields.get(..length))
                .map(<[String]>::to_vec),
        );
    }
    for equal in traffic.equalities() {
        let usable = equal.into_iter().filter(|field| sample.may_be_key(field));
        let fields: Vec<String> = usable.take(MOST_FIELDS).collect();
        keys.extend(fields.iter().map(|field| vec![field.clone()]));
        keys.push(fields);
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    for key in keys.into_iter().filter(|key| !key.is_empty()) {
        if !candidates.iter().any(|candidate| is_same(&candidate.key, &key)) {
            candidates.push(Candidate::new(key, facts, sample, traffic));
        }
    }
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.rank(traffic, true)));
    candidates.truncate(MOST);
    candidates
}

impl Candidate {
    fn new(key: Vec<String>, facts: &CollectionStats, sample: &Sample, traffic: &Traffic) -> Self {
        let begins = |fields: &[String]| fields.get(..key.len()).is_some_and(|begin| is_same(begin, &key));
        let leading = || facts.indexes.iter().filter(|index| begins(&index.fields));
        let next = leading()
            .filter_map(|index| index.fields.get(key.len()))
            .find(|field| sample.is_time(field));
        let sorted = traffic
            .sort_by(&key)
            .filter(|field| sample.is_time(field))
            .map(str::to_owned);
        let mut dates: Vec<_> = sample.fields().filter(|(name, _)| sample.is_time(name)).collect();
        dates.sort_by_key(|(_, field)| field.place);
        let first = || dates.first().map(|(name, _)| (*name).to_owned());
        let indexed = match (next, leading().next()) {
            (Some(_), _) => Indexed::ThenTime,
            (None, Some(_)) => Indexed::Leads,
            (None, None) => Indexed::No,
        };
        let plain = leading().find(|index| index.is_plain()).map(|index| index.name.clone());
        Self {
            time: next.cloned().or(sorted).or_else(first),
            used: leading().filter_map(|index| index.used).reduce(u64::saturating_add),
            indexed,
            index: plain,
            key,
        }
    }

    /// Whether indexes or queries show that documents are read by the key in the order of pages.
    pub(super) fn is_read_in_order(&self, traffic: &Traffic) -> bool {
        let is_sorted_by_time = self.time.as_deref() == traffic.sort_by(&self.key) && self.time.is_some();
        self.indexed == Indexed::ThenTime
            || (traffic.by(&self.key) > 0 && is_sorted_by_time)
            || traffic.share_by(&self.key) >= MANY
    }

    /// The rank of a candidate. Greater is better.
    pub(super) fn rank(&self, traffic: &Traffic, fills_pages: bool) -> (bool, u64, Indexed, usize) {
        (fills_pages, traffic.by(&self.key), self.indexed, self.key.len())
    }

    /// The reasons for the candidate as text.
    pub(super) fn reasons(&self, traffic: &Traffic) -> Vec<String> {
        let mut reasons = Vec::new();
        let used = self
            .used
            .map_or(String::new(), |times| format!(" ($indexStats: used {times} times)"));
        match self.indexed {
            Indexed::ThenTime => reasons.push(format!("an index begins with it, followed by the time{used}")),
            Indexed::Leads => reasons.push(format!("an index begins with it{used}")),
            Indexed::No => {}
        }
        let by = traffic.by(&self.key);
        if by > 0 {
            let percent = whole(traffic.share_by(&self.key) * 100.0);
            reasons.push(format!(
                "{by} of {} observed queries ({percent} %) have an equality on it",
                traffic.len()
            ));
        }
        reasons
    }
}

fn is_same(one: &[String], other: &[String]) -> bool {
    one.len() == other.len() && one.iter().all(|field| other.contains(field))
}
