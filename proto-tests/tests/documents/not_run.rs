//! The blocks of the documents that are not run here, and the tests that run them instead.

use crate::blocks::{Block, Document};

const EXAMPLE: &str = "`--test drivers examples` runs the application with this shape";

/// (document, how the command or the block begins, why it is not run here).
const NOT_RUN: &[(&str, &str, &str)] = &[
    ("README.md", "cargo xtask demo", "a release build; run by hand"),
    ("README.md", "mongoshape demo", "its tests run in `--test server`"),
    (
        "README.md",
        "dpkg --install",
        "`cargo xtask release` installs and unpacks the artefacts",
    ),
    (
        "README.md",
        "rpm --install",
        "`cargo xtask release` installs and unpacks the artefacts",
    ),
    (
        "README.md",
        "tar --extract",
        "`cargo xtask release` installs and unpacks the artefacts",
    ),
    (
        "README.md",
        "docker load",
        "`cargo xtask release` installs and unpacks the artefacts",
    ),
    ("README.md", "systemctl enable", "no system manager runs in tests"),
    ("README.md", "docker run", "no container engine runs in tests"),
    ("README.md", "cargo test --workspace", "this is it"),
    (
        "README.md",
        "cargo install --locked --path .",
        "a release build, as `cargo xtask release` does it",
    ),
    ("README.md", "  application", "a picture"),
    ("CONTRIBUTING.md", "cargo test", "parts of this"),
    ("CONTRIBUTING.md", ".ci/run", "runs this"),
    (
        "CONTRIBUTING.md",
        "cargo xtask drivers",
        "wants Go and Java; its tests run in `--test drivers`",
    ),
    (
        "CONTRIBUTING.md",
        "cargo xtask frameworks",
        "wants Go and Java; those in JavaScript and Python run in `--test drivers`",
    ),
    (
        "CONTRIBUTING.md",
        "cargo xtask examples",
        "wants Go and Java; the others run in `--test drivers`",
    ),
    ("CONTRIBUTING.md", "cargo xtask pymongo", "takes minutes; run by hand"),
    (
        "CONTRIBUTING.md",
        "cargo xtask mongoose",
        "takes minutes and a checkout of Mongoose; run by hand",
    ),
    ("CONTRIBUTING.md", "cargo xtask bench", "measures, on a quiet machine"),
    (
        "CONTRIBUTING.md",
        "cargo xtask matrix",
        "repeats these tests with another mongod",
    ),
    ("CONTRIBUTING.md", "cargo xtask measures", "run by hand"),
    ("CONTRIBUTING.md", "cargo xtask session", "takes a picture; run by hand"),
    ("deploy/README.md", "cargo xtask deploy", "CI runs it"),
    (
        "deploy/README.md",
        "cargo xtask release",
        "a release build; run by hand",
    ),
    ("deploy/README.md", "apt-get install", "installs on the machine"),
    (
        "deploy/README.md",
        "python3 -m venv",
        "installs tools of `cargo xtask deploy`",
    ),
    ("deploy/README.md", "rustup target add", "installs on the machine"),
    (
        "deploy/README.md",
        "cargo install cargo-cyclonedx",
        "installs tools of `cargo xtask release`",
    ),
    (
        "deploy/helm/mongoshape/README.md",
        "image:",
        "`cargo xtask deploy` renders it",
    ),
    (
        "deploy/helm/mongoshape/README.md",
        "    metadata:",
        "`cargo xtask deploy` renders such a chart",
    ),
    (
        "deploy/helm/mongoshape/README.md",
        "helm install",
        "wants a cluster; `cargo xtask deploy` validates what is installed",
    ),
    (
        "deploy/kubernetes/README.md",
        "kubectl apply",
        "wants a cluster; `cargo xtask deploy` validates what is applied",
    ),
    (
        "docs/dashboard.md",
        "cargo xtask dashboard",
        "takes minutes, and wants Chromium and npm; run by hand",
    ),
    (
        "docs/benchmarks.md",
        "cargo xtask bench",
        "measures, on a quiet machine",
    ),
    (
        "docs/getting-started.md",
        "cargo install --locked --path .",
        "a release build, as `cargo xtask release` does it",
    ),
    (
        "docs/metrics.md",
        "scrape_configs",
        "`cargo xtask deploy` and `--test server metrics` have promtool read such a one",
    ),
    (
        "docs/outliers.md",
        "// shop.sales",
        "what is stored, in short; docs/storage-layout.md has it from mongod",
    ),
    (
        "docs/mongoose-suite.md",
        "cargo xtask mongoose",
        "takes minutes and a checkout of Mongoose; run by hand",
    ),
    (
        "docs/mongoose-suite.md",
        "git clone",
        "fetches another project; run by hand",
    ),
    (
        "docs/pymongo-suite.md",
        "cargo xtask pymongo",
        "takes minutes; run by hand",
    ),
    ("examples/README.md", "cargo", "CI runs them"),
    ("examples/express-mongoose-shop/README.md", "", EXAMPLE),
    ("examples/fastapi-beanie-service/README.md", "", EXAMPLE),
    ("examples/go-service/README.md", "", EXAMPLE),
    ("examples/spring-boot-service/README.md", "", EXAMPLE),
    (
        "fuzz/README.md",
        "mkdir",
        "fuzzing goes on for minutes; `cargo test -p mongoshape-fuzz` runs the corpus",
    ),
    ("fuzz/README.md", "export", "see above"),
    ("fuzz/README.md", "cargo +nightly fuzz", "see above"),
];

/// Whether the table names it.
pub(crate) fn is_named(document: &str, part: &str) -> bool {
    NOT_RUN
        .iter()
        .any(|(path, beginning, _)| *path == document && part.starts_with(beginning))
}

/// Whether nothing of a block is run.
pub(crate) fn is_all_named(document: &str, block: &Block) -> bool {
    block.parts().iter().all(|part| is_named(document, part))
}

/// Entries that name nothing: what they were for is gone.
pub(crate) fn stale(documents: &[Document]) -> Vec<String> {
    let names = |path: &str, beginning: &str| {
        let of_document = documents.iter().filter(|document| document.path == path);
        of_document
            .flat_map(|document| &document.blocks)
            .flat_map(Block::parts)
            .any(|part| part.starts_with(beginning))
    };
    NOT_RUN
        .iter()
        .filter(|(path, beginning, _)| !names(path, beginning))
        .map(|(path, beginning, _)| format!("{path}: nothing begins with {beginning:?} any more"))
        .collect()
}
