//! An outlier collection of books with many buyers: its configuration, and checks of the stored documents.
//!
//! It does not use the proxy's code, like [`crate::shape`]: stored documents are compared with the documented
//! layout.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use bson::oid::ObjectId;
use bson::{Document, doc};

use crate::raw::Connection;
use crate::rest::at_rest;
use crate::{Proxy, ProxyOptions, database_name};

/// The collection of books.
pub const COLLECTION: &str = "sales";
/// That of their extras.
pub const EXTRAS: &str = "extra_sales";
/// The array of a book.
pub const BUYERS: &str = "customers_purchased";
/// The array of a page.
pub const EXTRA_BUYERS: &str = "customers_purchased_extra";
/// The control data of a book's extras.
pub const CONTROL: &str = "has_extras_control";

/// A database with a collection of books.
#[derive(Debug, Clone)]
pub struct Books {
    /// Its name.
    pub database: String,
    /// Buyers in a base document, at most.
    pub threshold: usize,
    /// Buyers in a page, at most.
    pub max_items: usize,
}

/// What lies in mongod beside base documents that are in order.
#[derive(Debug, Default)]
pub struct Found {
    /// What must never be.
    pub wrong: Vec<String>,
    /// Pages that no base document counts, by `_id`: a crash may leave them.
    pub uncounted: Vec<String>,
    /// Buyers in tails: a crash may leave them there.
    pub in_tails: usize,
}

impl Books {
    /// A database of its own.
    #[must_use]
    pub fn new(threshold: usize, max_items: usize) -> Self {
        Self {
            database: database_name(),
            threshold,
            max_items,
        }
    }

    /// The table for the proxy's configuration file.
    #[must_use]
    pub fn toml(&self) -> String {
        format!(
            "[[outlier]]\nnamespace = \"{}.{COLLECTION}\"\narray = \"{BUYERS}\"\nthreshold = {}\n\
             extras = {{ collection = \"{EXTRAS}\", ref = \"book_id\", max_items = {} }}\n",
            self.database, self.threshold, self.max_items
        )
    }

    /// A proxy before the server of this URI.
    pub fn proxy(&self, uri: &str) -> Result<Proxy> {
        Proxy::start(&ProxyOptions::new(uri).config(&self.toml()))
    }

    /// Checks the stored documents after the pending tails are spilled.
    pub fn look_at_rest(&self, mongod: &mut Connection) -> Result<Found> {
        at_rest(|| self.look(mongod), |found| found.in_tails == 0)
    }

    /// Checks the stored documents. No writer may run.
    pub fn look(&self, mongod: &mut Connection) -> Result<Found> {
        let mut found = Found::default();
        let mut pages: BTreeMap<ObjectId, Vec<Document>> = BTreeMap::new();
        for page in mongod.find(&self.database, EXTRAS, doc! {})? {
            let generation = page.get_document("control")?.get_object_id("generation")?;
            pages.entry(generation).or_default().push(page);
        }
        for base in mongod.find(&self.database, COLLECTION, doc! {})? {
            let Some(control) = base.get(CONTROL) else {
                if base.contains_key("has_extras") {
                    found
                        .wrong
                        .push(format!("{}: flagged without control", base.get("_id").context("_id")?));
                }
                self.check_length(&base, &mut found);
                continue;
            };
            let control = control.as_document().context("control")?;
            let generation = control.get_object_id("generation")?;
            found.in_tails += control.get_array("tail")?.len();
            self.check_length(&base, &mut found);
            let of_base = pages.remove(&generation).unwrap_or_default();
            if let Err(error) = self.check_pages(&base, of_base, &mut found) {
                found
                    .wrong
                    .push(format!("{}: {error:#}", base.get("_id").context("_id")?));
            }
        }
        for page in pages.into_values().flatten() {
            found.uncounted.push(page.get_str("_id")?.to_owned());
        }
        Ok(found)
    }

    fn check_length(&self, base: &Document, found: &mut Found) {
        let length = base.get_array(BUYERS).map_or(0, Vec::len);
        if length > self.threshold {
            found
                .wrong
                .push(format!("{:?}: {length} buyers in the base", base.get("_id")));
        }
    }

    fn check_pages(&self, base: &Document, mut pages: Vec<Document>, found: &mut Found) -> Result<()> {
        let control = base.get_document(CONTROL)?;
        ensure!(control.get_i32("v")? == 1, "the version is not 1");
        ensure!(base.get_bool("has_extras")?, "no flag");
        let from = |page: &Document| page.get_document("control").and_then(|control| control.get_i64("from"));
        pages.sort_by_key(|page| from(page).unwrap_or(-1));
        let mut end = 0;
        for page in &pages {
            let length = page.get_array(EXTRA_BUYERS)?.len();
            ensure!(page.get("book_id") == base.get("_id"), "{page} refers to another");
            ensure!(
                from(page)? == i64::try_from(end)?,
                "a page from {} behind {end}",
                from(page)?
            );
            ensure!(
                i64::from(page.get_i32("count")?) == i64::try_from(length)?,
                "a page miscounts {length}"
            );
            ensure!((1..=self.max_items).contains(&length), "{length} buyers in a page");
            end += length;
        }
        let counted = usize::try_from(control.get_i64("count")?)?;
        ensure!(counted <= end, "{counted} are counted, and there are {end}");
        if counted < end {
            found
                .uncounted
                .push(format!("{} elements of {:?}", end - counted, base.get("_id")));
        }
        Ok(())
    }

    /// What must never be, even for a moment: too many buyers in a base document or in a page.
    pub fn overfull(&self, mongod: &mut Connection) -> Result<Vec<Document>> {
        let beyond = format!("{BUYERS}.{}", self.threshold);
        let find =
            doc! { "find": COLLECTION, "filter": { beyond: { "$exists": true } }, "limit": 1, "$db": &self.database };
        let mut overfull = mongod.all(&find)?;
        let beyond = format!("{EXTRA_BUYERS}.{}", self.max_items);
        let find =
            doc! { "find": EXTRAS, "filter": { beyond: { "$exists": true } }, "limit": 1, "$db": &self.database };
        overfull.extend(mongod.all(&find)?);
        Ok(overfull)
    }
}
