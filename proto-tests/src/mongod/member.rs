//! One mongod process.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use bson::{Document, doc};
use rustix::fs::statvfs;
use tempfile::TempDir;

use super::{LOG, Options, Role, SET_NAME, START_LIMIT, binary};
use crate::certificates::{Clients, Identity, Tls};
use crate::guarded::{Guarded, POLL_INTERVAL};
use crate::{ports, raw};

/// What members of a set that demands logins prove themselves with to each other.
const KEY: &str = "bW9uZ29zaGFwZSB0ZXN0cw==";
const KEY_FILE: &str = "set.key";

/// Linux's file system in memory.
const MEMORY: &str = "/dev/shm";
/// The free bytes that it must have. A test process has up to a dozen servers at a time, each with a few
/// hundred MB.
const MEMORY_ROOM: u64 = 8 << 30;

#[derive(Debug)]
pub(super) struct Member {
    pub(super) address: SocketAddr,
    pub(super) process: Guarded,
    tls: Option<Tls>,
    /// Where in its log the present process begins.
    log_start: usize,
}

impl Member {
    /// Starts one and waits until it answers.
    pub(super) fn start(options: &Options, role: Role) -> Result<Self> {
        let mut log = String::new();
        for _ in 0..ports::ATTEMPTS {
            let mut member = Self::spawn(options, role)?;
            if member.wait_until_up()? {
                return Ok(member);
            }
            log = member.process.read(LOG);
            if !ports::reports_address_in_use(&log) {
                break;
            }
        }
        bail!("mongod ended while it started; {}", newest_lines(&log))
    }

    fn spawn(options: &Options, role: Role) -> Result<Self> {
        let address = ports::free_address()?;
        let folder = new_folder(options)?;
        let command = command(options, role, address, folder.path())?;
        let log = log(folder.path())?;
        Ok(Self {
            address,
            process: Guarded::start(&command, folder, log)?,
            tls: options.tls.clone(),
            log_start: 0,
        })
    }

    /// Starts one that has ended again, on its port and its files, and waits until it answers.
    pub(super) fn restart(&mut self, options: &Options, role: Role) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            self.log_start = self.process.read(LOG).len();
            let folder = self.process.folder().to_owned();
            let command = command(options, role, self.address, &folder)?;
            self.process.start_again(&command, log(&folder)?)?;
            if self.wait_until_up()? {
                return Ok(());
            }
            // Somebody's outgoing connection may have the port for a moment.
            let log = self.own_log();
            ensure!(
                ports::reports_address_in_use(&log) && Instant::now() < deadline,
                "mongod ended while it started again; {}",
                newest_lines(&log)
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// `false`: it ended. An error: it neither ended nor answered.
    fn wait_until_up(&mut self) -> Result<bool> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if self.process.exited()?.is_some() {
                return Ok(false);
            }
            // If another server has the port, it answers, but our process is about to end: ours logs when it
            // listens.
            if self.own_log().contains("Waiting for connections") && self.hello().is_ok() {
                return Ok(true);
            }
            ensure!(
                Instant::now() < deadline,
                "mongod does not answer after {START_LIMIT:?}"
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn own_log(&self) -> String {
        let log = self.process.read(LOG);
        log.get(self.log_start..).unwrap_or_default().to_owned()
    }

    pub(super) fn is_writable(&self) -> Result<bool> {
        Ok(self.hello()?.get_bool("isWritablePrimary")?)
    }

    pub(super) fn hello(&self) -> Result<Document> {
        self.connect()?.command(&doc! { "hello": 1, "$db": "admin" })
    }

    /// A connection that a server which wants TLS accepts.
    pub(super) fn connect(&self) -> Result<raw::Connection> {
        match &self.tls {
            None => raw::Connection::open(self.address),
            Some(tls) => {
                let config = tls.certificates.client_config(Identity::Client)?;
                raw::Connection::open_tls(self.address, &config)
            }
        }
    }
}

/// A folder for the files of a server.
fn new_folder(options: &Options) -> io::Result<TempDir> {
    const PREFIX: &str = "mongoshape-mongod-";
    let has_room =
        || statvfs(MEMORY).is_ok_and(|volume| volume.f_bavail.saturating_mul(volume.f_frsize) >= MEMORY_ROOM);
    if options.is_in_memory && has_room() {
        return TempDir::with_prefix_in(PREFIX, MEMORY);
    }
    TempDir::with_prefix(PREFIX)
}

fn newest_lines(log: &str) -> String {
    let tail: Vec<_> = log.lines().rev().take(5).collect();
    format!("its last lines, newest first:\n{}", tail.join("\n"))
}

/// One log for all processes on this folder, one after the other.
fn log(folder: &Path) -> Result<Stdio> {
    let log = OpenOptions::new().append(true).create(true).open(folder.join(LOG))?;
    Ok(Stdio::from(log))
}

fn command(options: &Options, role: Role, address: SocketAddr, folder: &Path) -> Result<Command> {
    let program = binary::find()?;
    let mut command = Command::new(&program.path);
    command.arg("--dbpath").arg(folder).args(["--bind_ip", "127.0.0.1"]);
    if !program.is_windows {
        command.arg("--nounixsocket");
    }
    command.args(["--port", &address.port().to_string()]);
    command.args(["--wiredTigerCacheSizeGB", &options.cache_gb.to_string()]);
    if let Some(interval) = options.journal_interval {
        command.args(["--journalCommitInterval", &interval.to_string()]);
    }
    for parameter in &options.parameters {
        command.args(["--setParameter", parameter]);
    }
    if role == Role::Member {
        command.args(["--replSet", SET_NAME, "--oplogSize", "128"]);
    }
    if let Some(tls) = &options.tls {
        add_tls(&mut command, tls);
    }
    if options.auth {
        command.arg("--auth");
        if role == Role::Member {
            command.arg("--keyFile").arg(key_file(folder)?);
        }
    }
    Ok(command)
}

fn add_tls(command: &mut Command, tls: &Tls) {
    command.args(["--tlsMode", "requireTLS", "--tlsCertificateKeyFile"]);
    command.arg(tls.certificates.server_and_key());
    command.arg("--tlsCAFile").arg(tls.certificates.ca());
    if tls.clients == Clients::Any {
        command.arg("--tlsAllowConnectionsWithoutCertificates");
    }
}

/// mongod accepts a key file only if no other user can read it.
fn key_file(folder: &Path) -> Result<PathBuf> {
    let file = folder.join(KEY_FILE);
    fs::write(&file, KEY)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
    Ok(file)
}
