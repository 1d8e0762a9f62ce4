//! `cargo xtask session`: an unchanged application on mongod and through mongoshape, as a picture of a terminal.
//!
//! The outputs are those of the commands. The shown commands name the ports 27017 and 27018. The servers listen on
//! free ports.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use proto_tests::{Mongod, Proxy, ProxyOptions, install};
use tempfile::TempDir;

use crate::picture::PictureOptions;
use crate::tool::{PYTHON_REQUIREMENTS, Tool, output};

const SHAPE: &str = r#"
[[bucket]]
namespace = "shop.trades"
key = "customer"
time = "date"
max_items = 3
"#;
const APPLICATION: &str = include_str!("session/trades.py");
const DRAW: &str = include_str!("session/draw.py");
const STORED: &str = r#"mongosh --quiet mongodb://127.0.0.1:27017/shop --eval '
    db.trades.find({}, { qty: 1, "history.qty": 1 }).forEach(d => print(JSON.stringify(d)))'"#;
/// What the names of programs in the commands mean.
const PROGRAMS: &str = r#"mongosh() { "$NODE" "$MONGOSH" --norc "$@"; }; python() { python3 "$@"; }"#;
const COMMANDS: [&str; 7] = [
    "tail -n 6 trades.py",
    "# Before: the application connects to mongod, which stores each trade as a document.",
    "python trades.py mongodb://127.0.0.1:27017",
    STORED,
    "# After: only the port changed, to mongoshape's. mongod stores a page of 3 as a document.",
    "python trades.py mongodb://127.0.0.1:27018",
    STORED,
];
const PYTHON: Tool = Tool::new("python", PYTHON_REQUIREMENTS);

pub(crate) fn run(options: &PictureOptions) -> Result<()> {
    let binary = options.binary()?;
    let mongod = Mongod::standalone()?;
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(SHAPE).binary(&binary))?;
    let ports = [
        ("127.0.0.1:27017", mongod.address().to_string()),
        ("127.0.0.1:27018", proxy.address().to_string()),
    ];
    let folder = TempDir::with_prefix("mongoshape-session-")?;
    fs::write(folder.path().join("trades.py"), APPLICATION)?;
    let mut steps = Vec::new();
    for shown in COMMANDS {
        let real = ports
            .iter()
            .fold(shown.to_owned(), |text, (port, real)| text.replace(port, real));
        steps.push((shown, shell(folder.path(), &real)?));
    }
    let [.., (_, before), _, _, (_, after), _] = steps.as_slice() else {
        bail!("the session has fewer steps");
    };
    ensure!(
        before == after,
        "the application printed:\n{before}and through mongoshape:\n{after}"
    );
    options.write("session.svg", &drawn(&serde_json::to_vec(&steps)?)?)
}

/// The standard output of a command of the session.
fn shell(folder: &Path, command: &str) -> Result<String> {
    let mongosh = install::node()?.program("node_modules/mongosh/bin/mongosh.js");
    let mut bash = Command::new("bash");
    bash.current_dir(folder)
        .env("HOME", folder)
        .env("NODE", mongosh.get_program())
        .env("MONGOSH", mongosh.get_args().next().context("a program")?)
        .env("PYTHONPATH", install::python()?)
        .args(["-c", &format!("{PROGRAMS}\n{command}")]);
    Ok(String::from_utf8(output(&mut bash)?)?)
}

/// The picture by rich, a library for terminals.
fn drawn(steps: &[u8]) -> Result<Vec<u8>> {
    let mut python = Command::new(PYTHON.program()?);
    python.args(["-c", DRAW]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn()?;
    python.stdin.take().context("a pipe")?.write_all(steps)?;
    let drawn = python.wait_with_output()?;
    ensure!(
        drawn.status.success(),
        "drawing failed; rich is installed by: {PYTHON_REQUIREMENTS}"
    );
    Ok(drawn.stdout)
}
