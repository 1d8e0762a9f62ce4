//! The driver programs in Go, Java and Rust, built under the target directory.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{PROGRAMS, locked};
use crate::{cargo, commands, paths};

/// The script in Go.
pub fn go() -> Result<PathBuf> {
    go_program(".", "script")
}

/// The shop in Go.
pub fn go_shop() -> Result<PathBuf> {
    go_program("./orders", "orders")
}

/// The program in Go that writes to two collections at once.
pub fn go_bulk_write() -> Result<PathBuf> {
    go_program("./bulkwrite", "bulkwrite")
}

fn go_program(package: &str, name: &str) -> Result<PathBuf> {
    let folder = paths::target().join("drivers/go");
    let _lock = locked(&folder)?;
    let program = folder.join(name);
    let mut go = Command::new("go");
    go.current_dir(PROGRAMS.join("go"))
        .args(["build", "-o"])
        .arg(&program)
        .arg(package);
    commands::run(&mut go, "install Go 1.25 or later, or 1.21, which fetches it")?;
    Ok(program)
}

/// The class path of the script in Java.
pub fn java() -> Result<OsString> {
    maven("java")
}

/// The class path of the shop on Spring Data.
pub fn spring() -> Result<OsString> {
    maven("spring")
}

fn maven(project: &str) -> Result<OsString> {
    let folder = paths::target().join("drivers").join(project);
    let _lock = locked(&folder)?;
    let mut output = OsString::from("-Doutput=");
    output.push(&folder);
    let mut maven = Command::new("mvn");
    maven
        .current_dir(PROGRAMS.join(project))
        .args(["--quiet", "--batch-mode"])
        .arg(output)
        .arg("compile");
    commands::run(&mut maven, "install a JDK 17 or later and Maven")?;
    Ok(std::env::join_paths([
        folder.join("classes"),
        folder.join("dependencies/*"),
    ])?)
}

/// The program in Rust. Its workspace is not ours: see its manifest.
pub fn rust() -> Result<PathBuf> {
    let folder = paths::target().join("drivers/rust");
    let _lock = locked(&folder)?;
    let mut cargo = cargo::command();
    cargo
        .current_dir(PROGRAMS.join("rust"))
        .env("CARGO_TARGET_DIR", &folder)
        .args(["build", "--quiet", "--locked"]);
    commands::run(
        &mut cargo,
        "run `cargo build` in proto-tests/drivers/rust for its errors",
    )?;
    Ok(folder.join("debug/drivers"))
}
