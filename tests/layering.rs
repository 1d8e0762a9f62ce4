//! Each module under `src/` is a layer and depends only on the layers before it in [`LAYERS`]. Pure layers
//! use neither runtime, network, files nor clock. Tests inside `src/` have the same rules; `lib.rs` and
//! `main.rs` are in no layer. The scan knows Rust's tokens and paths, not its types: it misses names that a
//! macro builds and `use std as s`.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

mod scan;

use scan::{UsedPath, used_paths};

/// A layer may use itself and those before it.
const LAYERS: [&str; 11] = [
    "wire",
    "command",
    "pattern",
    "session",
    "server",
    "telemetry",
    "config",
    "maintenance",
    "advisor",
    "demo",
    "cli",
];

/// The layers that do no input or output.
const PURE_LAYERS: [&str; 3] = ["wire", "command", "pattern"];

/// What a pure layer does not name, as a run of path segments (from the start of the path if `anchored`), and
/// why.
const IMPURE: [Impure; 4] = [
    Impure::start(&["std", "net"], "sockets belong to `session` and `server`"),
    Impure::start(&["std", "fs"], "files belong to `config` and `cli`"),
    Impure::start(&["tokio"], "the runtime belongs to `session` and `server`"),
    Impure {
        path: &["SystemTime", "now"],
        anchored: false,
        reason: "the time is passed in",
    },
];

struct Impure {
    path: &'static [&'static str],
    anchored: bool,
    reason: &'static str,
}

impl Impure {
    const fn start(path: &'static [&'static str], reason: &'static str) -> Self {
        Self {
            path,
            anchored: true,
            reason,
        }
    }

    fn is_named_by(&self, segments: &[String]) -> bool {
        let matches = |run: &[String]| run.iter().map(String::as_str).eq(self.path.iter().copied());
        let mut runs = segments.windows(self.path.len());
        if self.anchored {
            runs.next().is_some_and(matches)
        } else {
            runs.any(matches)
        }
    }
}

/// The broken rules of one file, each as `file:line: words`. `file` is relative to the package, with `/`.
fn check_file(file: &str, source: &str) -> Vec<String> {
    let modules: Vec<&str> = module_path(file);
    let Some(layer) = modules.first() else {
        return Vec::new();
    };
    let Some(level) = LAYERS.iter().position(|name| name == layer) else {
        return vec![format!(
            "{file}:1: `{layer}` is on no layer; give it its place in LAYERS"
        )];
    };
    let mut mistakes = Vec::new();
    for used in used_paths(source) {
        if let Some(words) = layer_mistake(layer, level, &modules, &used).or_else(|| purity_mistake(layer, &used)) {
            mistakes.push(format!("{file}:{}: {words}", used.line));
        }
    }
    mistakes
}

/// `src/a/b.rs` and `src/a/b/mod.rs` are `[a, b]`; `src/lib.rs` and `src/main.rs` are the root, `[]`.
fn module_path(file: &str) -> Vec<&str> {
    let inside = file.strip_prefix("src/").unwrap_or(file);
    let inside = inside.strip_suffix(".rs").unwrap_or(inside);
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    if matches!(inside, "lib" | "main") {
        Vec::new()
    } else {
        inside.split('/').collect()
    }
}

fn layer_mistake(layer: &str, level: usize, modules: &[&str], used: &UsedPath) -> Option<String> {
    let allowed = LAYERS[..=level].join(", ");
    match in_crate(modules, used)? {
        [] => None,
        [first, ..] if matches!(first.as_str(), "*" | "self") => Some(format!(
            "`{layer}` takes in the whole crate; it may use these layers only: {allowed}"
        )),
        [first, ..] => {
            let target = LAYERS.iter().position(|name| name == first)?;
            (target > level).then(|| {
                format!("`{layer}` uses `{first}`, which comes after it; it may use these layers only: {allowed}")
            })
        }
    }
}

/// The path as seen from the crate's root, `None` when it does not lead there.
fn in_crate<'a>(modules: &[&str], used: &'a UsedPath) -> Option<&'a [String]> {
    let (first, rest) = used.segments.split_first()?;
    match first.as_str() {
        "crate" | "mongoshape" => Some(rest),
        "self" | "super" => {
            let from = usize::from(first == "self");
            let supers = used.segments[from..]
                .iter()
                .take_while(|segment| *segment == "super")
                .count();
            // A path that leads above the root does not compile.
            (supers == modules.len() + used.inline_modules).then(|| &used.segments[from + supers..])
        }
        _ => None,
    }
}

fn purity_mistake(layer: &str, used: &UsedPath) -> Option<String> {
    if used.segments[0] == "tokio_util" && layer != "wire" && PURE_LAYERS.contains(&layer) {
        return Some(format!(
            "`{layer}` names `tokio_util`; of the pure layers only `wire`, which has the codec, may"
        ));
    }
    let impure = IMPURE.iter().find(|impure| impure.is_named_by(&used.segments))?;
    PURE_LAYERS.contains(&layer).then(|| {
        format!(
            "`{layer}` names `{}`, but does no input or output: {}",
            used.segments.join("::"),
            impure.reason
        )
    })
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn every_module_uses_only_the_layers_before_it() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    rust_files(&package.join("src"), &mut files);
    files.sort();
    assert!(files.len() > LAYERS.len(), "only {} files found", files.len());

    let mut report = String::new();
    for path in files {
        let file = path.strip_prefix(package).unwrap().to_str().unwrap().replace('\\', "/");
        for mistake in check_file(&file, &fs::read_to_string(&path).unwrap()) {
            writeln!(report, "{mistake}").unwrap();
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn the_map_lists_the_layers_in_their_order() {
    let map = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let listed: Vec<&str> = map
        .lines()
        .map(|line| line.strip_prefix("pub ").unwrap_or(line))
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    assert_eq!(listed, LAYERS);
}

/// Checks that a file has mistakes on exactly these lines, and gives them back.
fn check(file: &str, source: &str, lines: &[usize]) -> String {
    let mistakes = check_file(file, source);
    let found: Vec<usize> = mistakes
        .iter()
        .map(|mistake| {
            mistake
                .strip_prefix(file)
                .unwrap()
                .split(':')
                .nth(1)
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    assert_eq!(found, lines, "{source}\n{mistakes:#?}");
    mistakes.join("\n")
}

#[test]
fn planted_imports_of_later_layers_are_caught() {
    let file = "src/pattern/bucket/find.rs";
    let words = check(file, "\nuse crate::session::Link;", &[2]);
    assert_eq!(
        words,
        "src/pattern/bucket/find.rs:2: `pattern` uses `session`, which comes after it; \
         it may use these layers only: wire, command, pattern"
    );
    check(
        file,
        "use crate::{\n    wire::{self, Frame},\n    server::{\n        Tls},\n    cli};",
        &[4, 5],
    );
    check(file, "pub(crate) use ::mongoshape::config;", &[1]);
    check(
        file,
        "fn a(link: &'a mut crate::session::Link) { crate::cli::main::<u8>() }",
        &[1, 1],
    );
    check(
        file,
        "use super::super::super::server;\nuse self::super::super::super::server;",
        &[1, 2],
    );
    check(
        file,
        "mod tests {\n use super::super::super::super::cli;\n}\nuse super::super::super::cli;",
        &[2, 4],
    );
    check(file, "#[cfg(test)]\nmod tests { use crate::session; }", &[2]);
    check(
        file,
        "use crate::*;\nuse crate as all;\nuse crate::{self as all};\nuse super::super::super as all;",
        &[1, 2, 3, 4],
    );
    check("src/wire.rs", "use super::{command, wire};", &[1]);
    check(
        "src/wire.rs",
        "let c = '\"'; let d = '\\''; let s = r#\"\"\"#;\nuse crate::cli;",
        &[2],
    );
    check("src/stray.rs", "", &[1]);
}

#[test]
fn planted_input_and_output_is_caught() {
    for layer in PURE_LAYERS {
        let file = format!("src/{layer}/file.rs");
        check(
            &file,
            "use std::net::TcpStream;\nuse std::{fmt, fs};\nuse ::std::fs::File;",
            &[1, 2, 3],
        );
        check(
            &file,
            "use tokio::sync::Mutex;\nuse tokio;\n#[tokio::test]\nfn a() {}",
            &[1, 2, 3],
        );
        check(&file, "use std::time::SystemTime;\nlet now = SystemTime::now();", &[2]);
        check(&file, "let now =\n    std::time::SystemTime::now();", &[2]);
    }
    check("src/command.rs", "use tokio_util::codec::Decoder;", &[1]);
    check(
        "src/session.rs",
        "use tokio::net::TcpStream; use std::{fs, net}; let now = SystemTime::now();",
        &[],
    );
}

#[test]
fn allowed_imports_pass() {
    check(
        "src/wire/codec.rs",
        "use tokio_util::codec::Decoder; use super::Frame; use bytes::Bytes;",
        &[],
    );
    check(
        "src/session.rs",
        "use crate::{command, pattern::{self, server}, session::cli, wire::*};",
        &[],
    );
    check(
        "src/wire.rs",
        "//! `crate::cli`\n/* crate::cli /* tokio::net */ std::fs */ const A: &str = \"crate::cli\";",
        &[],
    );
    check(
        "src/wire.rs",
        "mod tests { use super::*; use super::server; }\nmod server { use super::Frame; }",
        &[],
    );
    check(
        "src/wire/a.rs",
        "fn f(session: u8) { let x = |cli| cli; }\nuse super::session;\nuse std::io;",
        &[],
    );
    check("src/main.rs", "use mongoshape::cli;", &[]);
    check("src/lib.rs", "pub mod cli; use crate::cli;", &[]);
}
