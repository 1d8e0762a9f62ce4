//! The last warnings and errors of the proxy's own modules, for the operator's page. A copy of log
//! lines of level WARN and above.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Number of entries kept. The oldest is dropped first.
const KEPT: usize = 50;
/// Maximum bytes of an entry's text.
const LONGEST_TEXT: usize = 400;

/// A line of the log, with the number of its consecutive repetitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The time of the last repetition.
    pub at: SystemTime,
    /// WARN or ERROR.
    pub level: Level,
    /// The module that logged it.
    pub target: &'static str,
    /// The message and its fields.
    pub text: String,
    /// Number of consecutive occurrences.
    pub times: u64,
}

/// The entries, shared between the log and the page.
#[derive(Clone, Debug, Default)]
pub struct RecentWarnings(Arc<Mutex<VecDeque<Entry>>>);

impl RecentWarnings {
    /// The entries, newest first.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().rev().cloned().collect()
    }

    fn add(&self, entry: Entry) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match entries.back_mut() {
            Some(last) if (last.level, last.target, &last.text) == (entry.level, entry.target, &entry.text) => {
                last.at = entry.at;
                last.times += 1;
            }
            _ => {
                if entries.len() == KEPT {
                    entries.pop_front();
                }
                entries.push_back(entry);
            }
        }
    }
}

impl<S: Subscriber> Layer<S> for RecentWarnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = EntryText::default();
        event.record(&mut text);
        self.add(Entry {
            at: SystemTime::now(),
            level: *event.metadata().level(),
            target: event.metadata().target(),
            text: text.finish(),
            times: 1,
        });
    }
}

/// The message and the fields as `name=value`.
#[derive(Default)]
struct EntryText {
    message: String,
    fields: String,
}

impl EntryText {
    fn finish(self) -> String {
        let mut text = self.message + &self.fields;
        if text.len() > LONGEST_TEXT {
            text.truncate(text.floor_char_boundary(LONGEST_TEXT));
            text.push('\u{2026}');
        }
        text
    }
}

impl Visit for EntryText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value}"),
            name => write!(self.fields, " {name}={value}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::prelude::*;

    use super::*;

    #[test]
    fn the_last_ones_are_kept_and_repetitions_counted() {
        let recent = RecentWarnings::default();
        let subscriber = tracing_subscriber::registry().with(recent.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(peer = %"1.2.3.4:5", error = "gone", "closed a connection");
            tracing::warn!(peer = %"1.2.3.4:5", error = "gone", "closed a connection");
            tracing::error!("{}", "x".repeat(2 * LONGEST_TEXT));
        });
        let entries = recent.entries();
        let [longest, repeated] = entries.as_slice() else {
            panic!("{entries:?}")
        };
        assert_eq!(
            (longest.level, longest.text.chars().count()),
            (Level::ERROR, LONGEST_TEXT + 1)
        );
        assert_eq!(repeated.text, "closed a connection peer=1.2.3.4:5 error=gone");
        assert_eq!((repeated.level, repeated.times), (Level::WARN, 2));
        for number in 0..2 * KEPT {
            recent.add(Entry {
                text: number.to_string(),
                ..repeated.clone()
            });
        }
        let entries = recent.entries();
        assert_eq!(entries.len(), KEPT);
        assert_eq!(entries[0].text, (2 * KEPT - 1).to_string());
    }
}
