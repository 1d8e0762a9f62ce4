//! Sets up the collection of a bucket shape: adopts hand-written buckets, and creates the indexes.

use bson::{Document, doc};
use mongodb::error::Error;

use super::{SetupRun, adopt, direct_writes};
use crate::command::collection::IMAGES;
use crate::maintenance::check::collection;
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::inspect::{ContentsCheck, SCAN_TIMEOUT, first_foreign};
use crate::maintenance::upstream::{ShapedCollection, description, explain, indexes};
use crate::pattern::bucket::index;
use crate::pattern::shape_marker;
use crate::pattern::shapes::BucketShape;

/// One collection, in a run of `setup`.
pub(super) struct BucketSetup<'a> {
    pub(super) run: &'a SetupRun<'a>,
    pub(super) target: &'a ShapedCollection,
    pub(super) shape: &'a BucketShape,
}

impl BucketSetup<'_> {
    /// Makes the collection one of pages, if it contains nothing else than pages and buckets.
    pub(super) async fn set_up(&self, findings: &mut Findings) -> Result<(), Error> {
        let Self { run, target, shape } = self;
        let mut wanted = collection::wanted_indexes(shape);
        let asked = wanted.len();
        let described = description(&target.database, &target.collection).await?;
        let there = match described {
            Some(_) => indexes(target).await?,
            None => Vec::new(),
        };
        let mut unfit = Vec::new();
        if let Some(described) = &described {
            unfit.extend(collection::unfit(target, described));
            unfit.extend(collection::index_findings(target, shape, &there));
            unfit.retain(Finding::is_error);
        }
        wanted.retain(|wanted| !there.iter().any(|found| collection::serves_as(shape, wanted, found)));
        let wants_images = shape.change_streams() && !described.as_ref().is_some_and(collection::has_images);
        if !wanted.is_empty() {
            unfit.extend(run.may(target, &["createIndex"]));
        }
        if wants_images {
            unfit.extend(run.may(target, &["collMod"]));
        }
        if direct_writes::is_change_needed(shape, described.as_ref()) {
            unfit.extend(run.may(target, &["collMod", "createIndex", "dropIndex"]));
        }
        if !unfit.is_empty() {
            findings.extend(unfit);
            return Ok(());
        }
        // Proxies trust a collection that has the page index, so the index is created only if the
        // collection contains nothing but pages.
        if described.is_some() && !self.are_all_pages(Trust::of(&there), findings).await? {
            return Ok(());
        }
        // Proxies take a collection without the page index for a plain one if its shape is automatic. So the
        // command that creates the collection creates the indexes.
        if wants_images && described.is_some() {
            findings.add(&enable_images(target).await);
        }
        if wanted.is_empty() {
            findings.add(&Finding::fine(target.namespace(), format!("all {asked} indexes exist")));
            return direct_writes::set_up(self, findings).await;
        }
        findings.add(&create_indexes(target, wanted, asked).await);
        if described.is_none() && wants_images {
            findings.add(&enable_images(target).await);
        }
        // A writer may have taken the collection for a plain one, so the content is checked again.
        if described.is_some() && !self.are_all_pages(Trust::Indexed, findings).await? {
            return Ok(());
        }
        direct_writes::set_up(self, findings).await
    }

    /// Adopts hand-written buckets. Returns whether the collection then contains only pages. If not,
    /// findings have been reported.
    async fn are_all_pages(&self, trust: Trust, findings: &mut Findings) -> Result<bool, Error> {
        if trust == Trust::Indexed {
            match first_foreign(self.target, self.shape, SCAN_TIMEOUT).await? {
                ContentsCheck::Pages => return Ok(true),
                ContentsCheck::Unfinished(finding) => {
                    findings.add(&finding);
                    return Ok(true);
                }
                ContentsCheck::Foreign(_) => {}
            }
        }
        adopt::run(self, findings).await
    }
}

/// How thoroughly a collection's documents are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// The collection has the page index and a matching shape marker. A quick check for other
    /// documents is enough.
    Indexed,
    /// One of them is missing. Every page is checked against the layout.
    None,
}

impl Trust {
    fn of(indexes: &[Document]) -> Self {
        let has = |wanted| {
            indexes
                .iter()
                .any(|index| index.get_str("name").is_ok_and(|name| name == wanted))
        };
        if has(index::PAGE) && has(shape_marker::INDEX) {
            Self::Indexed
        } else {
            Self::None
        }
    }
}

/// Makes mongod store the images of pages for change streams.
async fn enable_images(target: &ShapedCollection) -> Finding {
    let command = doc! { "collMod": &target.collection, IMAGES: { "enabled": true } };
    match target.database.run_command(command).await {
        Ok(_) => Finding::fine(
            target.namespace(),
            "pre- and post-images of pages enabled for change streams",
        ),
        Err(error) => {
            let text = format!("pre- and post-images of pages cannot be enabled: {}", explain(&error));
            Finding::error(target.namespace(), text)
        }
    }
}

/// Also creates the collection if it does not exist.
async fn create_indexes(target: &ShapedCollection, missing: Vec<Document>, asked: usize) -> Finding {
    let created = missing.len();
    let command = doc! { "createIndexes": &target.collection, "indexes": missing };
    match target.database.run_command(command).await {
        Ok(_) => Finding::fine(target.namespace(), format!("{created} of {asked} indexes created")),
        Err(error) => {
            let text = format!("indexes cannot be created: {}", explain(&error));
            Finding::error(target.namespace(), text)
        }
    }
}
