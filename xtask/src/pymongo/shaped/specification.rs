//! The files of unified tests that are run, and the suite's test classes for them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Tests of one folder, all made by one module of the suite.
#[derive(Debug, Clone, Copy)]
pub(super) struct Specification {
    /// The module, as in `test_crud_unified`, without `test_`.
    module: &'static str,
    /// The folder, under the suite's `test`.
    folder: &'static str,
    /// The operations whose files are run, a file being named after one and, behind a hyphen, what of it is
    /// tested. None: all files.
    operations: Option<&'static [&'static str]>,
}

pub(super) const CRUD: Specification = Specification::whole("crud_unified", "crud/unified");
pub(super) const RETRYABLE_WRITES: Specification =
    Specification::whole("retryable_writes_unified", "retryable_writes/unified");
pub(super) const TRANSACTIONS: Specification = Specification::whole("transactions_unified", "transactions/unified");
pub(super) const MANAGEMENT: [Specification; 2] = [
    Specification::whole("collection_management", "collection_management"),
    // The other files test commands that only Atlas executes.
    Specification {
        operations: Some(&["listSearchIndexes"]),
        ..Specification::whole("index_management", "index_management")
    },
];

/// What reads.
pub(super) const READS: Specification = Specification {
    operations: Some(&[
        "aggregate",
        "count",
        "countDocuments",
        "distinct",
        "estimatedDocumentCount",
        "find",
        "findOne",
    ]),
    ..CRUD
};

/// One file of tests.
pub(super) struct File {
    module: &'static str,
    pub(super) path: PathBuf,
}

impl Specification {
    const fn whole(module: &'static str, folder: &'static str) -> Self {
        Self {
            module,
            folder,
            operations: None,
        }
    }

    fn has(&self, stem: &str) -> bool {
        let (operation, _) = stem.split_once('-').unwrap_or((stem, ""));
        self.operations.is_none_or(|operations| operations.contains(&operation))
    }

    fn files(&self, root: &Path) -> Result<Vec<File>> {
        let folder = root.join("test").join(self.folder);
        let mut paths = Vec::new();
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            paths.push(entry?.path());
        }
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json") && self.has(stem(path)));
        paths.sort();
        for operation in self.operations.unwrap_or_default() {
            let is_of = |path: &PathBuf| stem(path).split('-').next() == Some(operation);
            ensure!(
                paths.iter().any(is_of),
                "{} has no tests of {operation}",
                folder.display()
            );
        }
        let module = self.module;
        Ok(paths.into_iter().map(|path| File { module, path }).collect())
    }
}

/// All files of these specifications.
pub(super) fn files(specifications: &[Specification], root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for specification in specifications {
        files.extend(specification.files(root)?);
    }
    Ok(files)
}

impl File {
    /// Its text and its parsed form.
    pub(super) fn read(&self) -> Result<(String, Value)> {
        let name = || self.path.display().to_string();
        let text = fs::read_to_string(&self.path).with_context(name)?;
        let value = serde_json::from_str(&text).with_context(name)?;
        Ok((text, value))
    }

    /// pytest's name for the class of its tests, in the folder of one API or the other.
    pub(super) fn test_class(&self, folder: &str) -> String {
        let parent = self.path.parent().map_or("", stem);
        format!("{folder}/test_{}.py::{}", self.module, class(parent, stem(&self.path)))
    }
}

fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
}

/// The class's name, as the suite's `generate_test_classes` makes it.
fn class(parent: &str, stem: &str) -> String {
    let snake = format!("Test_{}_{}", parent.replace('-', "_"), stem.replace(['-', '.'], "_"));
    let mut name = String::new();
    let mut rest = snake.chars().peekable();
    while let Some(char) = rest.next() {
        match rest.next_if(|next| char == '_' && next.is_ascii_lowercase()) {
            Some(letter) => name.push(letter.to_ascii_uppercase()),
            None => name.push(char),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_named_as_the_suite_names_it() {
        let check = |stem, expected| assert_eq!(class("unified", stem), expected);
        check("find", "TestUnifiedFind");
        check(
            "aggregate-merge-errorResponse",
            "TestUnifiedAggregateMergeErrorResponse",
        );
        check("find-8.0", "TestUnifiedFind_8_0");
    }

    #[test]
    fn a_file_is_named_after_its_operation() {
        let check = |stem, expected| assert_eq!(READS.has(stem), expected, "{stem}");
        check("find", true);
        check("find-comment", true);
        check("findOneAndUpdate", false);
        check("db-aggregate", false);
        check("aggregate-merge-errorResponse", true);
        assert!(CRUD.has("insertOne"));
    }
}
