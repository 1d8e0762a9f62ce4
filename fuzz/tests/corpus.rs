//! Every input that is kept runs through its target: the corpus, and what once went wrong.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use mongoshape_fuzz::TARGETS;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// The names in a folder, without extensions.
fn names(folder: &Path) -> BTreeSet<String> {
    let name = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    entries(folder).into_iter().map(name).collect()
}

#[test]
fn every_corpus_input_passes() {
    for (name, target) in TARGETS {
        let corpus = entries(&folder("corpus").join(name));
        assert!(!corpus.is_empty(), "{name} has no corpus");
        for path in corpus.into_iter().chain(entries(&folder("regressions").join(name))) {
            let data = fs::read(&path).unwrap();
            // Captured by the test harness; shown with the panic when the target fails.
            #[expect(clippy::print_stderr, reason = "says which file it was")]
            {
                eprintln!("{}", path.display());
            }
            target(&data);
        }
    }
}

#[test]
fn every_fuzz_target_is_registered() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(targets.len(), TARGETS.len());
    assert_eq!(names(&folder("fuzz_targets")), targets);
    assert_eq!(names(&folder("corpus")), targets);
    assert!(names(&folder("regressions")).is_subset(&targets));
}
