//! Metrics of conversions, which another process executes.

use prometheus::{GaugeVec, Opts, Registry};

use super::registration::registered;

/// The progress of a conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConversionProgress {
    /// The part of the documents that the current phase has done, from 0 to 1.
    pub ratio: f64,
    /// Seconds whose changes were not read yet.
    pub lag_seconds: f64,
    /// Seconds until the current phase ends. 0: it is not known.
    pub remaining_seconds: f64,
    /// The delay of each write statement, in seconds. 0: there is none.
    pub write_delay_seconds: f64,
}

/// Metrics of conversions.
#[derive(Clone, Debug)]
pub struct ConversionMetrics {
    ratio: GaugeVec,
    lag: GaugeVec,
    remaining: GaugeVec,
    write_delay: GaugeVec,
}

impl ConversionMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            ratio: gauges(
                registry,
                "conversion_progress_ratio",
                "The part of the documents that the current phase of a conversion has done, from 0 to 1; 0 without a conversion, and after \
                 it. The phases copying and comparing each begin at 0. When it does not change for minutes, mongoshape convert has ended or \
                 pauses: see its output, and run it again.",
            )?,
            lag: gauges(
                registry,
                "conversion_lag_seconds",
                "Seconds whose changes mongoshape convert has not read yet. The oplog must contain them. When it grows, writers are faster than the \
                 conversion: write less, or wait until proxies delay or hold writes.",
            )?,
            remaining: gauges(
                registry,
                "conversion_remaining_seconds",
                "Estimated seconds until the current phase of a conversion ends; 0 without a conversion, and if it is not known. When it is \
                 too long, give mongoshape convert a higher --max-rate, or run it at another time.",
            )?,
            write_delay: gauges(
                registry,
                "conversion_write_delay_seconds",
                "The delay of each write statement, in seconds. A proxy delays writes while a conversion of the collection falls behind. 0 otherwise. \
                 When the application becomes too slow, convert at another time.",
            )?,
        })
    }

    /// Creates every series of a shape, so that it exists at zero. `namespace`: as configured.
    pub fn expect_namespace(&self, namespace: &str) {
        for gauge in [&self.ratio, &self.lag, &self.remaining, &self.write_delay] {
            gauge.with_label_values(&[namespace]);
        }
    }

    /// Sets the progress of a collection's conversion. `namespace`: as configured.
    pub fn progress(&self, namespace: &str, progress: ConversionProgress) {
        self.ratio.with_label_values(&[namespace]).set(progress.ratio);
        self.lag.with_label_values(&[namespace]).set(progress.lag_seconds);
        self.remaining
            .with_label_values(&[namespace])
            .set(progress.remaining_seconds);
        self.write_delay
            .with_label_values(&[namespace])
            .set(progress.write_delay_seconds);
    }
}

fn gauges(registry: &Registry, name: &str, help: &str) -> Result<GaugeVec, prometheus::Error> {
    let options = Opts::new(format!("mongoshape_{name}"), help);
    registered(registry, GaugeVec::new(options, &["namespace"])?)
}
