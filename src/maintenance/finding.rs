//! Findings of `check` and `setup`, one line each on standard output. Independent of collections
//! and servers.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use indicatif::ProgressBar;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// As required.
    Fine,
    /// Informative: the proxy works.
    Note,
    /// The proxy works, and the application lacks something that it asks for.
    Warning,
    /// The proxy would not work.
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    severity: Severity,
    /// The subject: `upstream`, a namespace, or a line of the configuration.
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

    pub(crate) fn warning(subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(Severity::Warning, subject, text)
    }

    pub(crate) fn error(subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(Severity::Error, subject, text)
    }

    /// Whether the proxy would not work.
    pub(crate) fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The subject and text without the severity.
    pub(crate) fn without_severity(&self) -> String {
        format!("{}: {}", self.subject, self.text)
    }

    fn new(severity: Severity, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            severity,
            subject: subject.into(),
            // A server's message may have several lines, a finding has one.
            text: text.into().replace('\n', " "),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Fine => "ok",
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}: {}: {}", self.subject, self.text)
    }
}

/// Prints findings and records whether one was an error.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    failed: bool,
    /// A bar on the same terminal.
    bar: Option<ProgressBar>,
}

impl Findings {
    /// Prints a finding.
    pub(crate) fn add(&mut self, finding: &Finding) {
        self.failed |= finding.is_error();
        // A closed pipe is ignored, because the exit code also reports the error.
        let print = || drop(writeln!(io::stdout(), "{finding}"));
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Removes a progress bar from the terminal while a finding is printed, because both may be on the same
    /// line. `None`: there is no bar.
    pub(crate) fn share_terminal(&mut self, bar: Option<&ProgressBar>) {
        self.bar = bar.cloned();
    }

    /// Prints findings.
    pub(crate) fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|finding| self.add(&finding));
    }

    /// Whether an error was printed.
    pub(crate) fn failed(&self) -> bool {
        self.failed
    }

    /// 1 if an error was printed.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.failed {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }
    }
}
