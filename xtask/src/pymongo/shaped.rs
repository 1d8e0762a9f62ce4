//! Tests of the specifications with the collections that they use shaped as buckets.
//!
//! The suite is `PyMongo`'s and so is its runner; only the proxy's configuration is ours. It is made of what the tests' own
//! files say, so that whatever they will use is shaped as well.

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
}

impl Tests {
    fn specifications(self) -> &'static [Specification] {
        match self {
            Self::Reads => specification::READS,
        }
    }
}

/// Collections that a proxy stores as buckets.
#[derive(Debug, Clone)]
pub(super) struct Shaping {
    /// The field that items are grouped by.
    pub(super) key: &'static str,
    namespaces: Rc<Namespaces>,
}

impl Shaping {
    /// What the tests' files come to: one for a key that items have, one for a key that they lack.
    pub(super) fn of(tests: Tests, root: &Path) -> Result<Vec<Self>> {
        let mut namespaces = Namespaces::default();
        let mut has_present = false;
        for file in specification::files(tests.specifications(), root)? {
            let (text, value) = file.read()?;
            let names = |field: &str| text.contains(&format!("\"{field}\""));
            ensure!(!names(ABSENT), "{} has a field {ABSENT}", file.path.display());
            has_present |= names(PRESENT);
            namespaces.add(&value);
        }
        ensure!(has_present, "no file has a field {PRESENT}");
        let namespaces = Rc::new(namespaces);
        let by = |key| Self {
            key,
            namespaces: Rc::clone(&namespaces),
        };
        Ok([PRESENT, ABSENT].map(by).to_vec())
    }

    /// The proxy's `[[bucket]]` tables.
    pub(super) fn toml(&self) -> String {
        let shape = self.shape();
        self.shaped()
            .map(|namespace| shape.toml(&namespace.to_string()))
            .collect()
    }

    /// The collections that are stored as buckets.
    fn shaped(&self) -> impl Iterator<Item = &Namespace> {
        self.namespaces.shaped()
    }

    fn shape(&self) -> Shape {
        Shape {
            max_items: MAX_ITEMS,
            ..Shape::new(&[self.key])
        }
    }

    /// Says what is shaped and what is not.
    pub(super) fn print(&self) {
        let text = |namespaces: Vec<&Namespace>| {
            let texts: Vec<_> = namespaces.into_iter().map(ToString::to_string).collect();
            texts.join(", ")
        };
        println!("Shaped: {}", text(self.shaped().collect()));
        println!(
            "Plain, as they are views or written to by $out or $merge: {}",
            text(self.namespaces.plain().collect())
        );
    }
}

/// pytest's names of the tests, for one API or the other.
pub(super) fn tests(tests: Tests, root: &Path, folder: &str) -> Result<Vec<String>> {
    let files = specification::files(tests.specifications(), root)?;
    Ok(files.iter().map(|file| file.test_class(folder)).collect())
}
