//! The architectures of the binaries, and how each is built and started.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use proto_tests::{cargo, paths};

use super::{Release, VERSION};
use crate::tool::{PYTHON_REQUIREMENTS, Tool, output};

/// Links static binaries with musl for both architectures, and compiles C code for them.
const ZIGBUILD: Tool = Tool::new("cargo-zigbuild", PYTHON_REQUIREMENTS);
const EMULATOR: &str = "apt-get install qemu-user-static";
const QEMU_X86_64: Tool = Tool::new("qemu-x86_64-static", EMULATOR);
const QEMU_AARCH64: Tool = Tool::new("qemu-aarch64-static", EMULATOR);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Architecture {
    #[value(name = "x86_64")]
    X86_64,
    Aarch64,
}

/// The binary of an architecture.
#[derive(Debug)]
pub(super) struct Build {
    pub(super) architecture: Architecture,
    pub(super) binary: PathBuf,
}

impl Architecture {
    /// The kernel's name, which archives and RPM packages have.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The name of Debian packages and of images.
    pub(super) fn debian_name(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The target of the compiler.
    pub(super) fn target(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-musl",
            Self::Aarch64 => "aarch64-unknown-linux-musl",
        }
    }

    /// The emulator; `None` if this machine has the architecture.
    pub(super) fn emulator(self) -> Option<&'static Tool> {
        let emulator = match self {
            Self::X86_64 => &QEMU_X86_64,
            Self::Aarch64 => &QEMU_AARCH64,
        };
        (self.name() != std::env::consts::ARCH).then_some(emulator)
    }

    /// Builds the binary. Takes about ten minutes of two processors.
    pub(super) fn build(self, release: &Release) -> Result<Build> {
        let target = self.target();
        let mut rustc = Command::new("rustc");
        let library = output(rustc.args(["--print", "target-libdir", "--target", target]))?;
        let library = String::from_utf8_lossy(&library);
        ensure!(
            PathBuf::from(library.trim()).is_dir(),
            "the standard library for {target} is missing: rustup target add {target}"
        );
        let zigbuild = ZIGBUILD.program()?;
        println!("building for {target}");
        let mut build = cargo::in_workspace(&zigbuild);
        build.args([
            "zigbuild",
            "--release",
            "--locked",
            "--package",
            "mongoshape",
            "--bin",
            "mongoshape",
        ]);
        build
            .args(["--target", target])
            .arg("--target-dir")
            .arg(paths::target());
        // cargo-zigbuild starts the `ziglang` of the first `python3`.
        build.env("PATH", path_beginning_with(&zigbuild)?);
        build.env("SOURCE_DATE_EPOCH", &release.time);
        build.env("RUSTFLAGS", without_local_paths()?);
        ensure!(build.status()?.success(), "the binary for {target} could not be built");
        Ok(Build {
            architecture: self,
            binary: paths::target().join(target).join("release/mongoshape"),
        })
    }
}

impl Build {
    /// A command that starts the binary, in an emulator if need be.
    pub(super) fn command(&self) -> Result<Command> {
        let Some(emulator) = self.architecture.emulator() else {
            return Ok(Command::new(&self.binary));
        };
        let mut command = Command::new(emulator.program()?);
        command.arg(&self.binary);
        Ok(command)
    }

    /// Starts the binary, and checks that it is of this version.
    pub(super) fn check_version(&self) -> Result<()> {
        let printed = output(self.command()?.arg("--version"))?;
        let printed = String::from_utf8_lossy(&printed);
        ensure!(
            printed.trim() == format!("mongoshape {VERSION}"),
            "{} prints {printed} as its version",
            self.binary.display()
        );
        Ok(())
    }
}

/// Flags that keep paths of this machine out of the messages of panics.
fn without_local_paths() -> Result<String> {
    let registry = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let registry = registry.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let registry = registry.context("neither CARGO_HOME nor a home directory is known")?;
    let remapped = [(registry.as_path(), "/cargo"), (paths::workspace(), "/mongoshape")];
    let flags = remapped.map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
    Ok(flags.join(" "))
}

fn path_beginning_with(program: &std::path::Path) -> Result<std::ffi::OsString> {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let folders = program.parent().map(PathBuf::from).into_iter();
    Ok(std::env::join_paths(folders.chain(std::env::split_paths(&rest)))?)
}
