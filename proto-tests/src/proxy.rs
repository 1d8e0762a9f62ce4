//! Starts the proxy's binary with a configuration. A test fails on any WARN or ERROR that it did not expect.

mod addresses;
mod admin;
mod binary;
mod log;
mod options;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::certificates::Tls;
use crate::guarded::{Guarded, POLL_INTERVAL};
use crate::http::Answer;
use crate::ports;

use addresses::Addresses;
pub use binary::{Profile, build as build_binary, find as find_binary};
pub use log::{Level, Line};
pub use options::ProxyOptions;

const START_LIMIT: Duration = Duration::from_secs(30);
/// Reports whether the upstream is available.
const READY: Probe = Probe {
    path: "/readyz",
    body: "ready\n",
};
/// Reports whether the proxy runs.
const ALIVE: Probe = Probe {
    path: "/livez",
    body: "alive\n",
};
/// How long it may drain after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// An endpoint of the admin address, and its body with status 200. Another process may have bound the port
/// first, and a MongoDB port has a response to HTTP, too.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Probe {
    path: &'static str,
    body: &'static str,
}

/// A running proxy that answers `/readyz`. Dropping it ends it with SIGTERM and judges its exit and its log.
#[derive(Debug)]
pub struct Proxy {
    process: Guarded,
    log: log::Log,
    addresses: Addresses,
    binary: PathBuf,
    tls: Option<Tls>,
    token: Option<String>,
    /// Set once it was stopped and checked, or killed.
    ended: bool,
}

impl Proxy {
    /// Starts the binary and waits until it is ready.
    pub fn start(options: &ProxyOptions) -> Result<Self> {
        Self::start_until(options, READY)
    }

    /// Starts the binary and waits until it lives, before an upstream that it cannot reach.
    pub fn start_unready(options: &ProxyOptions) -> Result<Self> {
        Self::start_until(options, ALIVE)
    }

    /// Starts the binary before a collection that does not fit its shape: it logs that, and is not ready.
    pub fn start_with_misfits(options: &ProxyOptions) -> Result<Self> {
        let proxy = Self::start_unready(options)?;
        proxy.expect_log(Level::Error, "a collection does not have its shape");
        proxy.wait_until_the_server_is_known();
        Ok(proxy)
    }

    /// A single server is named twice in the log, when it is connected to and when it has answered `hello`:
    /// mostly within milliseconds. A set is named once.
    fn wait_until_the_server_is_known(&self) {
        let deadline = Instant::now() + Duration::from_secs(1);
        let named = || {
            let lines = self.log.lines();
            let is_named = |line: &&Line| line.text.contains("new connections of clients use this server");
            lines.iter().filter(is_named).count()
        };
        while named() < 2 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn start_until(options: &ProxyOptions, probe: Probe) -> Result<Self> {
        let mut log = String::new();
        for _ in 0..ports::ATTEMPTS {
            let mut proxy = Self::spawn(options)?;
            let Some(status) = proxy.wait_until(probe)? else {
                return Ok(proxy);
            };
            // There is nothing more to judge.
            proxy.log.expect(Level::Error, "");
            proxy.log.expect(Level::Warn, "");
            log = format!("{status}; its log:\n{}", proxy.log.text());
            if !ports::reports_address_in_use(&log) {
                break;
            }
        }
        bail!("the proxy ended while it started with {log}")
    }

    /// The proxy's process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The largest resident memory of the process so far, in KiB.
    pub fn peak_kib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .context("no VmHWM")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }

    /// Its configuration file, to change before a [`Proxy::signal`] of HUP.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.process.folder().join(CONFIG_FILE)
    }

    /// Runs another verb of the binary, such as `setup` or `check`, on the same configuration.
    pub fn run(&self, verb: &str) -> Result<Output> {
        self.run_with(verb, &[])
    }

    /// The same with options of the verb's own.
    pub fn run_with(&self, verb: &str, options: &[&str]) -> Result<Output> {
        Ok(command(&self.binary, verb, &self.config_file())
            .args(options)
            .output()?)
    }

    /// What the admin address answers to a GET of this path.
    pub fn admin_get(&self, path: &str) -> Result<Answer> {
        admin::request(self.addresses.admin, path, self.token.as_deref())
    }

    /// The same with another token, or with none.
    pub fn admin_get_as(&self, token: Option<&str>, path: &str) -> Result<Answer> {
        admin::request(self.addresses.admin, path, token)
    }

    /// The value of one series, named as `/metrics` prints it: `name{label="value"}`, labels in the order of
    /// their names.
    ///
    /// # Panics
    /// When there is no such series: all of them exist at zero.
    #[must_use]
    pub fn metric(&self, series: &str) -> f64 {
        let answer = self
            .admin_get("/metrics")
            .unwrap_or_else(|error| panic!("/metrics: {error:#}"));
        admin::series(&answer.body, series).unwrap_or_else(|| panic!("no series {series} in:\n{}", answer.body))
    }

    /// Expects a WARN or ERROR that the test provokes: a line of this level that contains `part`.
    pub fn expect_log(&self, level: Level, part: &str) {
        self.log.expect(level, part);
    }

    /// The lines logged so far.
    #[must_use]
    pub fn log(&self) -> Vec<Line> {
        self.log.lines()
    }

    /// Waits until a line contains `part`, for at most ten seconds.
    pub fn wait_for_log(&self, part: &str) -> Result<Line> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(line) = self.log.lines().into_iter().find(|line| line.text.contains(part)) {
                return Ok(line);
            }
            ensure!(
                Instant::now() < deadline,
                "no log line contains {part:?}:\n{}",
                self.log.text()
            );
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sends a signal other than those that end it.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Ends it as a power cut would. The log is still judged when the proxy is dropped, the exit is not.
    pub fn kill(&mut self) -> Result<()> {
        self.ended = true;
        self.process.signal(Signal::KILL)?;
        self.process.wait(STOP_LIMIT)?.context("the proxy survived SIGKILL")?;
        Ok(())
    }

    /// Ends it with SIGTERM and fails unless it exits with 0 in time. Dropping does this too.
    pub fn stop(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        self.process.signal(Signal::TERM)?;
        let status = self
            .process
            .wait(STOP_LIMIT)?
            .with_context(|| format!("the proxy still runs {STOP_LIMIT:?} after SIGTERM"))?;
        ensure!(status.success(), "the proxy ended with {status}:\n{}", self.log.text());
        Ok(())
    }

    /// Starts it again after [`Proxy::kill`] or [`Proxy::stop`], on its ports and with what its configuration
    /// file has by now, and waits until it is ready. The log is continued.
    pub fn restart(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let before = self.log().len();
            let (reader, writer) = std::io::pipe()?;
            let command = command(&self.binary, "serve", &self.config_file());
            self.process.start_again(&command, Stdio::from(writer))?;
            self.log.follow(reader);
            self.ended = false;
            let Some(status) = self.wait_until(READY)? else {
                return Ok(());
            };
            let lines = self.log().split_off(before);
            let text: String = lines.iter().map(|line| line.text.as_str()).collect();
            ensure!(
                ports::reports_address_in_use(&text) && Instant::now() < deadline,
                "the proxy ended while it started again with {status}; its log:\n{text}"
            );
            // Somebody's outgoing connection may have a port for a moment: that is none of the proxy's
            // faults.
            for line in &lines {
                self.log.expect(line.level, &line.text);
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn spawn(options: &ProxyOptions) -> Result<Self> {
        let binary = options.binary.clone().map_or_else(binary::find, Ok)?;
        let addresses = options.addresses()?;
        let folder = TempDir::with_prefix("mongoshape-proxy-")?;
        let file = folder.path().join(CONFIG_FILE);
        fs::write(&file, options.file(&addresses))?;
        let (reader, writer) = std::io::pipe()?;
        let command = command(&binary, "serve", &file);
        let process = Guarded::start(&command, folder, Stdio::from(writer))?;
        Ok(Self {
            process,
            log: log::Log::read(reader),
            addresses,
            binary,
            tls: options.tls.clone(),
            token: options.token.clone(),
            ended: false,
        })
    }

    /// Waits until a probe succeeds. Returns the status of a proxy that has ended.
    ///
    /// # Errors
    /// After [`START_LIMIT`].
    fn wait_until(&mut self, probe: Probe) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(status) = self.process.exited()? {
                self.ended = true;
                self.log.finish();
                return Ok(Some(status));
            }
            let answer = self.admin_get(probe.path);
            if answer.is_ok_and(|answer| answer.status == 200 && answer.body == probe.body) {
                if probe == READY {
                    // On a busy machine, the upstream may reply later than the proxy expects.
                    self.log.expect(Level::Warn, "the upstream is not available yet");
                }
                return Ok(None);
            }
            ensure!(
                Instant::now() < deadline,
                "{} does not succeed within {START_LIMIT:?}:\n{}",
                probe.path,
                self.log.text()
            );
            thread::sleep(POLL_INTERVAL);
        }
    }
}

const CONFIG_FILE: &str = "mongoshape.toml";

/// The proxy takes options from variables too: none of ours (`MONGOSHAPE_BINARY`) may be mistaken for one.
fn command(binary: &Path, verb: &str, file: &Path) -> Command {
    let mut command = Command::new(binary);
    command.arg(verb).arg("--config").arg(file);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MONGOSHAPE_") {
            command.env_remove(name);
        }
    }
    command
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let stopped = self.stop();
        // One that hangs is killed here, as otherwise its log would never end.
        let _ = self.process.signal(Signal::KILL);
        self.log.finish();
        let unlisted = self.log.unlisted();
        if thread::panicking() {
            eprintln_log(&self.log.text());
            return;
        }
        if let Err(error) = stopped {
            panic!("{error:#}");
        }
        assert!(
            unlisted.is_empty(),
            "the proxy logged what the test did not list:\n{}",
            unlisted.join("\n")
        );
    }
}

/// A failed test prints the proxy's log.
#[expect(
    clippy::print_stderr,
    reason = "the test's own output, which the test runner captures"
)]
fn eprintln_log(log: &str) {
    eprintln!("the proxy's log:\n{log}");
}
