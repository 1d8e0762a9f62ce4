//! The measurements of many connections that send one command after the other.

use std::time::Duration;

use super::load::Figures;
use super::place;
use super::servers::Variant;
use super::statistics::median;
use super::table::Row;

/// The measurements of a variant.
#[derive(Debug, Default)]
pub(super) struct Measured {
    rounds: Vec<Figures>,
    /// CPU time of mongod and of the proxy for each operation, in microseconds.
    cpu_us: [Vec<f64>; 2],
}

impl Measured {
    /// A round of so many operations, with the CPU times before and after it.
    pub(super) fn add(&mut self, figures: Figures, before: [Duration; 2], after: [Duration; 2], operations: usize) {
        self.rounds.push(figures);
        for ((all, before), after) in self.cpu_us.iter_mut().zip(before).zip(after) {
            let used = after.saturating_sub(before);
            all.push(used.as_secs_f64() * 1e6 / place::as_f64(operations));
        }
    }

    /// Operations a second, latencies and CPU times; compared is how long an operation takes.
    pub(super) fn row(&self, variant: &Variant) -> Row {
        let Figures {
            per_second,
            p50_us,
            p99_us,
        } = Figures::median(&self.rounds);
        let [mongod, proxy] = [0, 1].map(|of| median(self.cpu_us[of].iter().copied()));
        // A second's share, as times are compared.
        let costs = self.rounds.iter().map(|figures| figures.per_second.recip()).collect();
        Row::of(variant, vec![per_second, p50_us, p99_us, mongod, proxy], costs)
    }
}
