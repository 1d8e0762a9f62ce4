//! The applications of `examples/`, copied and built below the target directory, in the way that their READMEs say.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::node::runtime;
use super::{once, pip};
use crate::{commands, paths};

/// What a reader's own build leaves in an example.
const BUILT: [&str; 5] = [".venv", "__pycache__", "node_modules", "service", "target"];

/// The shop on Express.
pub fn node_example() -> Result<Command> {
    let node = runtime()?;
    let folder = built("express-mongoose-shop", |folder| node.install(folder))?;
    Ok(node.run(&folder.join("server.js")))
}

/// The service on `FastAPI`.
pub fn python_example() -> Result<Command> {
    let folder = built("fastapi-beanie-service", |folder| {
        let requirements = folder.join("requirements.txt");
        pip(
            &folder.join("modules"),
            &[OsStr::new("--requirement"), requirements.as_os_str()],
        )
    })?;
    let mut command = Command::new("python3");
    command
        .env("PYTHONPATH", folder.join("modules"))
        .arg(folder.join("main.py"));
    Ok(command)
}

/// The service in Go.
pub fn go_example() -> Result<Command> {
    let folder = built("go-service", |folder| {
        let mut go = Command::new("go");
        go.current_dir(folder).args(["build", "-o", "service", "."]);
        commands::run(&mut go, "install Go 1.25 or later, or 1.21, which fetches it").map(drop)
    })?;
    Ok(Command::new(folder.join("service")))
}

/// The service on Spring Boot.
pub fn spring_example() -> Result<Command> {
    let folder = built("spring-boot-service", |folder| {
        let mut maven = Command::new("mvn");
        maven.current_dir(folder).args(["--quiet", "--batch-mode", "package"]);
        commands::run(&mut maven, "install a JDK 17 or later and Maven").map(drop)
    })?;
    let mut command = Command::new("java");
    // It starts in half the time if the JVM does not optimise for hours of work.
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar"]);
    command.arg(folder.join("target/chat.jar"));
    Ok(command)
}

/// Copies an example and builds the copy, unless it was done for these very files. Returns the copy's folder.
fn built(name: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let example = paths::workspace().join("examples").join(name);
    let copy = paths::target().join("examples").join(name);
    let mut files = Vec::new();
    files_below(&example, &mut files)?;
    files.sort();
    let mut contents = Vec::new();
    for file in &files {
        contents.extend(file.as_os_str().as_encoded_bytes());
        contents.extend(fs::read(file)?);
    }
    once(&copy, &contents, || {
        fs::remove_dir_all(&copy)?;
        for file in &files {
            let to = copy.join(file.strip_prefix(&example)?);
            fs::create_dir_all(to.parent().context("a folder")?)?;
            fs::copy(file, to)?;
        }
        build(&copy)
    })?;
    Ok(copy)
}

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if BUILT.iter().any(|built| entry.file_name() == *built) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            files_below(&entry.path(), found)?;
        } else {
            found.push(entry.path());
        }
    }
    Ok(())
}
