//! Prints the findings, one per line.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::process::Command;

use proto_tests::paths;

use crate::tool::Tool;

#[derive(Debug, Default)]
pub(super) struct Report {
    passed: u32,
    notes: u32,
    pub(super) errors: u32,
    /// The tools that are not there.
    pub(super) missing: BTreeSet<&'static str>,
}

impl Report {
    pub(super) fn fine(&mut self, subject: &str, text: &str) {
        self.passed += 1;
        println!("ok: {subject}: {text}");
    }

    pub(super) fn note(&mut self, subject: &str, text: &str) {
        self.notes += 1;
        println!("note: {subject}: {text}");
    }

    pub(super) fn error(&mut self, subject: &str, text: &str) {
        self.errors += 1;
        println!("error: {subject}: {text}");
    }

    /// One error for each text, or none and what is fine then.
    pub(super) fn all(&mut self, subject: &str, errors: &[String], fine: &str) {
        for error in errors {
            self.error(subject, error);
        }
        if errors.is_empty() {
            self.fine(subject, fine);
        }
    }

    pub(super) fn missing(&mut self, tool: &Tool) {
        if self.missing.insert(tool.name) {
            println!("missing: {}: {}", tool.name, tool.install);
        }
    }

    pub(super) fn sum(&self) -> String {
        let missing = self.missing.len();
        format!(
            "{} ok, {} notes, {} errors, {missing} tools missing",
            self.passed, self.notes, self.errors
        )
    }

    /// Runs a tool at the root of the repository. Its output; `None`: it is missing, or has failed.
    pub(super) fn run<A: AsRef<OsStr>>(&mut self, tool: &Tool, arguments: &[A]) -> Option<String> {
        self.judge(tool, arguments, |_| true)
    }

    /// The same with a tool that succeeds whatever it finds: any output is an error.
    pub(super) fn run_to_silence<A: AsRef<OsStr>>(&mut self, tool: &Tool, arguments: &[A]) {
        self.judge(tool, arguments, |text| text.trim().is_empty());
    }

    fn judge<A: AsRef<OsStr>>(
        &mut self,
        tool: &Tool,
        arguments: &[A],
        is_content: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let Some(program) = tool.find() else {
            self.missing(tool);
            return None;
        };
        let words = arguments.iter().map(|word| word.as_ref().to_string_lossy());
        let subject = format!("{} {}", tool.name, words.collect::<Vec<_>>().join(" "));
        let ran = Command::new(program)
            .args(arguments)
            .current_dir(paths::workspace())
            .output();
        let (succeeded, text) = match ran {
            Err(error) => (false, error.to_string()),
            Ok(output) => {
                let text = [output.stdout, output.stderr].concat();
                (output.status.success(), String::from_utf8_lossy(&text).into_owned())
            }
        };
        if !succeeded || !is_content(&text) {
            self.error(&subject, &format!("\n{text}"));
            return None;
        }
        self.fine(&subject, "nothing found");
        Some(text)
    }
}
