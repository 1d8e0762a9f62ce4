//! `release`: builds and checks the artefacts of a version, in `target/release-VERSION`:
//!
//! - for each architecture an archive, a Debian package and an RPM package, with a static binary;
//! - an OCI image for all architectures, for registries, and an archive of each for `docker load`;
//! - the bill of materials, the notes of the version, and the checksums of all these files.
//!
//! Without `--dry-run`, it also creates the tag of the version. A workflow publishes the artefacts of a tag.

mod architecture;
mod archive;
mod image;
mod installed;
mod lint;
mod notes;
mod packages;
mod repository;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use proto_tests::paths;

use crate::tool::{Tool, output};
use architecture::{Architecture, Build};

/// The version of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// As in `Cargo.toml`.
const MAINTAINER: &str = "The mongoshape maintainers <maintainers@mongoshape.invalid>";

const CYCLONEDX: Tool = Tool::new(
    "cargo-cyclonedx",
    "cargo install cargo-cyclonedx --locked --root target/tools",
);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Builds and checks the artefacts of this checkout, and creates no tag
    #[arg(long)]
    dry_run: bool,
    /// Builds for these architectures only
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["x86_64", "aarch64"])]
    architectures: Vec<Architecture>,
}

/// What all artefacts are made of.
pub(super) struct Release {
    /// The folder of the artefacts.
    folder: PathBuf,
    /// Completions, manual pages and the context of the image.
    parts: PathBuf,
    /// The time of the commit, in seconds since 1970. All artefacts have it, so equal commits give equal artefacts.
    time: String,
    revision: String,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let notes = notes::of_version(&repository::read("CHANGELOG.md")?, VERSION, options.dry_run)?;
    if !options.dry_run {
        repository::check_is_clean()?;
        repository::check_is_new(VERSION)?;
    }
    let release = Release::new()?;
    let builds = options
        .architectures
        .iter()
        .map(|architecture| architecture.build(&release));
    let builds: Vec<Build> = builds.collect::<Result<_>>()?;
    let first = builds.first().context("no architecture")?;
    release.describe(first)?;
    for build in &builds {
        archive::create(&release, build)?;
        packages::create(&release, build)?;
    }
    image::create(&release, &builds)?;
    release.create_bill_of_materials()?;
    fs::write(release.artefact("notes.md"), notes)?;
    release.create_checksums()?;
    if !options.dry_run {
        repository::tag(VERSION)?;
    }
    Ok(())
}

impl Release {
    fn new() -> Result<Self> {
        let folder = paths::target().join(format!("release-{VERSION}"));
        let parts = paths::target().join("package");
        for folder in [&folder, &parts] {
            if folder.exists() {
                fs::remove_dir_all(folder)?;
            }
            fs::create_dir_all(folder)?;
        }
        Ok(Self {
            folder,
            parts,
            time: repository::git(&["log", "-1", "--format=%ct"])?,
            revision: repository::git(&["rev-parse", "HEAD"])?,
        })
    }

    /// The path of an artefact.
    fn artefact(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes the completions and the manual pages, which the binary prints, and the changelog that Debian wants
    /// of a package.
    fn describe(&self, build: &Build) -> Result<()> {
        let completions = self.parts.join("completions");
        fs::create_dir_all(&completions)?;
        // The names that shells look for.
        for (shell, file) in [
            ("bash", "mongoshape"),
            ("zsh", "_mongoshape"),
            ("fish", "mongoshape.fish"),
        ] {
            let text = output(build.command()?.args(["completions", shell]))?;
            fs::write(completions.join(file), text)?;
        }
        let pages = self.parts.join("man");
        output(build.command()?.arg("man").arg(&pages))?;
        let compressed = self.parts.join("compressed");
        fs::create_dir(&compressed)?;
        for page in fs::read_dir(&pages)? {
            let page = page?;
            let bytes = output(
                Command::new("gzip")
                    .args(["-9", "--no-name", "--stdout"])
                    .arg(page.path()),
            )?;
            fs::write(compressed.join(page.file_name()).with_extension("1.gz"), bytes)?;
        }
        fs::write(self.parts.join("debian-changelog"), self.debian_changelog()?)?;
        Ok(())
    }

    /// The entry of this version in Debian's form. The changes are in `CHANGELOG.md`, which the package contains.
    fn debian_changelog(&self) -> Result<String> {
        let mut date = Command::new("date");
        let date = output(
            date.args(["--utc", "--rfc-email", "--date"])
                .arg(format!("@{}", self.time)),
        )?;
        Ok(format!(
            "mongoshape ({VERSION}-1) stable; urgency=medium\n\n  * New version: see changelog.gz.\n\n -- {MAINTAINER}  {}",
            String::from_utf8_lossy(&date)
        ))
    }

    fn create_bill_of_materials(&self) -> Result<()> {
        let arguments = [
            "cyclonedx",
            "--format",
            "json",
            "--describe",
            "binaries",
            "--target",
            "all",
        ];
        let mut cyclonedx = Command::new(CYCLONEDX.program()?);
        output(cyclonedx.args(arguments).env("SOURCE_DATE_EPOCH", &self.time))?;
        let made = paths::workspace().join("mongoshape_bin.cdx.json");
        let bill = fs::read_to_string(&made);
        let bill = bill.with_context(|| format!("cargo-cyclonedx has not written {}", made.display()))?;
        fs::remove_file(&made)?;
        // The references of the workspace's packages contain the path of this checkout.
        let checkout = paths::workspace().to_string_lossy().into_owned();
        let bill = bill
            .replace(&format!("{checkout}#"), "mongoshape#")
            .replace(&checkout, "");
        fs::write(self.artefact(&format!("mongoshape-{VERSION}.cdx.json")), bill)?;
        // It describes the other packages of the workspace, too.
        for package in ["fuzz", "proto-tests", "xtask"] {
            for entry in fs::read_dir(paths::workspace().join(package))? {
                let path = entry?.path();
                if path.to_string_lossy().ends_with(".cdx.json") {
                    fs::remove_file(path)?;
                }
            }
        }
        Ok(())
    }

    /// Writes `SHA256SUMS`, which `sha256sum --check` reads.
    fn create_checksums(&self) -> Result<()> {
        let mut names: Vec<_> = fs::read_dir(&self.folder)?
            .map(|entry| Ok(entry?.file_name()))
            .collect::<Result<_>>()?;
        names.sort();
        let mut sum = Command::new("sha256sum");
        let sums = output(sum.arg("--").args(&names).current_dir(&self.folder))?;
        fs::write(self.artefact("SHA256SUMS"), sums)?;
        for name in names {
            report(&self.artefact(&name.to_string_lossy()))?;
        }
        Ok(())
    }
}

fn report(artefact: &Path) -> Result<()> {
    let size = artefact.metadata()?.len() / 1024;
    ensure!(
        size > 0 || artefact.extension().is_some_and(|kind| kind == "md"),
        "{} is empty",
        artefact.display()
    );
    println!("{} ({size} KiB)", artefact.display());
    Ok(())
}
