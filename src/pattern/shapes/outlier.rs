//! The shape of an outlier collection.

use bson::raw::{RawDocument, RawDocumentBuf};

use super::fingerprint;
use super::namespace_pattern::NamespacePattern;
use super::options::{Mode, ShapeError, check_field_name};

/// What reads return of an outlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reads {
    /// The whole array.
    #[default]
    Merged,
    /// The first `threshold` elements and the flag.
    Base,
}

/// The options of the collection that stores the elements beyond the threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtrasOptions {
    /// The collection, in the same database.
    pub collection: String,
    /// The field with the base document's `_id`.
    pub reference: String,
    /// The array of elements.
    pub array: String,
    /// The most elements of a page of extras.
    pub max_items: u32,
}

impl ExtrasOptions {
    /// The default of `ref`.
    pub const DEFAULT_REFERENCE: &'static str = "ref";
    /// The default of `max_items`.
    pub const DEFAULT_MAX_ITEMS: u32 = 1000;
}

/// The configured options of an outlier collection. [`OutlierShape::new`] checks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlierOptions {
    /// The collection.
    pub namespace: NamespacePattern,
    /// The array that may grow.
    pub array: String,
    /// The most elements in the base document.
    pub threshold: u32,
    /// The field that marks a document with extras.
    pub flag: String,
    /// What reads return of an outlier.
    pub reads: Reads,
    /// How commands on the collection are handled.
    pub mode: Mode,
    /// The options of the collection that stores the elements beyond the threshold.
    pub extras: ExtrasOptions,
}

impl OutlierOptions {
    /// The default of `flag`.
    pub const DEFAULT_FLAG: &'static str = "has_extras";
}

/// The validated, immutable shape of an outlier collection.
#[derive(Clone, Debug)]
pub struct OutlierShape {
    options: OutlierOptions,
    control: String,
    stored_as: RawDocumentBuf,
}

impl OutlierShape {
    /// The pattern's name.
    pub const PATTERN: &'static str = "outlier";
    /// The least valid `threshold` and `max_items`.
    pub const MIN_ITEMS: u32 = 1;
    /// The greatest valid `threshold` and `max_items`.
    pub const MAX_ITEMS_LIMIT: u32 = 100_000;

    /// Checks the options.
    ///
    /// # Errors
    /// All contradictions, not only the first.
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
        if options.mode == Mode::Auto {
            let remedy = "write \"rewrite\", \"observe\" or \"off\"";
            errors.push(ShapeError::new("mode", "only a bucket shape can be automatic", remedy));
        }
        if options.flag == options.array {
            let problem = format!("`{}` is also the name of the array", options.flag);
            errors.push(ShapeError::new("flag", problem, "choose another name"));
        }
        if options.array == format!("{}_control", options.flag) {
            let problem = format!("the flag reserves `{}` for the proxy", options.array);
            errors.push(ShapeError::new("flag", problem, "choose another name"));
        }
        for (option, name) in [("extras.ref", &extras.reference), ("extras.array", &extras.array)] {
            if ["count", "control"].contains(&name.as_str()) {
                let problem = format!("documents of extras reserve `{name}`");
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
                "name another collection",
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

    /// The configured namespace.
    #[must_use]
    pub fn namespace(&self) -> &NamespacePattern {
        &self.options.namespace
    }

    /// How commands on the collection are handled.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.options.mode
    }

    /// The same shape in another mode.
    pub(super) fn with_mode(&self, mode: Mode) -> Self {
        let mut shape = self.clone();
        shape.options.mode = mode;
        shape
    }

    /// The array that may grow.
    #[must_use]
    pub fn array(&self) -> &str {
        &self.options.array
    }

    /// The most elements in the base document.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.options.threshold
    }

    /// The field that marks a document with extras.
    #[must_use]
    pub fn flag(&self) -> &str {
        &self.options.flag
    }

    /// The field with the control of a document's extras: the flag's name and `_control`.
    #[must_use]
    pub fn control(&self) -> &str {
        &self.control
    }

    /// Whether a field is reserved for the proxy. Documents of the application cannot have it.
    #[must_use]
    pub fn is_own(&self, field: &str) -> bool {
        field == self.options.flag || field == self.control
    }

    /// What reads return of an outlier.
    #[must_use]
    pub fn reads(&self) -> Reads {
        self.options.reads
    }

    /// The field of a page of extras with the base document's `_id`.
    #[must_use]
    pub fn reference(&self) -> &str {
        &self.options.extras.reference
    }

    /// The array of a page of extras.
    #[must_use]
    pub fn extras_array(&self) -> &str {
        &self.options.extras.array
    }

    /// The most elements of a page of extras.
    #[must_use]
    pub fn max_items(&self) -> u32 {
        self.options.extras.max_items
    }

    /// The collection of the extras, in the same database.
    #[must_use]
    pub fn extras_collection(&self) -> &str {
        &self.options.extras.collection
    }

    /// The fingerprint: the options that stored outliers and their extras depend on.
    #[must_use]
    pub fn stored_as(&self) -> &RawDocument {
        &self.stored_as
    }
}
