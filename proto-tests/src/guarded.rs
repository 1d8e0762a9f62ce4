//! A server process that cannot outlive its owner.
//!
//! A short `sh` script between this process and the server waits on a pipe that this process holds open. The
//! kernel closes the pipe when this process ends, by return, panic or SIGKILL. Then the script kills the
//! server, reaps it and removes its folder.
//!
//! Linux's parent-death signal is no alternative: it fires when the *thread* that started the server ends,
//! and a test's thread ends before the test process.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// `$1` is the folder to remove, the rest is the server's command line. Our pipe is descriptor 3, because a
/// background job's own input is /dev/null; descriptor 4 is the log, so that no output of `sh` itself is
/// in it.
///
/// `trap "" TERM` closes a race: once the pipe is gone, the watcher must end with 0, which is the sign to
/// remove the folder.
const SCRIPT: &str = r#"
folder=$1; shift
exec 3<&0 4>&2 2>/dev/null
"$@" </dev/null >&4 2>&4 3<&- 4>&- &
server=$!
exec 4>&-
echo "$server"
( read -r _ <&3; trap "" TERM; kill -KILL "$server" ) >/dev/null &
watcher=$!
wait "$server"; code=$?
kill "$watcher"
if wait "$watcher"; then rm -rf "$folder"; fi
exit "$code"
"#;

/// A running server, its folder, and the watcher that ends both with us.
#[derive(Debug)]
pub struct Guarded {
    shell: Child,
    server: Pid,
    folder: PathBuf,
}

impl Guarded {
    /// Starts `command` (program and arguments) with both its outputs going to `log`, and takes `folder`
    /// over.
    ///
    /// The server gets a process group of its own: Ctrl-C in a terminal reaches us, and through us the
    /// server.
    pub fn start(command: &Command, folder: TempDir, log: Stdio) -> Result<Self> {
        let folder = folder.keep();
        let (shell, server) = launch(command, &folder, log)?;
        Ok(Self { shell, server, folder })
    }

    /// Starts `command` in the place of a server that has ended, on the same folder.
    pub fn start_again(&mut self, command: &Command, log: Stdio) -> Result<()> {
        ensure!(self.exited()?.is_some(), "the server still runs");
        (self.shell, self.server) = launch(command, &self.folder, log)?;
        Ok(())
    }

    /// The server's process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.server.as_raw_pid().unsigned_abs()
    }

    /// The folder, which stays when the server ends by itself, and is removed with its guard.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What remains of the server's log or any other file of its folder; empty when there is none.
    #[must_use]
    pub fn read(&self, file: &str) -> String {
        std::fs::read(self.folder.join(file))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// How the server ended, if it did; a signal shows as 128 and its number, as in a shell.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.shell.try_wait()?)
    }

    /// Sends a signal, if the server still runs.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.exited()?.is_some() {
            return Ok(());
        }
        match kill_process(self.server, signal) {
            // The shell has reaped it and is about to end itself.
            Err(Errno::SRCH) => Ok(()),
            sent => Ok(sent?),
        }
    }

    /// Waits until the server has ended, at most for `limit`. `None`: it still runs.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            let status = self.exited()?;
            if status.is_some() || Instant::now() > deadline {
                return Ok(status);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

fn launch(command: &Command, folder: &Path, log: Stdio) -> Result<(Child, Pid)> {
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg(SCRIPT)
        .arg("guarded")
        .arg(folder)
        .arg(command.get_program())
        .args(command.get_args());
    shell
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0);
    if let Some(folder) = command.get_current_dir() {
        shell.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let mut shell = shell.spawn().context("cannot start `sh`")?;
    match server_id(&mut shell).context("`sh` did not start the server") {
        Ok(server) => Ok((shell, server)),
        Err(error) => {
            drop(shell.stdin.take());
            let _ = shell.wait();
            Err(error)
        }
    }
}

/// How often a starting or ending process is looked at.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);

fn server_id(shell: &mut Child) -> Result<Pid> {
    let output = shell.stdout.take().context("no pipe")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    Pid::from_raw(line.trim().parse()?).context("no process id")
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
        // The shell has removed it, unless the server ended by itself before.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
