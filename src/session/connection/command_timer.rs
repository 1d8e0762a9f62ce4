//! Begins a command, and counts it when it ends.

use std::time::Instant;

use bson::raw::RawDocument;

use super::{Closed, Session};
use crate::command::document::get;
use crate::command::header::CommandHeader;
use crate::command::registry::Command;
use crate::session::command_trace::CommandTrace;
use crate::session::handshake::changes_users;
use crate::session::metrics::{CommandOutcome, Spent};
use crate::session::stream::StreamError;

/// The event that a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// Its result.
    Answer,
    /// A change of the server, which may never happen. The duration is meaningless, and the client
    /// may cancel the command.
    News,
}

impl Awaited {
    /// Classifies a command by the event that it waits for.
    pub(super) fn by(command: Command, body: &RawDocument) -> Self {
        if command.is_handshake() && get(body, "maxAwaitTimeMS").is_some() {
            Self::News
        } else {
            Self::Answer
        }
    }
}

/// A running command.
pub(super) struct CommandTimer {
    command: Command,
    awaited: Awaited,
    at: Instant,
}

impl Session<'_> {
    /// The trace of a command, if it is sampled or may be logged as slow. Handshakes have none.
    pub(super) fn trace(&mut self, head: &CommandHeader<'_>) -> Option<Box<CommandTrace>> {
        let tracer = self.shared.tracer.as_ref();
        let may_be_logged = self.settings.load().limits.slow_command.is_some();
        if (tracer.is_none() && !may_be_logged) || head.command.is_handshake() {
            return None;
        }
        let trace = CommandTrace::begin(tracer, head, self.upstream.address());
        (may_be_logged || trace.is_sampled()).then(|| Box::new(trace))
    }

    /// Begins a command of the client, in whichever kind of message it came. Starts its timer, and forgets
    /// the users of the connection if the command may change them.
    pub(super) fn begin(
        &mut self,
        command: Command,
        awaited: Awaited,
        trace: Option<Box<CommandTrace>>,
    ) -> CommandTimer {
        if changes_users(command) {
            self.link.forget_users();
            self.hidden_formers.clear();
        }
        self.link.begin_command(trace);
        let at = Instant::now();
        CommandTimer { command, awaited, at }
    }

    /// Records the duration of a command that was rewritten for the shape of its collection.
    pub(super) fn record_of_shape(&mut self, begun: &CommandTimer, head: &CommandHeader<'_>) {
        if head.command == Command::GetMore {
            return;
        }
        let shapes = &self.settings.load().shapes;
        if let Some(shape) = head.namespace().and_then(|namespace| shapes.lookup(namespace)) {
            let namespace = shape.namespace().to_string();
            self.shared.metrics.of_shape(&namespace, begun.at.elapsed());
        }
    }

    /// Counts a command that ended.
    pub(super) fn count(&mut self, begun: &CommandTimer, done: Result<CommandOutcome, Closed>) -> Result<(), Closed> {
        let outcome = match (&done, begun.awaited) {
            (Ok(outcome), _) => *outcome,
            (Err(Closed::ByClient | Closed::Retired | Closed::Client(StreamError::Io(_))), Awaited::News) => {
                CommandOutcome::Relayed
            }
            (Err(_), _) => CommandOutcome::Failed,
        };
        let spent = Spent {
            upstream: self.link.waited(),
            whole: begun.at.elapsed(),
        };
        if let Some(trace) = self.link.take_trace() {
            trace.end(outcome, spent, self.settings.load().limits.slow_command);
        }
        let spent = (begun.awaited == Awaited::Answer).then_some(spent);
        self.shared.metrics.command(begun.command, outcome, spent);
        done.map(|_| ())
    }
}
