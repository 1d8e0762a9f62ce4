//! Installs the package below a folder as `dpkg` does, runs the installed files, and removes it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use super::output;

const BINARY: &str = "usr/bin/mongoshape";
const CONFIGURATION: &str = "etc/mongoshape/mongoshape.toml";
/// Where systemd, shells and `man` look.
const BROUGHT: [&str; 9] = [
    BINARY,
    CONFIGURATION,
    "usr/lib/systemd/system/mongoshape.service",
    "usr/share/man/man1/mongoshape.1.gz",
    "usr/share/man/man1/mongoshape-serve.1.gz",
    "usr/share/bash-completion/completions/mongoshape",
    "usr/share/zsh/vendor-completions/_mongoshape",
    "usr/share/fish/vendor_completions.d/mongoshape.fish",
    "usr/share/doc/mongoshape/copyright",
];

pub(super) fn check(package: &Path) -> Result<()> {
    let root = Root::new()?;
    root.dpkg(&["--install"], &package.display().to_string())?;
    for file in BROUGHT {
        ensure!(root.path(file).is_file(), "the package brings no /{file}");
    }
    let version = output(Command::new(root.path(BINARY)).arg("--version"))?;
    ensure!(
        String::from_utf8_lossy(&version).trim() == concat!("mongoshape ", env!("CARGO_PKG_VERSION")),
        "what is installed is not this version"
    );
    root.takes_its_configuration()?;
    println!(
        "installed below a folder: {} files are where they belong, the binary runs and takes its configuration",
        BROUGHT.len()
    );

    // An administrator's file survives until it is purged.
    fs::write(root.path(CONFIGURATION), "# changed\n")?;
    root.dpkg(&["--remove"], "mongoshape")?;
    ensure!(
        !root.path(BINARY).exists() && root.path(CONFIGURATION).exists(),
        "--remove left the binary, or took the configuration"
    );
    root.dpkg(&["--purge"], "mongoshape")?;
    ensure!(!root.path(CONFIGURATION).exists(), "--purge left the configuration");
    println!("removed and purged: nothing is left");
    Ok(())
}

/// A system of its own for `dpkg`.
struct Root(TempDir);

impl Root {
    fn new() -> Result<Self> {
        let root = Self(TempDir::with_prefix("mongoshape-root-")?);
        for folder in [
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "var/lib/dpkg/triggers",
            "var/log",
        ] {
            fs::create_dir_all(root.path(folder))?;
        }
        fs::write(root.path("var/lib/dpkg/status"), "")?;
        // The scripts run it before they start or stop a service: that would be one of this machine.
        let policy = root.path("usr/sbin/policy-rc.d");
        fs::create_dir_all(root.path("usr/sbin"))?;
        fs::write(&policy, "#!/bin/sh\nexit 101\n")?;
        fs::set_permissions(&policy, fs::Permissions::from_mode(0o755))?;
        Ok(root)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// The folder has neither the package's dependencies nor a shell. So its scripts run outside, and get the
    /// folder as an argument.
    fn dpkg(&self, action: &[&str], subject: &str) -> Result<()> {
        let mut command = Command::new("dpkg");
        command.arg("--root").arg(self.0.path());
        command.arg("--log").arg(self.path("var/log/dpkg.log"));
        command.args(["--force-not-root", "--force-depends", "--force-script-chrootless"]);
        output(command.args(action).arg(subject))?;
        Ok(())
    }

    fn takes_its_configuration(&self) -> Result<()> {
        let mut check = Command::new(self.path(BINARY));
        check.arg("check").arg("--config").arg(self.path(CONFIGURATION));
        // Only whether it is read: there is no server.
        check.env("MONGOSHAPE_UPSTREAM_URI", "mongodb://127.0.0.1:1/");
        check.env("MONGOSHAPE_UPSTREAM_CONNECT_TIMEOUT_MS", "100");
        let output = check.output()?.stdout;
        let output = String::from_utf8_lossy(&output);
        ensure!(
            output.contains("ok: configuration: no errors"),
            "its configuration has mistakes:\n{output}"
        );
        Ok(())
    }
}
