//! Decides whether an array has a long tail, and where it would be split. Pure: from statistics to
//! a proposal, or reasons against one.

use super::collection_stats::CollectionStats;
use super::evidence::Evidence;
use super::rounding::{count, real, round_up, share, whole};
use super::sample::{Sample, SampledField};
use super::traffic::Traffic;

/// Default number of elements in a base document.
const THRESHOLD: u64 = 50;
/// The longest array must exceed the threshold by this factor.
const LONG_TAIL: u64 = 4;
/// Fractions of all documents that may be inline, the largest first.
const TYPICAL: [f64; 3] = [0.99, 0.95, 0.90];
/// Maximum threshold that can be configured.
const MOST: u64 = 100_000;

#[derive(Debug, PartialEq)]
pub(super) struct OutlierProposal {
    pub(super) array: String,
    pub(super) threshold: u32,
    pub(super) why: String,
    /// The extras collection, if the default name is taken.
    pub(super) extras: Option<String>,
    /// Numbers of sampled documents with arrays up to these lengths, ascending.
    pub(super) histogram: Vec<(u64, u64)>,
    pub(super) median: u64,
    pub(super) longest: u64,
    /// Sampled documents with arrays longer than the threshold.
    pub(super) seen: u64,
    /// Estimated number of outliers.
    pub(super) outliers: u64,
    /// Estimated bytes that would become extras.
    pub(super) moved: u64,
    /// Estimated number of pages of extras.
    pub(super) pages: u64,
}

/// Default number of elements on a page of extras.
const PAGE: f64 = 1000.0;

/// Selects the array with the longest tail.
///
/// # Errors
/// If no array suits, the reasons.
pub(super) fn decide(
    facts: &CollectionStats,
    sample: &Sample,
    traffic: &Traffic,
) -> Result<OutlierProposal, Vec<String>> {
    let mut reasons = facts.unfit.clone();
    if traffic.refused().contains("$changeStream") {
        reasons.push("the application has a change stream on it".to_owned());
    }
    if sample.field("has_extras").is_some() {
        let text = "documents have the field has_extras: they may already be split; see docs/outliers.md";
        reasons.push(text.to_owned());
    }
    if !reasons.is_empty() {
        return Err(reasons);
    }
    let arrays = || sample.fields().filter(|(_, field)| !field.lengths.is_empty());
    let mut found: Vec<OutlierProposal> = Vec::new();
    for (name, field) in arrays() {
        match look(name, field, Evidence { facts, sample, traffic }) {
            Ok(outlier) => found.push(outlier),
            Err(reason) => reasons.push(reason),
        }
    }
    if arrays().next().is_none() {
        reasons.push("no top-level field is an array".to_owned());
    }
    found.sort_by_key(|outlier| outlier.moved);
    found.pop().ok_or(reasons)
}

fn look(
    name: &str,
    field: &SampledField,
    Evidence { facts, sample, traffic }: Evidence<'_>,
) -> Result<OutlierProposal, String> {
    if name == "_id" || name.is_empty() || name.starts_with('$') || name.contains('.') {
        return Err(format!("{name} cannot be configured"));
    }
    let is_of_array = |indexed: &String| indexed.split('.').next() == Some(name);
    let conflicting = facts
        .indexes
        .iter()
        .map(|index| (index, index.kinds_for_outliers()))
        .find(|(index, kinds)| !kinds.is_empty() && index.fields.iter().any(is_of_array));
    if let Some((index, kinds)) = conflicting {
        return Err(format!(
            "{name} has the index {}, which is {}",
            index.name,
            kinds.join(", ")
        ));
    }
    let mut lengths = field.lengths.clone();
    // A document without the array counts as one with an empty array.
    lengths.resize(sample.documents.len(), 0);
    lengths.sort_unstable();
    let longest = lengths.last().copied().unwrap_or(0);
    let slice = traffic.slice(name).unwrap_or(0);
    let cut = TYPICAL.into_iter().find_map(|typical| {
        let threshold = round_up(quantile(&lengths, typical).max(THRESHOLD).max(slice));
        (longest >= threshold.saturating_mul(LONG_TAIL) && threshold <= MOST).then_some((threshold, typical))
    });
    let Some((threshold, typical)) = cut else {
        let (median, most) = (quantile(&lengths, 0.5), quantile(&lengths, 0.99));
        return Err(format!(
            "the lengths of {name} have no long tail: the median is {median}, the 99th percentile {most}, the maximum {longest}"
        ));
    };
    let why = if slice > 0 && threshold == round_up(slice) {
        format!("observed reads return the first {slice} elements")
    } else if threshold == THRESHOLD {
        "the default: typical documents do not have more elements".to_owned()
    } else {
        format!("a round number at or above the {}th percentile", whole(typical * 100.0))
    };
    let beyond = lengths.iter().filter(|length| **length > threshold);
    let (seen, elements) = beyond.fold((0, 0), |(seen, sum), length| (seen + 1, sum + (length - threshold)));
    let of_element = share(field.array_bytes, lengths.iter().sum());
    let of_all = real(facts.documents) / real(sample.len().max(1));
    Ok(OutlierProposal {
        array: name.to_owned(),
        threshold: u32::try_from(threshold).unwrap_or(u32::MAX),
        why,
        extras: extras(facts),
        histogram: histogram(&lengths),
        median: quantile(&lengths, 0.5),
        longest,
        seen,
        outliers: whole(real(seen) * of_all),
        moved: whole(real(elements) * of_element * of_all),
        pages: whole(real(seen) * of_all * (real(elements) / real(seen.max(1)) / PAGE).ceil()),
    })
}

/// Another name for the extras collection if the default name is taken.
fn extras(facts: &CollectionStats) -> Option<String> {
    let name = facts.collection();
    let is_taken = |name: &String| facts.beside.contains(name);
    is_taken(&format!("extra_{name}")).then(|| {
        let numbered = (2_u64..).map(|number| format!("extra_{name}_{number}"));
        numbered
            .take(facts.beside.len() + 1)
            .find(|name| !is_taken(name))
            .unwrap_or_default()
    })
}

/// The length that this fraction of documents does not exceed.
fn quantile(sorted: &[u64], part: f64) -> u64 {
    let place = whole((real(count(sorted.len())) * part).ceil()).saturating_sub(1);
    sorted
        .get(usize::try_from(place).unwrap_or(usize::MAX))
        .copied()
        .unwrap_or(0)
}

/// Numbers of documents with lengths up to 0, 10, 20, 50, 100, ..., up to the longest.
fn histogram(sorted: &[u64]) -> Vec<(u64, u64)> {
    let mut histogram = vec![(0, 0)];
    for length in sorted {
        while let Some((limit, _)) = histogram.last().copied()
            && *length > limit
        {
            histogram.push((round_up(limit + 1), 0));
        }
        if let Some((_, number)) = histogram.last_mut() {
            *number += 1;
        }
    }
    histogram
}

#[cfg(test)]
mod tests;
