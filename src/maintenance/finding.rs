//! What `check` and `setup` find, one line each on standard output. Knows no collection and no server.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// As it should be.
    Fine,
    /// To be known; the proxy works.
    Note,
    /// The proxy would not work.
    Error,
}

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    severity: Severity,
    /// What it is about: `upstream`, a namespace, a line of the configuration.
    subject: String,
    text: String,
}

impl Finding {
    pub(crate) fn fine(subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(Severity::Fine, subject, text)
    }

    pub(crate) fn note(subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(Severity::Note, subject, text)
    }

    pub(crate) fn error(subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(Severity::Error, subject, text)
    }

    /// Whether the proxy would not work with it.
    pub(crate) fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Its text without the severity.
    pub(crate) fn without_severity(&self) -> String {
        format!("{}: {}", self.subject, self.text)
    }

    fn new(severity: Severity, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            severity,
            subject: subject.into(),
            // A server's message may have several lines; a finding has one.
            text: text.into().replace('\n', " "),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Fine => "ok",
            Severity::Note => "note",
            Severity::Error => "error",
        };
        write!(f, "{severity}: {}: {}", self.subject, self.text)
    }
}

/// Prints findings as they come and remembers whether one was an error.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    failed: bool,
}

impl Findings {
    /// Prints one.
    pub(crate) fn add(&mut self, finding: &Finding) {
        self.failed |= finding.is_error();
        // Whoever closed the pipe does not want to know; the exit code still says it.
        let _ = writeln!(io::stdout(), "{finding}");
    }

    /// Prints several.
    pub(crate) fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|finding| self.add(&finding));
    }

    /// Whether one was an error.
    pub(crate) fn failed(&self) -> bool {
        self.failed
    }

    /// 1 if one was an error.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.failed {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }
}
