//! Cargo, started by a program that Cargo has started.

use std::env;
use std::ffi::{OsStr, OsString};
use std::process::Command;

use crate::paths;

/// Variables that describe the package whose program Cargo starts.
const OF_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// The Cargo that has started this program, else the one on `PATH`, in the workspace's folder. It has the environment
/// of a Cargo that a person starts: build scripts that read the variables of a package, such as ring's, would be
/// executed again, and everything that depends on them would be compiled again.
#[must_use]
pub fn command() -> Command {
    in_workspace(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A program that starts Cargo, in the workspace's folder, with the environment of [`command`].
#[must_use]
pub fn in_workspace(program: impl AsRef<OsStr>) -> Command {
    let mut cargo = Command::new(program);
    cargo.current_dir(paths::workspace());
    for name in variables_of_package(env::vars_os().map(|(name, _)| name)) {
        cargo.env_remove(name);
    }
    cargo
}

fn variables_of_package(names: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    names.filter(|name| {
        let name = name.to_string_lossy();
        OF_PACKAGE.iter().any(|prefix| name.starts_with(prefix))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_of_the_package_are_removed() {
        let names = [
            "CARGO_MANIFEST_DIR",
            "CARGO_PKG_NAME",
            "CARGO_TARGET_DIR",
            "CARGO_HOME",
            "PATH",
        ];
        let removed: Vec<OsString> = variables_of_package(names.map(OsString::from).into_iter()).collect();
        assert_eq!(removed, ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"]);
    }
}
