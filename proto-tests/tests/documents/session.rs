//! The session of one document: a folder, a mongod, the proxy, and the shell.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, anyhow, bail, ensure};
use proto_tests::guarded::Guarded;
use proto_tests::proxy::find_binary;
use proto_tests::raw::Connection;
use proto_tests::{Mongod, install, ports};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::blocks::{Block, Kind};
use crate::{not_run, output, programs};

const START_LIMIT: Duration = Duration::from_secs(30);
const CONFIG_FILE: &str = "mongoshape.toml";
const LOG_FILE: &str = "serve.log";
/// What a configuration needs that a document shows a part of.
const ADDRESSES: &str = "[listen]\naddress = \"127.0.0.1:27018\"\n[upstream]\nuri = \"mongodb://127.0.0.1:27017\"\n";

/// A document whose commands are run.
#[derive(Debug)]
pub(crate) struct Session {
    path: String,
    folder: TempDir,
    mongod: Mongod,
    proxy: SocketAddr,
    admin: SocketAddr,
    served: Option<Guarded>,
    /// The connection string of the shell that is open.
    shell: Option<String>,
    /// What the block before printed. `None` where it was not run, or was no command.
    printed: Option<String>,
    /// How the block before failed: the document has to show that.
    failed: Option<Error>,
}

impl Session {
    pub(crate) fn start(path: &str) -> Result<Self> {
        let folder = TempDir::with_prefix("mongoshape-document-")?;
        programs::install(&folder.path().join("bin"))?;
        Ok(Self {
            path: path.to_owned(),
            folder,
            mongod: Mongod::standalone()?,
            proxy: ports::free_address()?,
            admin: ports::free_address()?,
            served: None,
            shell: None,
            printed: None,
            failed: None,
        })
    }

    /// (as the document has it, as it is here).
    fn addresses(&self) -> [(&'static str, String); 3] {
        [
            ("127.0.0.1:27017", self.mongod.address().to_string()),
            ("127.0.0.1:27018", self.proxy.to_string()),
            ("127.0.0.1:9216", self.admin.to_string()),
        ]
    }

    /// A connection to mongod itself.
    pub(crate) fn direct(&self) -> Result<Connection> {
        Connection::open(self.mongod.address())
    }

    /// A connection through the proxy that is served.
    pub(crate) fn proxied(&self) -> Result<Connection> {
        Connection::open(self.proxy)
    }

    /// Goes through the next block.
    pub(crate) fn block(&mut self, block: &Block) -> Result<()> {
        if block.kind != Kind::Text {
            self.failed.take().map_or(Ok(()), Err)?;
        }
        if not_run::is_all_named(&self.path, block) {
            self.printed = None;
            return Ok(());
        }
        let text = self.here(&block.text);
        self.printed = match block.kind {
            Kind::Sh => {
                let mut printed = String::new();
                for command in block.parts() {
                    self.failed.take().map_or(Ok(()), Err)?;
                    if !not_run::is_named(&self.path, &command) {
                        printed += &self.command(&command).context(command)?;
                    }
                }
                Some(printed)
            }
            Kind::Js => Some(self.typed(&text)?),
            Kind::Toml => {
                self.configure(&text)?;
                None
            }
            Kind::Text => {
                let printed = self.printed.take();
                let printed =
                    printed.context("is behind no block that prints something, and not named in not_run.rs")?;
                output::compare(&block.text, &printed)?;
                self.failed = None;
                None
            }
            Kind::Other => bail!("is of a language that is not run here, and not named in not_run.rs"),
        };
        Ok(())
    }

    /// Ends what it has started; the proxy's end is judged.
    pub(crate) fn end(mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)?;
        self.stop()
    }

    /// A text of the document, with our addresses for its own.
    fn here(&self, text: &str) -> String {
        let addresses = self.addresses().into_iter();
        addresses.fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, &ours))
    }

    /// What was printed, with the document's addresses for ours.
    fn there(&self, text: &str) -> String {
        let addresses = self.addresses().into_iter();
        addresses.fold(text.to_owned(), |text, (theirs, ours)| text.replace(&ours, theirs))
    }

    fn command(&mut self, command: &str) -> Result<String> {
        let here = self.here(command);
        if let Some(uri) = opened_shell(&here) {
            self.shell = Some(uri);
            return Ok(String::new());
        }
        let printed = if here.starts_with("mongoshape serve") {
            self.serve(&here)?
        } else {
            let output = self.shell_of(&format!("exec 2>&1; {here}")).output()?;
            let printed = self.there(&String::from_utf8_lossy(&output.stdout));
            if !output.status.success() {
                self.failed = Some(anyhow!("{command} ended with {}:\n{printed}", output.status));
            }
            printed
        };
        // Of a configuration that a command has written.
        if let Ok(written) = fs::read_to_string(self.folder.path().join(CONFIG_FILE)) {
            self.write_config(&written)?;
        }
        Ok(self.there(&printed))
    }

    /// Our own ports replace those in the document's configuration, but for the admin address, which has a
    /// default.
    fn shell_of(&self, script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("cd \"$0\" && {{ {script}\n}}")])
            .arg(self.folder.path());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("MONGOSHAPE_") {
                shell.env_remove(name);
            }
        }
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{}/bin:{path}", self.folder.path().display()));
        shell.env("MONGOSHAPE_ADMIN_ADDRESS", self.admin.to_string());
        shell
    }

    /// Evaluates commands in the shell, and returns its output of the last one.
    fn typed(&self, words: &str) -> Result<String> {
        let uri = self.shell.as_deref().context("no `mongosh` was opened before")?;
        let printed = install::node()?.mongosh(uri).args(["--eval", words]).output()?;
        Ok(self.there(&succeeded(&printed)?))
    }

    fn configure(&self, toml: &str) -> Result<()> {
        let toml = if toml.contains("[upstream]") {
            toml.to_owned()
        } else {
            format!("{}{toml}", self.here(ADDRESSES))
        };
        self.write_config(&toml)?;
        let checked = self
            .shell_of(&format!("mongoshape check --config {CONFIG_FILE} 2>&1"))
            .output()?;
        let printed = String::from_utf8_lossy(&checked.stdout);
        ensure!(printed.contains("ok: configuration"), "{printed}");
        Ok(())
    }

    fn write_config(&self, toml: &str) -> Result<()> {
        Ok(fs::write(self.folder.path().join(CONFIG_FILE), self.here(toml))?)
    }

    /// Starts the proxy anew, and waits until it is ready.
    fn serve(&mut self, command: &str) -> Result<String> {
        self.stop()?;
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let log = self.folder.path().join(LOG_FILE);
            let start = self.shell_of(&format!("exec {command}"));
            let serving = Guarded::start(&start, TempDir::new()?, Stdio::from(fs::File::create(&log)?))?;
            self.served = Some(serving);
            while !self.has_ended()? {
                if self.is_ready()? {
                    return Ok(fs::read_to_string(&log)?);
                }
                ensure!(
                    Instant::now() < deadline,
                    "it is not ready: {}",
                    fs::read_to_string(&log)?
                );
                thread::sleep(Duration::from_millis(20));
            }
            self.served = None;
            let printed = fs::read_to_string(&log)?;
            // Somebody's outgoing connection may have a port for a moment: that is none of the document's
            // faults.
            let is_taken = printed.contains("Address already in use");
            ensure!(is_taken && Instant::now() < deadline, "it ended: {printed}");
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn has_ended(&mut self) -> Result<bool> {
        let ended = self.served.as_mut().map(Guarded::exited).transpose()?;
        Ok(ended.flatten().is_some())
    }

    fn is_ready(&self) -> Result<bool> {
        let address = self.admin.to_string();
        let mut health = Command::new(find_binary()?);
        Ok(health
            .args(["health", "--address", &address])
            .output()?
            .status
            .success())
    }

    fn stop(&mut self) -> Result<()> {
        let Some(mut served) = self.served.take() else {
            return Ok(());
        };
        served.signal(Signal::TERM)?;
        let status = served.wait(START_LIMIT)?.context("the proxy does not end")?;
        let log = fs::read_to_string(self.folder.path().join(LOG_FILE))?;
        ensure!(
            status.success() && !log.contains("ERROR"),
            "the proxy ended with {status}:\n{log}"
        );
        Ok(())
    }
}

/// The connection string of a `mongosh` that is to stay open.
fn opened_shell(command: &str) -> Option<String> {
    let mut words = command.split_whitespace().filter(|word| !word.starts_with('#'));
    if words.next()? != "mongosh" || command.contains(" --") {
        return None;
    }
    Some(words.next()?.trim_matches('"').to_owned())
}

/// What a program printed that has succeeded.
fn succeeded(output: &Output) -> Result<String> {
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "ended with {}:\n{printed}{errors}",
        output.status
    );
    Ok(printed)
}
