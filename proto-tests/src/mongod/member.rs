//! One mongod process.

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use bson::{Document, doc};
use tempfile::TempDir;

use super::{LOG, Options, SET_NAME, START_LIMIT, binary};
use crate::guarded::{Guarded, POLL_INTERVAL};
use crate::{ports, raw};

#[derive(Debug)]
pub(super) struct Member {
    pub(super) address: SocketAddr,
    pub(super) process: Guarded,
}

impl Member {
    /// Starts one and waits until it answers.
    pub(super) fn start(options: &Options, of_set: bool) -> Result<Self> {
        let mut last_words = String::new();
        for _ in 0..ports::ATTEMPTS {
            let mut member = Self::spawn(options, of_set)?;
            if member.wait_until_up()? {
                return Ok(member);
            }
            last_words = member.process.read(LOG);
            if !ports::says_address_in_use(&last_words) {
                break;
            }
        }
        let tail: Vec<_> = last_words.lines().rev().take(5).collect();
        bail!(
            "mongod ended while it started; its last lines, newest first:\n{}",
            tail.join("\n")
        )
    }

    fn spawn(options: &Options, of_set: bool) -> Result<Self> {
        let address = ports::free_address()?;
        let folder = TempDir::with_prefix("mongoshape-mongod-")?;
        let log = File::create(folder.path().join(LOG))?;
        let mut command = Command::new(binary::find()?);
        command
            .arg("--dbpath")
            .arg(folder.path())
            .args(["--bind_ip", "127.0.0.1", "--nounixsocket"]);
        command.args(["--port", &address.port().to_string()]);
        command.args(["--wiredTigerCacheSizeGB", &options.cache_gb.to_string()]);
        for parameter in &options.parameters {
            command.args(["--setParameter", parameter]);
        }
        if of_set {
            command.args(["--replSet", SET_NAME, "--oplogSize", "128"]);
        }
        let process = Guarded::start(&command, folder, Stdio::from(log))?;
        Ok(Self { address, process })
    }

    /// `false`: it ended. An error: it neither ended nor answered.
    fn wait_until_up(&mut self) -> Result<bool> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if self.process.exited()?.is_some() {
                return Ok(false);
            }
            // If another server took the port, it answers, but our process is about to end: ask who is there.
            if self.hello().is_ok() && self.answers_as_ours() {
                return Ok(true);
            }
            ensure!(
                Instant::now() < deadline,
                "mongod does not answer after {START_LIMIT:?}"
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn answers_as_ours(&self) -> bool {
        let status = self
            .ask(&doc! { "serverStatus": 1, "$db": "admin" })
            .unwrap_or_default();
        status.get_i64("pid").is_ok_and(|id| id == i64::from(self.process.id()))
    }

    pub(super) fn is_writable(&self) -> Result<bool> {
        Ok(self.hello()?.get_bool("isWritablePrimary")?)
    }

    pub(super) fn hello(&self) -> Result<Document> {
        self.ask(&doc! { "hello": 1, "$db": "admin" })
    }

    fn ask(&self, command: &Document) -> Result<Document> {
        raw::Connection::open(self.address)?.command(command)
    }
}
