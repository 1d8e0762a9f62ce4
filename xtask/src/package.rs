//! `package`: builds the Debian package of the release build, with completions and manual pages that the
//! binary generates. It installs, tries and removes the package in a separate folder.

mod installed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use proto_tests::paths;
use proto_tests::proxy::{Profile, build_binary};

use crate::tool::Tool;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Builds it, and leaves it at that
    #[arg(long)]
    no_install: bool,
}

const CARGO_DEB: Tool = Tool::new("cargo-deb", "cargo install cargo-deb --locked --root target/tools");
/// The files that shells look for, by the name of each.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "mongoshape"),
    ("zsh", "_mongoshape"),
    ("fish", "mongoshape.fish"),
];

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        std::env::var_os("MONGOSHAPE_BINARY").is_none(),
        "MONGOSHAPE_BINARY is set, but the package has the release build"
    );
    let binary = build_binary(Profile::Release)?;
    let folder = paths::target().join("package");
    describe(&binary, &folder)?;
    let package = build(&folder)?;
    println!("built {} ({} KiB)", package.display(), package.metadata()?.len() / 1024);
    if !options.no_install {
        installed::check(&package)?;
    }
    Ok(())
}

/// Completions and manual pages.
fn describe(binary: &Path, folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let completions = folder.join("completions");
    fs::create_dir_all(&completions)?;
    for (shell, file) in COMPLETIONS {
        fs::write(
            completions.join(file),
            output(Command::new(binary).args(["completions", shell]))?,
        )?;
    }
    output(Command::new(binary).arg("man").arg(folder.join("man")))?;
    Ok(())
}

fn build(folder: &Path) -> Result<PathBuf> {
    let Some(program) = CARGO_DEB.find() else {
        bail!("{} is missing: {}", CARGO_DEB.name, CARGO_DEB.install);
    };
    let package = folder.join("mongoshape.deb");
    // The profile has stripped the binary already.
    let arguments = [
        "--package",
        "mongoshape",
        "--no-build",
        "--no-strip",
        "--quiet",
        "--output",
    ];
    output(Command::new(program).args(arguments).arg(&package))?;
    Ok(package)
}

/// A program's standard output; an error with both outputs if it fails.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let ran = command
        .current_dir(paths::workspace())
        .output()
        .with_context(|| name.clone())?;
    let (stdout, stderr) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    ensure!(
        ran.status.success(),
        "{name} ended with {}:\n{stdout}{stderr}",
        ran.status
    );
    Ok(ran.stdout)
}
