//! `cargo xtask session`: an unchanged application on mongod and through mongoshape, as a picture of a terminal.
//!
//! The outputs are those of the commands. Only the ports are replaced: the servers listen on free ones.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use proto_tests::{Mongod, Proxy, ProxyOptions, commands, install};
use tempfile::TempDir;

use crate::picture::PictureOptions;
use crate::tool::{PYTHON_REQUIREMENTS, Tool};

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
    let folder = folder()?;
    let mut steps = Vec::new();
    for shown in COMMANDS {
        let real = ports
            .iter()
            .fold(shown.to_owned(), |text, (port, real)| text.replace(port, real));
        let output = shell(folder.path(), &real)?;
        let output = ports.iter().fold(output, |text, (port, real)| text.replace(real, port));
        steps.push((shown, output));
    }
    options.write("session.svg", &drawn(&serde_json::to_vec(&steps)?)?)
}

/// The folder of the session: the application, and below it the programs that the commands name.
fn folder() -> Result<TempDir> {
    let folder = TempDir::with_prefix("mongoshape-session-")?;
    fs::write(folder.path().join("trades.py"), APPLICATION)?;
    let mongosh = install::node()?.program("node_modules/mongosh/bin/mongosh.js");
    let file = mongosh.get_args().next().context("a program")?;
    let node = mongosh.get_program();
    let functions = format!(
        "mongosh() {{ {node:?} {file:?} --norc \"$@\"; }}\npython() {{ PYTHONPATH={:?} python3 \"$@\"; }}\n",
        install::python()?
    );
    fs::write(folder.path().join("functions.sh"), functions)?;
    Ok(folder)
}

fn shell(folder: &Path, command: &str) -> Result<String> {
    let mut bash = Command::new("bash");
    bash.current_dir(folder)
        .env("HOME", folder)
        .args(["-c", &format!("source ./functions.sh\n{command}")]);
    Ok(String::from_utf8(
        commands::run(&mut bash, "a command of the session")?.stdout,
    )?)
}

/// The picture by rich, a library for terminals.
fn drawn(steps: &[u8]) -> Result<Vec<u8>> {
    let mut python = Command::new(PYTHON.program()?);
    python.args(["-c", DRAW]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn()?;
    python.stdin.take().context("a pipe")?.write_all(steps)?;
    let output = python.wait_with_output()?;
    ensure!(
        output.status.success(),
        "drawing failed; rich is installed by: {PYTHON_REQUIREMENTS}"
    );
    Ok(output.stdout)
}
