//! An outlier shape as a test configures it.

use std::fmt::Write as _;

/// What readers see of an outlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// The whole array.
    Merged,
    /// Its base document, with the flag.
    Base,
}

/// An `[[outlier]]` table.
#[derive(Debug, Clone)]
pub struct Outlier {
    /// The array that may grow.
    pub array: String,
    /// Elements in a base document, at most.
    pub threshold: usize,
    /// The field that marks a document with extras. Their control data is in the field of this name and
    /// `_control`.
    pub flag: String,
    /// The field by which a page refers to its base document.
    pub reference: String,
    /// A page's array.
    pub extras: String,
    /// Elements of a page, at most.
    pub max_items: usize,
    /// The collection that pages are in; `None`: that of the shaped one's name behind `extra_`.
    pub collection: Option<String>,
    /// What readers see.
    pub reads: Reads,
}

impl Outlier {
    /// The configuration's defaults for an array.
    #[must_use]
    pub fn new(array: &str, (threshold, max_items): (usize, usize)) -> Self {
        Self {
            array: array.to_owned(),
            threshold,
            flag: "has_extras".to_owned(),
            reference: "ref".to_owned(),
            extras: format!("{array}_extra"),
            max_items,
            collection: None,
            reads: Reads::Merged,
        }
    }

    /// The table for the proxy's configuration file, for one or, with `*.name`, many collections.
    #[must_use]
    pub fn toml(&self, namespace: &str) -> String {
        let reads = match self.reads {
            Reads::Merged => "merged",
            Reads::Base => "base",
        };
        let mut toml = format!(
            "[[outlier]]\nnamespace = \"{namespace}\"\narray = \"{}\"\nthreshold = {}\nflag = \"{}\"\nreads = \"{reads}\"\n\
             extras.ref = \"{}\"\nextras.array = \"{}\"\nextras.max_items = {}\n",
            self.array, self.threshold, self.flag, self.reference, self.extras, self.max_items
        );
        if let Some(collection) = &self.collection {
            // Writing to a string cannot fail.
            let _ = writeln!(toml, "extras.collection = \"{collection}\"");
        }
        toml
    }

    /// The field that describes the extras of a marked document.
    #[must_use]
    pub fn control(&self) -> String {
        format!("{}_control", self.flag)
    }

    /// The collection that the pages of a collection's outliers are in.
    #[must_use]
    pub fn pages_of(&self, collection: &str) -> String {
        self.collection.clone().unwrap_or_else(|| format!("extra_{collection}"))
    }
}
