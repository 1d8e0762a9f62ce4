//! The progress of a run: what is done, how fast, and what is left. Without I/O.

pub(super) mod estimate;
pub(super) mod observe;
pub(super) mod observer;
pub(super) mod screen;
pub(super) mod status;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use bson::{DateTime, Document, Timestamp, doc};

use super::write_delay::AdaptiveDelay;

/// The time after which an earlier measurement counts for a third.
const MEMORY: Duration = Duration::from_secs(10);
/// The field of the record with the [delay](AdaptiveDelay) of a write statement, in milliseconds.
const WRITE_DELAY: &str = "write_delay_ms";
/// The shortest time over which a rate is measured.
const MIN_SPAN: Duration = Duration::from_millis(200);

/// The part of a run that is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The copy is filled.
    Copying,
    /// Changes are applied to the copy.
    Following,
    /// All documents are compared.
    Comparing,
    /// The names are swapped.
    Swapping,
}

impl Stage {
    /// The name in the record.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Copying => "copying",
            Self::Following => "following",
            Self::Comparing => "comparing",
            Self::Swapping => "swapping",
        }
    }

    /// Whether all documents are read.
    pub(super) fn reads_all(self) -> bool {
        matches!(self, Self::Copying | Self::Comparing)
    }
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastComparison {
    /// The documents of the collection.
    pub(super) compared: u64,
    /// Those that differ from their copies.
    pub(super) differing: u64,
}

/// Documents per second, smoothed.
#[derive(Clone, Copy, Debug)]
struct SmoothRate {
    /// The last measurement.
    at: Instant,
    done: u64,
    /// The documents of all measurements, of which later ones count more.
    documents: f64,
    /// The seconds of all measurements, of which later ones count more.
    seconds: f64,
}

impl SmoothRate {
    fn begin(now: Instant) -> Self {
        Self {
            at: now,
            done: 0,
            documents: 0.0,
            seconds: 0.0,
        }
    }

    /// `None`: nothing was measured yet.
    fn per_second(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.documents / self.seconds)
    }

    /// Takes the documents that are done now. Later measurements count more than earlier ones.
    fn measure(&mut self, done: u64, now: Instant) {
        let span = now.saturating_duration_since(self.at);
        if span < MIN_SPAN {
            return;
        }
        // Both sums fade, so that the first measurement counts no more than others.
        let fading = (-span.as_secs_f64() / MEMORY.as_secs_f64()).exp();
        *self = Self {
            at: now,
            done,
            documents: self.documents * fading + as_float(done.saturating_sub(self.done)),
            seconds: self.seconds * fading + span.as_secs_f64(),
        };
    }
}

/// The progress of a run.
#[derive(Debug)]
pub(super) struct RunProgress {
    stage: Stage,
    /// The documents that this stage has read.
    done: u64,
    /// The documents of the collection, an estimate. 0: it is not known.
    total: u64,
    rate: SmoothRate,
    /// Seconds whose changes were not read yet. `None`: no changes are read.
    pub(super) lag_seconds: Option<u64>,
    pub(super) last_comparison: Option<LastComparison>,
    /// The cluster time before which all changes are in the copy. `None`: it is not known.
    pub(super) applied_until: Option<Timestamp>,
    /// The reason for a pause.
    pub(super) paused: Option<String>,
    pub(super) write_delay: AdaptiveDelay,
}

impl RunProgress {
    /// Before the first stage.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            stage: Stage::Copying,
            done: 0,
            total: 0,
            rate: SmoothRate::begin(now),
            lag_seconds: None,
            last_comparison: None,
            applied_until: None,
            paused: None,
            write_delay: AdaptiveDelay::none(now),
        }
    }

    /// Sets the estimated number of documents.
    pub(super) fn expect(&mut self, total: u64) {
        self.total = total;
    }

    /// Begins a stage.
    pub(super) fn begin(&mut self, stage: Stage, now: Instant) {
        self.stage = stage;
        self.done = if stage.reads_all() { 0 } else { self.total };
        self.rate = SmoothRate::begin(now);
        self.paused = None;
    }

    /// Takes the number of documents that this stage has read.
    pub(super) fn advance(&mut self, done: u64, now: Instant) {
        self.done = done;
        self.rate.measure(done, now);
    }

    /// Ends a stage that has read all documents: their number is known now.
    pub(super) fn complete(&mut self, done: u64, now: Instant) {
        self.advance(done, now);
        self.total = done;
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// The documents that are done, of those that are expected. The estimate may be too small.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// The documents that are expected, at least those that are done. 0: the number is not known.
    pub(super) fn total(&self) -> u64 {
        if self.total == 0 { 0 } else { self.total.max(self.done) }
    }

    /// Documents per second. `None`: it was not measured yet.
    pub(super) fn rate(&self) -> Option<f64> {
        self.rate.per_second()
    }

    /// The time until the stage ends, in whole seconds: 0 only at the end. `None`: it is not known.
    pub(super) fn remaining(&self) -> Option<Duration> {
        let rate = self.rate().filter(|rate| *rate > 0.0 && self.stage.reads_all())?;
        if self.total() == 0 {
            return None;
        }
        let seconds = as_float(self.total() - self.done) / rate;
        Duration::try_from_secs_f64(seconds.ceil()).ok()
    }

    /// One line, for a report that is no terminal.
    pub(super) fn line(&self) -> String {
        let verb = match self.stage {
            Stage::Copying => "copied",
            Stage::Comparing => "compared",
            Stage::Following => return self.with_details("applies changes".to_owned()),
            Stage::Swapping => return self.with_details("swaps the collections".to_owned()),
        };
        let mut line = match percent(self.done, self.total()) {
            Some(percent) => format!("{verb} {} of about {} documents ({percent} %)", self.done, self.total()),
            None => format!("{verb} {} documents so far", self.done),
        };
        if let Some(rate) = self.rate() {
            let _ = write!(line, ", {rate:.0} documents/s");
        }
        self.with_details(line)
    }

    /// The text beside a bar, which shows the percentage.
    pub(super) fn beside_bar(&self) -> String {
        let mut text = String::new();
        if let Some(rate) = self.rate().filter(|_| self.stage.reads_all()) {
            let _ = write!(text, "{}/{}, {rate:.0}/s", self.done, self.total());
        }
        self.with_details(text)
    }

    fn with_details(&self, mut text: String) -> String {
        if let Some(lag) = self.lag_seconds {
            let _ = write!(text, ", {lag} s behind");
        }
        if let Some(remaining) = self.remaining() {
            let _ = write!(text, ", about {} left", span_text(remaining));
        }
        let delay = self.write_delay.current();
        if delay > Duration::ZERO {
            let _ = write!(text, ", writes delayed by {} ms", delay.as_millis());
        }
        if let Some(reason) = &self.paused {
            let _ = write!(text, "; paused: {reason}");
        }
        text.trim_start_matches(", ").to_owned()
    }

    /// The sub-document of the record. Numbers that are not known are null.
    pub(super) fn document(&self, at: DateTime) -> Document {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let comparison = self.last_comparison;
        doc! {
            "phase": self.stage.text(),
            "done": whole(self.done),
            "total": whole(self.total()),
            "lag_seconds": self.lag_seconds.map(whole),
            "remaining_seconds": self.remaining().map(|remaining| whole(remaining.as_secs())),
            "compared": comparison.map(|comparison| whole(comparison.compared)),
            "differing": comparison.map(|comparison| whole(comparison.differing)),
            "applied_until": self.applied_until,
            WRITE_DELAY: milliseconds(self.write_delay.current()),
            "updated_at": at,
        }
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The part that is done. 100 only if all is. `None`: the total is not known.
pub(super) fn percent(done: u64, total: u64) -> Option<u64> {
    let percent = u128::from(done.min(total)) * 100;
    let percent = percent.checked_div(u128::from(total))?;
    u64::try_from(percent).ok()
}

/// A duration for a person.
pub(super) fn span_text(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[expect(clippy::cast_precision_loss, reason = "documents, for a rate that is shown rounded")]
pub(super) fn as_float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copying(total: u64) -> (RunProgress, Instant) {
        let begun = Instant::now();
        let mut progress = RunProgress::new(begun);
        progress.expect(total);
        progress.begin(Stage::Copying, begun);
        (progress, begun)
    }

    fn rounded(progress: &RunProgress) -> String {
        progress.rate().map_or(String::new(), |rate| format!("{rate:.0}"))
    }

    #[test]
    fn rate_follows_the_last_seconds() {
        let (mut progress, begun) = copying(10_000);
        assert_eq!(progress.rate(), None);
        progress.advance(100, begun + Duration::from_millis(100));
        assert_eq!(progress.rate(), None, "too short");
        progress.advance(1000, begun + Duration::from_secs(1));
        assert_eq!(progress.rate(), Some(1000.0));
        assert_eq!(progress.remaining(), Some(Duration::from_secs(9)));
        progress.advance(9999, begun + Duration::from_millis(10_001));
        assert_eq!(progress.remaining(), Some(Duration::from_secs(1)));
        let (mut progress, begun) = copying(10_000);
        progress.advance(1000, begun + Duration::from_secs(1));
        // The first measurement has no greater weight than its time.
        progress.advance(1500, begun + Duration::from_secs(2));
        assert_eq!(rounded(&progress), "738");
        for second in 3..80 {
            progress.advance(1500 + (second - 2) * 100, begun + Duration::from_secs(second));
        }
        assert_eq!(rounded(&progress), "100");
    }

    #[test]
    fn line_has_percentage_rate_lag_and_estimate() {
        let (mut progress, begun) = copying(4000);
        assert_eq!(progress.line(), "copied 0 of about 4000 documents (0 %)");
        progress.advance(1000, begun + Duration::from_secs(2));
        progress.lag_seconds = Some(3);
        assert_eq!(
            progress.line(),
            "copied 1000 of about 4000 documents (25 %), 500 documents/s, 3 s behind, about 6 s left"
        );
        assert_eq!(progress.beside_bar(), "1000/4000, 500/s, 3 s behind, about 6 s left");
        progress.paused = Some("a reason".to_owned());
        assert!(progress.line().ends_with("about 6 s left; paused: a reason"));
        progress.begin(Stage::Following, begun);
        assert_eq!(progress.line(), "applies changes, 3 s behind");
        progress.write_delay.lengthen(begun);
        assert_eq!(progress.line(), "applies changes, 3 s behind, writes delayed by 2 ms");
        progress.write_delay = AdaptiveDelay::none(begun);
        assert_eq!(progress.beside_bar(), "3 s behind");
    }

    #[test]
    fn an_estimate_may_be_too_small_or_missing() {
        let (mut progress, begun) = copying(10);
        progress.advance(20, begun + Duration::from_secs(1));
        assert_eq!((progress.total(), progress.remaining()), (20, Some(Duration::ZERO)));
        let (mut progress, begun) = copying(0);
        progress.advance(20, begun + Duration::from_secs(1));
        assert_eq!(progress.line(), "copied 20 documents so far, 20 documents/s");
        assert_eq!(progress.remaining(), None);
        progress.complete(25, begun + Duration::from_secs(2));
        progress.begin(Stage::Comparing, begun + Duration::from_secs(2));
        assert_eq!(progress.line(), "compared 0 of about 25 documents (0 %)");
    }

    #[test]
    fn record_has_null_for_what_is_not_known() {
        let (mut progress, begun) = copying(100);
        let at = DateTime::from_millis(5);
        let begins = doc! {
            "phase": "copying", "done": 0_i64, "total": 100_i64, "lag_seconds": null, "remaining_seconds": null,
            "compared": null, "differing": null, "applied_until": null, "write_delay_ms": 0_i64, "updated_at": at,
        };
        assert_eq!(progress.document(at), begins);
        progress.lag_seconds = Some(1);
        let applied_until = Timestamp { time: 7, increment: 1 };
        progress.applied_until = Some(applied_until);
        progress.last_comparison = Some(LastComparison {
            compared: 100,
            differing: 2,
        });
        progress.write_delay.lengthen(begun);
        progress.begin(Stage::Swapping, begun);
        let swaps = doc! {
            "phase": "swapping", "done": 100_i64, "total": 100_i64, "lag_seconds": 1_i64, "remaining_seconds": null,
            "compared": 100_i64, "differing": 2_i64, "applied_until": applied_until, "write_delay_ms": 2_i64,
            "updated_at": at,
        };
        assert_eq!(progress.document(at), swaps);
    }

    #[test]
    fn parts_and_spans_are_rounded_down() {
        assert_eq!(
            (percent(0, 0), percent(999, 1000), percent(9, 3)),
            (None, Some(99), Some(100))
        );
        let text = |seconds| span_text(Duration::from_secs(seconds));
        assert_eq!(
            [text(0), text(119), text(121), text(7380)],
            ["0 s", "119 s", "2 min", "2 h 3 min"]
        );
    }
}
