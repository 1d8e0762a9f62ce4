//! The shape of an outlier collection.

use bson::raw::{RawDocument, RawDocumentBuf};

use super::fingerprint;
use super::namespace_pattern::NamespacePattern;
use super::options::{Mode, ShapeError, check_field_name};

/// What a reader sees of an outlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reads {
    /// The whole array.
    #[default]
    Merged,
    /// The first `threshold` elements and the flag.
    Base,
}

/// Where the elements beyond the threshold go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtrasOptions {
    /// The collection, in the same database.
    pub collection: String,
    /// The field that refers to the base document's `_id`.
    pub reference: String,
    /// The array of elements.
    pub array: String,
    /// Elements a document of extras, at most.
    pub max_items: u32,
}

impl ExtrasOptions {
    /// What `ref` is where it is not given.
    pub const DEFAULT_REFERENCE: &'static str = "ref";
    /// What `max_items` is where it is not given.
    pub const DEFAULT_MAX_ITEMS: u32 = 1000;
}

/// What configuration says of an outlier collection; [`OutlierShape::new`] checks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlierOptions {
    /// The collection.
    pub namespace: NamespacePattern,
    /// The array that may grow.
    pub array: String,
    /// Elements kept in the base document, at most.
    pub threshold: u32,
    /// The field that marks a document with extras.
    pub flag: String,
    /// What a reader sees.
    pub reads: Reads,
    /// What is done with its commands.
    pub mode: Mode,
    /// Where the rest goes.
    pub extras: ExtrasOptions,
}

impl OutlierOptions {
    /// What `flag` is where it is not given.
    pub const DEFAULT_FLAG: &'static str = "has_extras";
}

/// An outlier collection's shape: checked, and never changed again.
#[derive(Clone, Debug)]
pub struct OutlierShape {
    options: OutlierOptions,
    control: String,
    stored_as: RawDocumentBuf,
}

impl OutlierShape {
    /// The pattern's name.
    pub const PATTERN: &'static str = "outlier";
    /// The fewest elements that a base document or a document of extras may be configured to hold.
    pub const MIN_ITEMS: u32 = 1;
    /// The most elements that a base document or a document of extras may be configured to hold.
    pub const MAX_ITEMS_LIMIT: u32 = 100_000;

    /// Checks the options against each other.
    ///
    /// # Errors
    /// Every contradiction found, not only the first.
    pub fn new(options: OutlierOptions) -> Result<Self, Vec<ShapeError>> {
        let mut errors = Vec::new();
        let extras = &options.extras;
        let names = [
            ("array", &options.array),
            ("flag", &options.flag),
            ("extras.ref", &extras.reference),
            ("extras.array", &extras.array),
        ];
        for (option, name) in names {
            check_field_name(option, name, &mut errors);
            if name == "_id" {
                errors.push(ShapeError::new(option, "`_id` cannot be used", "choose another name"));
            }
        }
        if options.flag == options.array {
            let problem = format!("`{}` is also the array", options.flag);
            errors.push(ShapeError::new("flag", problem, "choose another name"));
        }
        if options.array == format!("{}_control", options.flag) {
            let problem = format!(
                "`{}` is what the proxy names a field of its own by this flag",
                options.array
            );
            errors.push(ShapeError::new("flag", problem, "choose another name"));
        }
        for (option, name) in [("extras.ref", &extras.reference), ("extras.array", &extras.array)] {
            if ["count", "control"].contains(&name.as_str()) {
                let problem = format!("`{name}` is the proxy's own in a document of extras");
                errors.push(ShapeError::new(option, problem, "choose another name"));
            }
        }
        if extras.reference == extras.array {
            let problem = format!("`{}` is also `extras.array`", extras.array);
            errors.push(ShapeError::new("extras.ref", problem, "choose another name"));
        }
        for (option, number) in [("threshold", options.threshold), ("extras.max_items", extras.max_items)] {
            if !(Self::MIN_ITEMS..=Self::MAX_ITEMS_LIMIT).contains(&number) {
                let remedy = format!("write a number from {} to {}", Self::MIN_ITEMS, Self::MAX_ITEMS_LIMIT);
                errors.push(ShapeError::new(option, format!("{number} is out of range"), remedy));
            }
        }
        if extras.collection == options.namespace.collection() {
            errors.push(ShapeError::new(
                "extras.collection",
                format!("`{}` is the shaped collection itself", extras.collection),
                "name a collection of its own",
            ));
        }
        if errors.is_empty() {
            let control = format!("{}_control", options.flag);
            Ok(Self {
                stored_as: fingerprint::of_outlier(&options),
                options,
                control,
            })
        } else {
            Err(errors)
        }
    }

    /// The namespace it was configured for.
    #[must_use]
    pub fn namespace(&self) -> &NamespacePattern {
        &self.options.namespace
    }

    /// What is done with commands on it.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.options.mode
    }

    /// The same, with its commands rewritten.
    pub(super) fn rewriting(&self) -> Self {
        let mut rewriting = self.clone();
        rewriting.options.mode = Mode::Rewrite;
        rewriting
    }

    /// The array that may grow.
    #[must_use]
    pub fn array(&self) -> &str {
        &self.options.array
    }

    /// Elements kept in the base document, at most.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.options.threshold
    }

    /// The field that marks a document with extras.
    #[must_use]
    pub fn flag(&self) -> &str {
        &self.options.flag
    }

    /// The field that says what the extras of a marked document are: the flag's name and `_control`.
    #[must_use]
    pub fn control(&self) -> &str {
        &self.control
    }

    /// Whether a field is the proxy's own, which no document of the application can have.
    #[must_use]
    pub fn is_own(&self, field: &str) -> bool {
        field == self.options.flag || field == self.control
    }

    /// What a reader sees.
    #[must_use]
    pub fn reads(&self) -> Reads {
        self.options.reads
    }

    /// The field of a document of extras that refers to the base document's `_id`.
    #[must_use]
    pub fn reference(&self) -> &str {
        &self.options.extras.reference
    }

    /// The array of a document of extras.
    #[must_use]
    pub fn extras_array(&self) -> &str {
        &self.options.extras.array
    }

    /// Elements a document of extras, at most.
    #[must_use]
    pub fn max_items(&self) -> u32 {
        self.options.extras.max_items
    }

    /// The collection that extras go to, in the same database.
    #[must_use]
    pub fn extras_collection(&self) -> &str {
        &self.options.extras.collection
    }

    /// What outliers and their extras are stored by: they can be read by no shape of which that is another.
    #[must_use]
    pub fn stored_as(&self) -> &RawDocument {
        &self.stored_as
    }
}
