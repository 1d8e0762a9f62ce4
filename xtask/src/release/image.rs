//! The OCI image for the architectures that are built, and an archive of each for `docker load`. `buildah` builds it by
//! the `Dockerfile`, without a daemon.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use proto_tests::paths;
use tempfile::TempDir;

use super::architecture::Build;
use super::archive::unpack;
use super::installed::BINARY;
use super::{Release, VERSION};
use crate::tool::{Tool, output};

const BUILDAH: Tool = Tool::new("buildah", "apt-get install buildah");
const SKOPEO: Tool = Tool::new("skopeo", "apt-get install skopeo");

pub(super) fn create(release: &Release, builds: &[Build]) -> Result<()> {
    let context = release.parts.join("image");
    for build in builds {
        let binary = context.join(build.architecture.debian_name()).join(BINARY);
        fs::create_dir_all(binary.parent().context("a path with folders")?)?;
        fs::copy(&build.binary, &binary)?;
    }
    let name = format!("mongoshape:{VERSION}");
    let image = release.artefact(&format!("mongoshape-{VERSION}-image.tar"));
    let store = Store::new()?;
    let platforms = builds
        .iter()
        .map(|build| format!("linux/{}", build.architecture.debian_name()));
    let mut command = store.buildah(&["build", "--format", "oci", "--timestamp", &release.time])?;
    command.args([
        "--platform",
        &platforms.collect::<Vec<_>>().join(","),
        "--manifest",
        &name,
    ]);
    command.args(["--build-arg", &format!("VERSION={VERSION}")]);
    command.args(["--build-arg", &format!("REVISION={}", release.revision)]);
    command.arg("--file").arg(paths::workspace().join("Dockerfile"));
    output(command.arg(&context))?;
    let mut push = store.buildah(&["manifest", "push", "--all", &name])?;
    output(push.arg(format!("oci-archive:{}:{VERSION}", image.display())))?;
    for build in builds {
        check(&image, build)?;
        create_docker_archive(release, &image, build)?;
    }
    Ok(())
}

/// Copies the image of one architecture to an archive that `docker load` of any version accepts, with the image's name.
fn create_docker_archive(release: &Release, image: &Path, build: &Build) -> Result<()> {
    let architecture = build.architecture.debian_name();
    let archive = release.artefact(&format!("mongoshape-{VERSION}-docker-{architecture}.tar"));
    let mut copy = skopeo_for(build)?;
    copy.arg(format!("oci-archive:{}:{VERSION}", image.display()));
    copy.arg(format!("docker-archive:{}:mongoshape:{VERSION}", archive.display()));
    output(&mut copy).map(drop)
}

/// `skopeo copy` of the image of one architecture.
fn skopeo_for(build: &Build) -> Result<Command> {
    let mut copy = Command::new(SKOPEO.program()?);
    copy.args(["--insecure-policy", "--override-os", "linux", "--override-arch"]);
    copy.arg(build.architecture.debian_name()).arg("copy");
    Ok(copy)
}

/// Unpacks the image of one architecture, and starts its binary.
fn check(image: &Path, build: &Build) -> Result<()> {
    let root = TempDir::with_prefix("mongoshape-image-")?;
    let parts = root.path().join("parts");
    let mut copy = skopeo_for(build)?;
    copy.arg(format!("oci-archive:{}:{VERSION}", image.display()));
    output(copy.arg(format!("dir:{}", parts.display())))?;
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(parts.join("manifest.json"))?)?;
    for layer in manifest["layers"].as_array().context("an image without layers")? {
        let digest = layer["digest"].as_str().context("a layer without a digest")?;
        let file = parts.join(digest.trim_start_matches("sha256:"));
        unpack(&file, root.path())?;
    }
    let unpacked = Build {
        architecture: build.architecture,
        binary: root.path().join(BINARY),
    };
    unpacked.check_version()
}

/// A store of images that is removed afterwards.
struct Store(TempDir);

impl Store {
    fn new() -> Result<Self> {
        Ok(Self(TempDir::with_prefix("mongoshape-images-")?))
    }

    fn buildah(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(BUILDAH.program()?);
        command.arg("--root").arg(self.0.path().join("root"));
        command.arg("--runroot").arg(self.0.path().join("run"));
        // Works in containers, too.
        command.args(["--storage-driver", "vfs"]);
        command.args(arguments);
        Ok(command)
    }
}
