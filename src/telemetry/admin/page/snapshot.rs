//! The registry's metrics at one moment. A metric that is not registered is `None`, not zero.

use std::collections::BTreeMap;
use std::time::Instant;

use prometheus::Registry;
use prometheus::proto::{Metric, MetricFamily, MetricType};

/// Labels and their required values.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// All metrics at one moment.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) at: Instant,
    families: Vec<MetricFamily>,
}

impl Reading {
    pub(super) fn of(registry: &Registry) -> Self {
        Self {
            at: Instant::now(),
            families: registry.gather(),
        }
    }

    /// The sum of all series of a counter or gauge with these labels. For a histogram, the number
    /// of observations.
    pub(super) fn sum(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        let family = self.family(name)?;
        let values = with_labels(family, labels).map(|metric| value(family, metric));
        Some(values.sum())
    }

    /// Like [`Self::sum`], by the values of one label.
    pub(super) fn by<'a>(&'a self, name: &str, label: &str, labels: Labels<'a>) -> BTreeMap<&'a str, f64> {
        let mut sums = BTreeMap::new();
        let Some(family) = self.family(name) else {
            return sums;
        };
        for metric in with_labels(family, labels) {
            if let Some(key) = label_of(metric, label) {
                *sums.entry(key).or_default() += value(family, metric);
            }
        }
        sums
    }

    /// The sum of all series of a histogram with these labels.
    pub(super) fn distribution(&self, name: &str, labels: Labels<'_>) -> Option<Distribution> {
        let family = self.family(name)?;
        let mut added = Distribution::default();
        for metric in with_labels(family, labels) {
            let histogram = metric.get_histogram();
            added.count += histogram.get_sample_count();
            added.sum += histogram.get_sample_sum();
            let buckets = histogram.get_bucket().iter();
            let buckets = buckets.filter(|bucket| bucket.upper_bound().is_finite());
            for (place, bucket) in buckets.enumerate() {
                match added.buckets.get_mut(place) {
                    Some((_, count)) => *count += bucket.cumulative_count(),
                    None => added.buckets.push((bucket.upper_bound(), bucket.cumulative_count())),
                }
            }
        }
        Some(added)
    }

    fn family(&self, name: &str) -> Option<&MetricFamily> {
        self.families.iter().find(|family| family.name() == name)
    }
}

fn with_labels<'a>(family: &'a MetricFamily, labels: Labels<'a>) -> impl Iterator<Item = &'a Metric> {
    let has = |metric: &&Metric| {
        let mut labels = labels.iter();
        labels.all(|(name, value)| label_of(metric, name) == Some(*value))
    };
    family.get_metric().iter().filter(has)
}

fn label_of<'a>(metric: &'a Metric, name: &str) -> Option<&'a str> {
    let label = metric.get_label().iter().find(|label| label.name() == name)?;
    Some(label.value())
}

fn value(family: &MetricFamily, metric: &Metric) -> f64 {
    match family.get_field_type() {
        MetricType::COUNTER => metric.get_counter().get_value(),
        MetricType::GAUGE => metric.get_gauge().get_value(),
        MetricType::HISTOGRAM => as_float(metric.get_histogram().get_sample_count()),
        _ => 0.0,
    }
}

/// Exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "shown to people")]
pub(super) fn as_float(number: u64) -> f64 {
    number as f64
}

/// Observations by upper bound, cumulative as in Prometheus. There may be more beyond the last
/// bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Distribution {
    pub(super) count: u64,
    pub(super) sum: f64,
    pub(super) buckets: Vec<(f64, u64)>,
}

impl Distribution {
    /// The observations since an earlier moment.
    pub(super) fn since(mut self, earlier: &Self) -> Self {
        self.count = self.count.saturating_sub(earlier.count);
        self.sum -= earlier.sum;
        for ((_, count), (_, before)) in self.buckets.iter_mut().zip(&earlier.buckets) {
            *count = count.saturating_sub(*before);
        }
        self
    }

    /// The quantile as estimated by Prometheus's `histogram_quantile`: linear between two bounds,
    /// and the last bound beyond it. `None`: there are no observations.
    pub(super) fn quantile(&self, quantile: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let rank = quantile * as_float(self.count);
        let mut below = (0.0, 0);
        for &(bound, count) in &self.buckets {
            if as_float(count) >= rank && count > below.1 {
                let share = (rank - as_float(below.1)) / as_float(count - below.1);
                return Some(below.0 + (bound - below.0) * share);
            }
            below = (bound, count);
        }
        Some(below.0)
    }

    /// `None`: there are no observations.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / as_float(self.count))
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};

    use super::*;

    #[test]
    fn series_are_added_by_their_labels() {
        let registry = Registry::new();
        let counter = IntCounterVec::new(Opts::new("c", "help"), &["kind", "who"]).unwrap();
        registry.register(Box::new(counter.clone())).unwrap();
        counter.with_label_values(&["a", "x"]).inc_by(2);
        counter.with_label_values(&["a", "y"]).inc_by(3);
        counter.with_label_values(&["b", "x"]).inc_by(5);
        let reading = Reading::of(&registry);
        assert_eq!(reading.sum("c", &[]), Some(10.0));
        assert_eq!(reading.sum("c", &[("who", "x")]), Some(7.0));
        assert_eq!(reading.sum("c", &[("who", "z")]), Some(0.0));
        assert_eq!(reading.sum("d", &[]), None);
        assert_eq!(
            reading.by("c", "kind", &[("who", "x")]),
            BTreeMap::from([("a", 2.0), ("b", 5.0)])
        );
    }

    #[test]
    fn quantiles_are_those_of_prometheus() {
        let registry = Registry::new();
        let options = HistogramOpts::new("h", "help").buckets(vec![1.0, 2.0, 4.0]);
        let histogram = HistogramVec::new(options, &["kind"]).unwrap();
        registry.register(Box::new(histogram.clone())).unwrap();
        histogram.with_label_values(&["a"]).observe(0.5);
        let earlier = Reading::of(&registry).distribution("h", &[]).unwrap();
        assert_eq!(earlier.quantile(0.5), Some(0.5));
        for value in [1.5, 1.5, 3.0, 9.0] {
            histogram.with_label_values(&["b"]).observe(value);
        }
        let later = Reading::of(&registry).distribution("h", &[]).unwrap();
        assert_eq!(
            (later.count, later.buckets.clone()),
            (5, vec![(1.0, 1), (2.0, 3), (4.0, 4)])
        );
        let since = later.since(&earlier);
        assert_eq!((since.count, since.mean()), (4, Some(3.75)));
        assert_eq!(since.quantile(0.5), Some(2.0));
        assert_eq!(since.quantile(0.25), Some(1.5));
        assert_eq!(since.quantile(0.99), Some(4.0));
        assert_eq!(Distribution::default().quantile(0.5), None);
    }
}
