//! A real Prometheus that scrapes one proxy.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use proto_tests::guarded::Guarded;
use proto_tests::ports;
use tempfile::TempDir;

use crate::tool::Tool;

const PROMETHEUS: Tool = Tool::new("prometheus", "apt-get install --no-install-recommends prometheus");
const LOG: &str = "prometheus.log";

#[derive(Debug)]
pub(super) struct Prometheus {
    process: Guarded,
    address: SocketAddr,
}

impl Prometheus {
    /// Scrapes every five seconds, as `answers.js` knows, by the job's name that the dashboard goes by.
    pub(super) fn start(scraped: SocketAddr) -> Result<Self> {
        let program = PROMETHEUS.find();
        let program = program.with_context(|| format!("there is no Prometheus here: {}", PROMETHEUS.install))?;
        let folder = TempDir::with_prefix("mongoshape-prometheus-")?;
        let file = folder.path().join("prometheus.yml");
        let jobs =
            format!("scrape_configs:\n- job_name: mongoshape\n  static_configs:\n  - targets: [\"{scraped}\"]\n");
        fs::write(
            &file,
            format!("global:\n  scrape_interval: 5s\n  scrape_timeout: 5s\n{jobs}"),
        )?;
        let address = ports::free_address()?;
        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        let log = File::create(folder.path().join(LOG))?;
        let process = Guarded::start(&command, folder, Stdio::from(log))?;
        Ok(Self { process, address })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn expect_running(&mut self) -> Result<()> {
        let ended = self.process.exited()?;
        ensure!(ended.is_none(), "Prometheus ended:\n{}", self.process.read(LOG));
        Ok(())
    }
}
