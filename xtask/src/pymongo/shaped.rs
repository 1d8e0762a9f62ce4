//! Tests of the specifications with shaped collections.
//!
//! The suite and its runner are `PyMongo`'s. Only the proxy's configuration is generated, from the tests'
//! files, so that every collection that they use is shaped.

mod layout;
mod namespaces;
mod specification;
mod verdict;

use std::path::Path;
use std::rc::Rc;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use proto_tests::Shape;

use namespaces::{Namespace, Namespaces};
use specification::Specification;

pub(super) use layout::check as check_layout;
pub(super) use verdict::print as print_verdicts;

/// A field that items of many tests have. Those that lack it share the key null.
const PRESENT: &str = "x";
/// A field that no item has: all items of a collection share the key null.
const ABSENT: &str = "shelf";
/// Items a page, at most: collections of these tests hold three or so, and pages must follow each other.
const MAX_ITEMS: usize = 2;

/// Our plugins for pytest that these tests are run with.
pub(super) const PLUGINS: &[&str] = &["fail_points"];

/// Which tests are run with shapes.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Tests {
    /// What reads: find, aggregate, distinct and the counts of the CRUD specification
    Reads,
    /// The whole CRUD specification
    Crud,
    /// The retryable writes specification
    RetryableWrites,
    /// The transactions specification
    Transactions,
    /// The specifications of collection management and index management
    Management,
    /// All of these
    All,
}

impl Tests {
    fn specifications(self) -> Vec<Specification> {
        match self {
            Self::Reads => vec![specification::READS],
            Self::Crud => vec![specification::CRUD],
            Self::RetryableWrites => vec![specification::RETRYABLE_WRITES],
            Self::Transactions => vec![specification::TRANSACTIONS],
            Self::Management => specification::MANAGEMENT.to_vec(),
            Self::All => {
                let mut all = vec![
                    specification::CRUD,
                    specification::RETRYABLE_WRITES,
                    specification::TRANSACTIONS,
                ];
                all.extend(specification::MANAGEMENT);
                all
            }
        }
    }
}

/// The pattern that collections are stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Pattern {
    /// Buckets, by a field that items have and by one that they lack
    Bucket,
    /// Outliers, by an array that no document has
    Outlier,
}

/// Tests, and the collections that the proxy stores in a pattern for them.
#[derive(Debug, Clone)]
pub(super) struct Shaping {
    pattern: Pattern,
    /// The field that items are grouped by, or the array.
    field: &'static str,
    part: Rc<Part>,
}

/// Files that agree on what may be shaped: a collection may be the target of one and hold the data of
/// another.
#[derive(Debug, Default)]
struct Part {
    /// As pytest names them.
    tests: Vec<String>,
    namespaces: Namespaces,
    /// Whether tests update items. Then the recorded bytes of a bucket may differ from its size.
    items_change: bool,
}

impl Part {
    fn all(tests: Tests, root: &Path, folder: &str) -> Result<(Vec<Rc<Self>>, Vec<&'static str>)> {
        let mut found = Vec::new();
        let mut has_present = false;
        for file in specification::files(&tests.specifications(), root)? {
            let (text, value) = file.read()?;
            let names = |field: &str| text.contains(&format!("\"{field}\""));
            ensure!(!names(ABSENT), "{} has a field {ABSENT}", file.path.display());
            has_present |= names(PRESENT);
            found.push((file.test_class(folder), Namespaces::of(&value)));
        }
        // Most need no collection to be plain, and go together.
        found.sort_by_key(|(_, namespaces)| namespaces.plain().next().is_some());
        let mut parts: Vec<Self> = Vec::new();
        for (test, namespaces) in found {
            let part = match parts.iter_mut().find(|part| part.namespaces.agree_with(&namespaces)) {
                Some(part) => part,
                None => parts.push_mut(Self {
                    items_change: !matches!(tests, Tests::Reads),
                    ..Self::default()
                }),
            };
            part.tests.push(test);
            part.namespaces.extend(namespaces);
        }
        let keys = [has_present.then_some(PRESENT), Some(ABSENT)];
        Ok((
            parts.into_iter().map(Rc::new).collect(),
            keys.into_iter().flatten().collect(),
        ))
    }
}

impl Shaping {
    /// What the tests' files come to, by each key: one that items have, if the files name it, and one that
    /// they lack. All shapings of one key together are all tests.
    pub(super) fn of((tests, pattern): (Tests, Pattern), root: &Path, folder: &str) -> Result<Vec<Vec<Self>>> {
        let (parts, keys) = Part::all(tests, root, folder)?;
        let fields = match pattern {
            Pattern::Bucket => keys,
            Pattern::Outlier => vec![ABSENT],
        };
        let by = |field| {
            let shaping = |part: &Rc<Part>| Self {
                pattern,
                field,
                part: Rc::clone(part),
            };
            parts.iter().map(shaping).collect()
        };
        Ok(fields.into_iter().map(by).collect())
    }

    /// As it is named beside a presentation.
    pub(super) fn name(&self) -> String {
        match self.pattern {
            Pattern::Bucket => format!("by {}", self.field),
            Pattern::Outlier => "with outliers".to_owned(),
        }
    }

    /// The field that items are grouped by.
    pub(super) fn key(&self) -> Option<&'static str> {
        (self.pattern == Pattern::Bucket).then_some(self.field)
    }

    /// As pytest names them.
    pub(super) fn tests(&self) -> &[String] {
        &self.part.tests
    }

    /// Whether tests give items another key.
    pub(super) fn moves_items(&self) -> bool {
        self.key() == Some(PRESENT) && self.part.items_change
    }

    /// The proxy's tables for them.
    pub(super) fn toml(&self) -> String {
        let shape = self.shape();
        let table = |namespace: &Namespace| match self.pattern {
            Pattern::Bucket => shape.toml(&namespace.to_string()),
            Pattern::Outlier => format!(
                "\n[[outlier]]\nnamespace = \"{namespace}\"\narray = \"{}\"\nthreshold = {MAX_ITEMS}\n",
                self.field
            ),
        };
        self.shaped().map(table).collect()
    }

    /// The collections that are stored in the pattern.
    fn shaped(&self) -> impl Iterator<Item = &Namespace> {
        self.part.namespaces.shaped()
    }

    fn shape(&self) -> Shape {
        Shape {
            max_items: MAX_ITEMS,
            items_change: self.part.items_change,
            ..Shape::new(&[self.field])
        }
    }

    /// Prints the shaped and the plain collections.
    pub(super) fn print(&self) {
        let text = |namespaces: Vec<&Namespace>| {
            let texts: Vec<_> = namespaces.into_iter().map(ToString::to_string).collect();
            texts.join(", ")
        };
        println!("Shaped: {}", text(self.shaped().collect()));
        println!(
            "Plain, as they are views or written to by $out or $merge: {}",
            text(self.part.namespaces.plain().collect())
        );
    }
}
