//! HAProxy in TCP mode: a reference for the cost of relaying.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use proto_tests::guarded::Guarded;
use proto_tests::{paths, ports, raw};
use tempfile::TempDir;

/// A running HAProxy; it ends when dropped.
#[derive(Debug)]
pub(super) struct HaProxy {
    pub(super) address: SocketAddr,
    process: Guarded,
}

impl HaProxy {
    /// Starts it before `upstream`. `None`: it is not installed.
    pub(super) fn start(upstream: SocketAddr) -> Result<Option<Self>> {
        let Some(program) = paths::on_path("haproxy") else {
            return Ok(None);
        };
        let address = ports::free_address()?;
        let folder = TempDir::with_prefix("mongoshape-haproxy-")?;
        let file = folder.path().join("haproxy.cfg");
        fs::write(&file, config(address, upstream))?;
        let log = File::create(folder.path().join("log"))?;
        let mut command = Command::new(program);
        command.arg("-f").arg(file).arg("-db");
        let mut process = Guarded::start(&command, folder, Stdio::from(log))?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while raw::Connection::open(address).is_err() {
            if process.exited()?.is_some() || Instant::now() > deadline {
                bail!("haproxy did not start:\n{}", process.read("log"));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(Self { address, process }))
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }
}

fn config(address: SocketAddr, upstream: SocketAddr) -> String {
    format!(
        "global\n    nbthread 2\n    maxconn 4096\ndefaults\n    mode tcp\n    timeout connect 5s\n    timeout client 1m\n    \
         timeout server 1m\nlisten relay\n    bind {address}\n    server mongod {upstream}\n"
    )
}
