//! Wine, which runs a build of mongod for Windows. It is unpacked from Debian's packages, and not installed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::commands;

const PACKAGES: [&str; 3] = ["wine64", "libwine", "libz-mingw-w64"];
/// The folders of the packages and of Wine's own files in a build's folder.
const ROOT: &str = "root";
const PREFIX: &str = "prefix";
/// The folder of Wine's programs in that of the packages.
const PROGRAMS: &str = "usr/lib/wine";
/// Neither log lines, nor a desktop, nor a debugger.
const SETTINGS: [(&str, &str); 2] = [
    ("WINEDEBUG", "-all"),
    ("WINEDLLOVERRIDES", "mscoree,mshtml=;winemenubuilder.exe=;winedbg.exe="),
];
const RUNTIME_LIBRARY: &str = "usr/lib/x86_64-linux-gnu/wine/x86_64-windows/ucrtbase.dll";

/// Starts mongod. Wine takes the script's place, so the process has the same id.
pub(super) fn script() -> String {
    let settings = SETTINGS.map(|(name, value)| format!("{name}='{value}'")).join(" ");
    format!(
        r#"#!/bin/sh
folder=$(cd "$(dirname "$0")" && pwd)
export WINEPREFIX="$folder/{PREFIX}" {settings}
unset DISPLAY
exec "$folder/{ROOT}/{PROGRAMS}/wine64" "$folder/mongod.exe" "$@"
"#
    )
}

/// Unpacks Wine into a build's folder, and initialises it. `scratch`: for downloads.
pub(super) fn fetch(scratch: &Path, folder: &Path) -> Result<()> {
    let (root, prefix) = (folder.join(ROOT), folder.join(PREFIX));
    for left in [&root, &prefix] {
        if left.exists() {
            fs::remove_dir_all(left)?;
        }
    }
    let packages = scratch.join("packages");
    fs::create_dir(&packages)?;
    let mut download = Command::new("apt-get");
    download.args(["--quiet", "download"]).args(PACKAGES);
    commands::run(
        download.current_dir(&packages),
        "run `apt-get update`; it needs Debian's repository",
    )?;
    for package in fs::read_dir(&packages)? {
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(package?.path()).arg(&root);
        commands::run(&mut unpack, "install dpkg")?;
    }
    let wine = root.join(PROGRAMS);
    // The package has a script of this name, which looks for an installed Wine.
    let server = wine.join("wineserver");
    fs::remove_file(&server)?;
    symlink("wineserver64", server)?;
    mend(&root.join(RUNTIME_LIBRARY))?;
    let system = prefix.join("drive_c/windows/system32");
    fs::create_dir_all(&system)?;
    let zlib = "zlib1.dll";
    fs::copy(root.join("usr/x86_64-w64-mingw32/lib").join(zlib), system.join(zlib))?;
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(wine.join(program));
        command.args(arguments).envs(SETTINGS).env("WINEPREFIX", &prefix);
        commands::run(command.env_remove("DISPLAY"), "Wine cannot be initialised")
    };
    run("wine64", &["wineboot", "-i"])?;
    let version = [
        "reg",
        "add",
        r"HKEY_CURRENT_USER\Software\Wine",
        "/v",
        "Version",
        "/d",
        "win10",
        "/f",
    ];
    run("wine64", &version)?;
    // Waits until the settings are written.
    run("wineserver", &["-w"])?;
    Ok(())
}

/// Lets `_ctime64_s` of Wine 8.0 accept the time 0, as that of Windows does. mongod ends otherwise.
fn mend(library: &Path) -> Result<()> {
    let mut bytes = fs::read(library)?;
    let places = comparisons(&bytes);
    ensure!(places.len() == 1, "Wine is of another version: {places:?}");
    let place = places.first().context("no place")?;
    bytes[*place] = JUMP_IF_LESS;
    Ok(fs::write(library, bytes)?)
}

const JUMP_IF_LESS: u8 = 0x7c;
/// The comparisons of the size with 25 and of the time with 0, up to the conditional jump, `jle`. `None`: the
/// distance of a jump.
#[rustfmt::skip]
const CODE: [Option<u8>; 19] = [
    Some(0x48), Some(0x83), Some(0xfa), Some(0x19), Some(0x76), None,
    Some(0xc6), Some(0x01), Some(0x00), Some(0x4d), Some(0x85), Some(0xc0), Some(0x74), None,
    Some(0x49), Some(0x83), Some(0x38), Some(0x00), Some(0x7e),
];

/// The places of the jump behind the comparisons.
fn comparisons(bytes: &[u8]) -> Vec<usize> {
    let is_there = |window: &[u8]| {
        let mut pairs = window.iter().zip(CODE);
        pairs.all(|(byte, expected)| expected.is_none_or(|expected| *byte == expected))
    };
    let windows = bytes.windows(CODE.len()).enumerate();
    let found = windows.filter(|(_, window)| is_there(window));
    found.map(|(place, _)| place + CODE.len() - 1).collect()
}
