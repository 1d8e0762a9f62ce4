//! A real Prometheus that scrapes one address.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::guarded::Guarded;
use crate::{paths, ports};

/// How to get it.
pub const INSTALL: &str = "apt-get install --no-install-recommends prometheus";
const LOG: &str = "prometheus.log";

/// A running Prometheus, which ends with its owner.
#[derive(Debug)]
pub struct Prometheus {
    process: Guarded,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts one that scrapes `scraped` as the job that alerts and the dashboard go by, at this interval,
    /// such as `5s`.
    ///
    /// # Errors
    /// There is none on this machine: see [`INSTALL`].
    pub fn start(scraped: SocketAddr, interval: &str) -> Result<Self> {
        let program = paths::on_path("prometheus");
        let program = program.with_context(|| format!("there is no Prometheus here: {INSTALL}"))?;
        let folder = TempDir::with_prefix("mongoshape-prometheus-")?;
        let file = folder.path().join("prometheus.yml");
        let times = format!("scrape_interval: {interval}, scrape_timeout: {interval}");
        let job = format!("{{ job_name: mongoshape, static_configs: [{{ targets: [\"{scraped}\"] }}] }}");
        fs::write(&file, format!("global: {{ {times} }}\nscrape_configs: [{job}]\n"))?;
        let address = ports::free_address()?;
        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        let log = File::create(folder.path().join(LOG))?;
        let process = Guarded::start(&command, folder, Stdio::from(log))?;
        Ok(Self { process, address })
    }

    /// Where its API is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Fails with its output if it has ended.
    pub fn expect_running(&mut self) -> Result<()> {
        let ended = self.process.exited()?;
        ensure!(ended.is_none(), "Prometheus ended:\n{}", self.process.read(LOG));
        Ok(())
    }
}
