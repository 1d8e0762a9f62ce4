//! The display of a run's progress: a bar on a terminal, otherwise lines.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::maintenance::convert::progress::RunProgress;

/// Interval of lines.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Interval in which the bar shows that the command works.
const TICK: Duration = Duration::from_millis(250);
/// Redraws per second.
const REDRAWS: u8 = 4;
const BAR: &str = "{spinner} {prefix} [{wide_bar}] {percent:>3} % {msg}";
/// The number of documents is not known.
const WITHOUT_BAR: &str = "{spinner} {prefix} {wide_msg}";

/// The display of the progress.
pub(in crate::maintenance::convert) struct Screen {
    /// `None`: standard error is no terminal.
    bar: Option<ProgressBar>,
    /// The last line, or the beginning of the stage.
    reported: Instant,
}

impl Screen {
    /// Shows a bar if standard error is a terminal.
    pub(in crate::maintenance::convert) fn open() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr_with_hz(REDRAWS);
            let bar = ProgressBar::with_draw_target(None, target).with_prefix("preparing");
            set_template(&bar, WITHOUT_BAR);
            bar.enable_steady_tick(TICK);
            bar
        });
        Self {
            // A terminal that cannot move its cursor gets lines.
            bar: bar.filter(|bar| !bar.is_hidden()),
            reported: Instant::now(),
        }
    }

    /// The bar, beside which findings are printed.
    pub(in crate::maintenance::convert) fn bar(&self) -> Option<&ProgressBar> {
        self.bar.as_ref()
    }

    /// Begins a stage.
    pub(in crate::maintenance::convert) fn begin(&mut self, progress: &RunProgress) {
        self.reported = Instant::now();
        let Some(bar) = &self.bar else {
            return;
        };
        let template = if progress.total() > 0 && progress.stage().reads_all() {
            BAR
        } else {
            WITHOUT_BAR
        };
        set_template(bar, template);
        bar.set_prefix(progress.stage().text());
        self.draw(progress);
    }

    /// Shows the progress. Returns a line if one is due.
    pub(in crate::maintenance::convert) fn show(&mut self, progress: &RunProgress) -> Option<String> {
        self.draw(progress);
        if self.bar.is_some() || self.reported.elapsed() < LINE_EVERY || !progress.stage().reads_all() {
            return None;
        }
        self.reported = Instant::now();
        Some(progress.line())
    }

    fn draw(&self, progress: &RunProgress) {
        if let Some(bar) = &self.bar {
            bar.set_length(progress.total());
            bar.set_position(progress.done());
            bar.set_message(progress.beside_bar());
        }
    }
}

fn set_template(bar: &ProgressBar, template: &str) {
    // The templates are constants. An invalid one would leave the crate's own.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
