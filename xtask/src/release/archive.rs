//! The archive of an architecture: the binary, an example of its configuration, completions and manual pages.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use proto_tests::paths;
use tempfile::TempDir;

use super::architecture::Build;
use super::{Release, VERSION};
use crate::tool::output;

/// Files of the checkout.
const FILES: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE", "config/mongoshape.toml"];

pub(super) fn create(release: &Release, build: &Build) -> Result<()> {
    let name = format!("mongoshape-{VERSION}-{}-linux", build.architecture.name());
    let root = TempDir::with_prefix("mongoshape-archive-")?;
    let content = root.path().join(&name);
    fs::create_dir(&content)?;
    copy(&build.binary, &content, 0o755)?;
    for file in FILES {
        copy(&paths::workspace().join(file), &content, 0o644)?;
    }
    for folder in ["completions", "man"] {
        let target = content.join(folder);
        fs::create_dir(&target)?;
        for entry in fs::read_dir(release.parts.join(folder))? {
            copy(&entry?.path(), &target, 0o644)?;
        }
    }
    let archive = release.artefact(&format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    // Equal files give equal bytes, independent of the user and the time.
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{}", release.time));
    tar.args(["--use-compress-program=gzip --no-name", "--create", "--file"]);
    output(tar.arg(&archive).arg("--directory").arg(root.path()).arg(&name))?;
    check(&archive, &name, build)
}

fn copy(file: &Path, folder: &Path, mode: u32) -> Result<()> {
    let copy = folder.join(file.file_name().context("a file without a name")?);
    fs::copy(file, &copy).with_context(|| file.display().to_string())?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Unpacks it and starts the binary.
fn check(archive: &Path, name: &str, build: &Build) -> Result<()> {
    let root = TempDir::with_prefix("mongoshape-archive-")?;
    unpack(archive, root.path())?;
    let unpacked = Build {
        architecture: build.architecture,
        binary: root.path().join(name).join("mongoshape"),
    };
    unpacked.check_version()?;
    ensure!(
        root.path().join(name).join("man/mongoshape.1").is_file(),
        "{} has no manual page",
        archive.display()
    );
    Ok(())
}

/// Unpacks an archive of `tar` into a folder.
pub(super) fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--file"]).arg(archive);
    output(tar.arg("--directory").arg(folder)).map(drop)
}
