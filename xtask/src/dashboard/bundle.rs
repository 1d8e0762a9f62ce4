//! The page that draws the panels: `xtask/dashboard` and its packages, bundled into one script.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use proto_tests::{commands, install, paths};
use serde_json::Value;

/// What the page consists of, below `xtask/dashboard`.
const SOURCES: [&str; 6] = [
    "main.jsx",
    "answers.js",
    "fields.js",
    "series.jsx",
    "stat.jsx",
    "heatmap.jsx",
];
const PACKAGES: [&str; 2] = ["package.json", "package-lock.json"];
/// The lock file of the installed packages.
const INSTALLED: &str = "installed.json";
/// Fonts go into the script: the page is a file, which may not load others. Those of Grafana's editor are
/// not needed.
const OPTIONS: [&str; 9] = [
    "--bundle",
    "--minify",
    "--jsx=automatic",
    "--log-level=warning",
    "--loader:.woff=dataurl",
    "--loader:.woff2=dataurl",
    "--loader:.ttf=empty",
    "--define:global=window",
    "--define:process.env.NODE_ENV=\"production\"",
];

/// A folder with the script.
pub(super) struct Bundle {
    folder: PathBuf,
}

/// Installs the packages, about 600 MB, where that has not been done, and makes the script.
pub(super) fn made() -> Result<Bundle> {
    let sources = paths::workspace().join("xtask/dashboard");
    let folder = paths::target().join("tools/dashboard");
    fs::create_dir_all(&folder)?;
    install(&sources, &folder)?;
    for file in SOURCES {
        fs::copy(sources.join(file), folder.join(file))?;
    }
    let mut esbuild = Command::new(folder.join("node_modules/.bin/esbuild"));
    esbuild.current_dir(&folder).args(["main.jsx", "--outfile=main.js"]);
    commands::run(esbuild.args(OPTIONS), "see xtask/dashboard")?;
    Ok(Bundle { folder })
}

fn install(sources: &Path, folder: &Path) -> Result<()> {
    let lock = fs::read(sources.join(PACKAGES[1]))?;
    if fs::read(folder.join(INSTALLED)).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    for file in PACKAGES {
        fs::copy(sources.join(file), folder.join(file))?;
    }
    println!("npm installs Grafana's components: some minutes");
    install::install_packages(Command::new("npm"), folder)?;
    Ok(fs::write(folder.join(INSTALLED), lock)?)
}

impl Bundle {
    /// Writes the page for this request, and returns its address.
    pub(super) fn write(&self, request: &Value) -> Result<String> {
        let page = format!(
            "<!doctype html><meta charset=\"utf-8\"><link rel=\"stylesheet\" href=\"main.css\">\
             <div id=\"dashboard\"></div><script>window.request = {request}</script><script src=\"main.js\"></script>"
        );
        let file = self.folder.join("index.html");
        fs::write(&file, page)?;
        Ok(format!("file://{}", file.display()))
    }
}
