//! A command during whose execution another client does something.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::Document;
use proto_tests::raw::Connection;
use proto_tests::stopping_relay::{Moment, StoppingRelay};

/// Less than the time that a connection waits for a reply.
const LIMIT: Duration = Duration::from_secs(8);

/// Sends a command to a proxy behind the relay, which stops at the first internal command that it counts. It goes
/// on after `meanwhile`. Returns the reply.
pub(crate) fn interleaved(
    connection: &mut Connection,
    command: &Document,
    relay: &StoppingRelay,
    meanwhile: impl FnOnce() -> Result<()>,
) -> Result<Document> {
    relay.arm(Some((1, Moment::Before)));
    thread::scope(|scope| {
        let sending = scope.spawn(move || connection.command(command));
        let deadline = Instant::now() + LIMIT;
        while !relay.has_stopped() && !sending.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        let has_stopped = relay.has_stopped();
        let happened = meanwhile();
        relay.go_on();
        let reply = sending.join().expect("the client panicked")?;
        ensure!(has_stopped, "{command} was not stopped: {reply}");
        happened.map(|()| reply)
    })
}
