//! Collects the proxy's log and checks it at the end.

use std::io::{BufRead as _, BufReader, PipeReader};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use serde_json::Value;

/// A level that a test may have to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// TRACE, DEBUG or INFO: never a reason to fail.
    Info,
    /// WARN.
    Warn,
    /// ERROR, and lines that are no log lines, as a panic's message.
    Error,
}

/// One line of the log.
#[derive(Debug, Clone)]
pub struct Line {
    /// How grave it is.
    pub level: Level,
    /// The whole line as written.
    pub text: String,
}

impl Line {
    fn parse(text: String) -> Self {
        let parsed = serde_json::from_str::<Value>(&text).unwrap_or_default();
        let level = match parsed.get("level").and_then(Value::as_str) {
            Some("TRACE" | "DEBUG" | "INFO") => Level::Info,
            Some("WARN") => Level::Warn,
            _ => Level::Error,
        };
        Self { level, text }
    }

    /// The level, the message and the other fields, a line each.
    fn fields(&self) -> String {
        let Ok(Value::Object(parsed)) = serde_json::from_str(&self.text) else {
            return self.text.clone();
        };
        let fields = parsed
            .iter()
            .filter(|(name, _)| !["timestamp", "level"].contains(&name.as_str()));
        let field = |(name, value): (&String, &Value)| format!("\n  {name}: {value}");
        format!("{:?}", self.level) + &fields.map(field).collect::<String>()
    }
}

/// Collects lines on a thread of its own until the proxy closes its end.
#[derive(Debug)]
pub(super) struct Log {
    lines: Arc<Mutex<Vec<Line>>>,
    expected: Mutex<Vec<(Level, String)>>,
    reader: Option<JoinHandle<()>>,
}

impl Log {
    pub(super) fn read(pipe: PipeReader) -> Self {
        let mut log = Self {
            lines: Arc::default(),
            expected: Mutex::default(),
            reader: None,
        };
        log.follow(pipe);
        log
    }

    /// Adds the lines of another process, once the last one has ended.
    pub(super) fn follow(&mut self, pipe: PipeReader) {
        self.finish();
        let collected = Arc::clone(&self.lines);
        self.reader = Some(thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                locked(&collected).push(Line::parse(String::from_utf8_lossy(&line).into_owned()));
            }
        }));
    }

    pub(super) fn expect(&self, level: Level, part: &str) {
        locked(&self.expected).push((level, part.to_owned()));
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        locked(&self.lines).clone()
    }

    pub(super) fn text(&self) -> String {
        self.lines().into_iter().map(|line| line.text + "\n").collect()
    }

    /// Waits for the last line; the process must have ended.
    pub(super) fn finish(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }

    /// The unexpected WARN and ERROR lines, as [`Line::fields`] prints them.
    pub(super) fn unlisted(&self) -> Vec<String> {
        let expected = locked(&self.expected);
        let is_listed = |line: &Line| {
            expected
                .iter()
                .any(|(level, part)| line.level == *level && line.text.contains(part))
        };
        let graver = self.lines().into_iter().filter(|line| line.level != Level::Info);
        graver
            .filter(|line| !is_listed(line))
            .map(|line| line.fields())
            .collect()
    }
}

/// The lines of a thread that panicked are still lines.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Level) {
        assert_eq!(Line::parse(text.to_owned()).level, expected, "{text}");
    }

    #[test]
    fn log_level_is_parsed_and_unknown_level_is_an_error() {
        check(r#"{"level":"INFO","fields":{"message":"ERROR"}}"#, Level::Info);
        check(r#"{"level":"WARN","fields":{"message":"m"}}"#, Level::Warn);
        check(r#"{"level":"ERROR","fields":{"message":"m"}}"#, Level::Error);
        check("thread 'main' panicked at src/main.rs:1:1:", Level::Error);
    }

    #[test]
    fn only_expected_log_lines_are_accepted() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(
            &mut writer,
            br#"{"level":"WARN","message":"one"}
{"level":"ERROR","message":"one","peer":"p"}
noise"#,
        )
        .unwrap();
        drop(writer);
        let mut log = Log::read(reader);
        log.finish();
        log.expect(Level::Warn, "one");
        assert_eq!(log.unlisted(), ["Error\n  message: \"one\"\n  peer: \"p\"", "noise"]);
    }
}
