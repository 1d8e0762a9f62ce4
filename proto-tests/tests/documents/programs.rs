//! The programs that a document expects on PATH.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::{Context as _, Result};
use proto_tests::proxy::find_binary;
use proto_tests::{install, paths};

/// For where there is none: all that the documents want of it.
const CURL: &str = "#!/usr/bin/env python3\nimport sys, urllib.request\n\
                    print(urllib.request.urlopen(sys.argv[-1]).read().decode(), end='')\n";

/// Makes the folder, with all that the documents want.
pub(crate) fn install(folder: &Path) -> Result<()> {
    fs::create_dir(folder)?;
    symlink(find_binary()?, folder.join("mongoshape"))?;
    mongosh(&folder.join("mongosh"))?;
    if paths::on_path("curl").is_none() {
        program(&folder.join("curl"), CURL)?;
    }
    Ok(())
}

fn mongosh(path: &Path) -> Result<()> {
    let mongosh = install::node()?.program("node_modules/mongosh/bin/mongosh.js");
    let file = mongosh.get_args().next().context("a program")?;
    let node = mongosh.get_program();
    let script = format!(
        "#!/bin/sh\nexec \"{}\" \"{}\" --quiet --norc \"$@\"\n",
        node.display(),
        file.display()
    );
    program(path, &script)
}

fn program(path: &Path, script: &str) -> Result<()> {
    fs::write(path, script)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}
