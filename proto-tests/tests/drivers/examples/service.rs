//! A running application of `examples/`.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use proto_tests::guarded::Guarded;
use proto_tests::{http, ports};
use serde_json::Value;
use tempfile::TempDir;

use super::requests::{Ids, Request};

/// A JVM on a busy machine needs a minute.
const START_LIMIT: Duration = Duration::from_mins(3);
const ANSWER_LIMIT: Duration = Duration::from_mins(1);
const LOG: &str = "application.log";

/// What an application answered, with names for the ids that it has generated.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) status: u16,
    body: Value,
}

/// An application, which ends with its owner.
pub(super) struct Service {
    process: Guarded,
    address: SocketAddr,
    ids: Ids,
}

impl Service {
    pub(super) fn start(mut command: Command, uri: &str) -> Result<Self> {
        let address = ports::free_address()?;
        command.env("PORT", address.port().to_string()).env("MONGODB_URI", uri);
        let folder = TempDir::with_prefix("mongoshape-example-")?;
        let log = File::create(folder.path().join(LOG))?;
        Ok(Self {
            process: Guarded::start(&command, folder, Stdio::from(log))?,
            address,
            ids: Ids::default(),
        })
    }

    pub(super) fn wait_until_it_listens(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(self.address).is_err() {
            let ended = self.process.exited()?;
            ensure!(ended.is_none(), "it has ended:\n{}", self.process.read(LOG));
            ensure!(
                Instant::now() < deadline,
                "it does not start:\n{}",
                self.process.read(LOG)
            );
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    pub(super) fn answer(&mut self, request: &Request) -> Result<Answer> {
        let sent = http::Request {
            method: &request.method,
            path: &self.ids.fill(&request.path),
            headers: "Content-Type: application/json\r\n",
            body: &request.body,
        };
        let answer = sent
            .send(self.address, ANSWER_LIMIT)
            .with_context(|| format!("{sent:?}: no answer; its log:\n{}", self.process.read(LOG)))?;
        // A framework's own errors are text.
        let mut body = serde_json::from_str(&answer.body).unwrap_or(Value::String(answer.body));
        self.ids.hide(&mut body);
        Ok(Answer {
            status: answer.status,
            body,
        })
    }
}
