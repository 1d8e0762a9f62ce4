//! Installs the Debian package below a folder as `dpkg` does, runs the installed files, and removes it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use super::architecture::Build;
use crate::tool::output;

/// The binary's path in packages and in the image.
pub(super) const BINARY: &str = "usr/bin/mongoshape";
const CONFIGURATION: &str = "etc/mongoshape/mongoshape.toml";
/// Files of both packages, where systemd and shells look for them.
pub(super) const FILES: [&str; 6] = [
    BINARY,
    CONFIGURATION,
    "usr/lib/systemd/system/mongoshape.service",
    "usr/share/bash-completion/completions/mongoshape",
    "usr/share/zsh/vendor-completions/_mongoshape",
    "usr/share/fish/vendor_completions.d/mongoshape.fish",
];
const FILES_OF_DEBIAN: [&str; 3] = [
    "usr/share/man/man1/mongoshape.1.gz",
    "usr/share/man/man1/mongoshape-serve.1.gz",
    "usr/share/doc/mongoshape/copyright",
];

pub(super) fn check(package: &Path, build: &Build) -> Result<()> {
    let root = Root::new()?;
    root.dpkg(&["--install"], &package.display().to_string())?;
    for file in FILES.iter().chain(&FILES_OF_DEBIAN) {
        ensure!(root.path(file).is_file(), "{} has no /{file}", package.display());
    }
    let installed = Build {
        architecture: build.architecture,
        binary: root.path(BINARY),
    };
    installed.check_version()?;
    root.accepts_its_configuration(&installed)?;

    // An administrator's file survives until it is purged.
    fs::write(root.path(CONFIGURATION), "# changed\n")?;
    root.dpkg(&["--remove"], "mongoshape")?;
    ensure!(
        !root.path(BINARY).exists() && root.path(CONFIGURATION).exists(),
        "--remove left the binary, or took the configuration"
    );
    root.dpkg(&["--purge"], "mongoshape")?;
    ensure!(!root.path(CONFIGURATION).exists(), "--purge left the configuration");
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
        command.args([
            "--force-not-root",
            "--force-depends",
            "--force-architecture",
            "--force-script-chrootless",
        ]);
        output(command.args(action).arg(subject))?;
        Ok(())
    }

    fn accepts_its_configuration(&self, installed: &Build) -> Result<()> {
        let mut check = installed.command()?;
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
