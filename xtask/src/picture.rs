//! Common parts of the commands that take a picture for the documents: the proxy, and the output file.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use proto_tests::proxy::{Profile, build_binary};
use proto_tests::{Browser, browser, paths};

#[derive(Debug, clap::Args)]
pub(crate) struct PictureOptions {
    /// A proxy to take, not one built for release
    #[arg(long)]
    binary: Option<PathBuf>,
    /// The folder of the pictures, not that of the documents
    #[arg(long)]
    output: Option<PathBuf>,
}

impl PictureOptions {
    pub(crate) fn binary(&self) -> Result<PathBuf> {
        self.binary.clone().map_or_else(|| build_binary(Profile::Release), Ok)
    }

    /// Writes it to the folder.
    pub(crate) fn write(&self, name: &str, picture: &[u8]) -> Result<()> {
        let folder = self.output.clone();
        let folder = folder.unwrap_or_else(|| paths::workspace().join("docs/images"));
        fs::create_dir_all(&folder)?;
        let output = folder.join(name);
        fs::write(&output, picture)?;
        println!("{}", output.display());
        Ok(())
    }
}

/// Chromium, without which there is no picture.
pub(crate) fn browser() -> Result<Browser> {
    Browser::start()?.with_context(|| format!("there is no Chromium here: {}", browser::INSTALL))
}
