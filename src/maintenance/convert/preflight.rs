//! Checks before the first write of a conversion.

use bson::Document;

use super::Request;
use super::layout::Layout;
use super::page_definition::PageDefinition;
use super::progress::estimate::{self, CopyEstimate, StoredSize};
use super::record::Record;
use super::subject::{Plan, Subject};
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::setup::pack::preflight::Fitness;
use crate::maintenance::swap::{Halt, placeholder, uuid_of};
use crate::maintenance::upstream::description;
use crate::pattern::bucket::conversion::kept_name;
use crate::pattern::shapes::BucketShape;

/// Whether the options contain a validator. The level of one that was removed remains.
fn has_validator(options: &Document) -> bool {
    options
        .get_document("validator")
        .is_ok_and(|validator| !validator.is_empty())
}

/// A collection before its conversion.
#[derive(Clone, Copy)]
pub(super) struct Preflight<'a> {
    pub(super) request: Request<'a>,
    pub(super) subject: &'a Subject,
    pub(super) plan: &'a Plan,
    /// The collection as listed.
    pub(super) described: &'a Document,
    /// The earlier conversion, whose kept collection will be dropped.
    pub(super) ended: Option<&'a Record>,
}

impl Preflight<'_> {
    /// Whether the collection can be converted. If not, findings have been reported. Reads all plain
    /// documents.
    pub(super) async fn is_fit(self, findings: &mut Findings) -> Result<bool, Halt> {
        let Self {
            request,
            subject,
            plan,
            described,
            ended,
        } = self;
        let namespace = &subject.namespace;
        let mut unfit: Vec<Finding> = [&plan.from, &plan.to]
            .into_iter()
            .filter_map(|layout| layout.unfit(namespace))
            .collect();
        let options = described.get_document("options").cloned().unwrap_or_default();
        if described.get_str("type").is_ok_and(|kind| kind != "collection") || options.contains_key("capped") {
            unfit.push(Finding::error(
                namespace,
                "is a view, a time-series or a capped collection",
            ));
        }
        if plan.from.is_plain() && has_validator(&options) {
            let text = "has a validator; remove it by `collMod`, and set it again after the conversion";
            unfit.push(Finding::error(namespace, text));
        }
        let kept = description(&subject.database, &kept_name(&subject.collection)).await?;
        let is_foreign = |kept: &Document| {
            let (uuid, recorded) = (uuid_of(kept).ok(), ended.map(|ended| ended.kept().uuid));
            !placeholder::is_placeholder(kept) && (uuid.is_none() || uuid.as_ref() != recorded)
        };
        if kept.is_some_and(|kept| is_foreign(&kept)) {
            let text = format!(
                "{} exists, which no conversion has recorded; rename or drop it",
                kept_name(&subject.collection)
            );
            unfit.push(Finding::error(namespace, text));
        }
        unfit.extend(request.lacking_rights(subject).await?);
        let mut definition = PageDefinition::default();
        if unfit.is_empty() {
            unfit = self.unfit_options()?;
            definition = self.page_definition().await?;
            let texts = definition.unfit.iter();
            unfit.extend(texts.map(|text| Finding::error(namespace, text)));
        }
        let is_fit = unfit.is_empty();
        findings.extend(unfit);
        if !is_fit {
            return Ok(false);
        }
        let size = StoredSize::of(&subject.database, &subject.collection).await?;
        let text = format!(
            "contains {}: {} stored documents, {} MiB; will contain {}",
            plan.from,
            size.count,
            size.bytes >> 20,
            plan.to
        );
        findings.add(&Finding::note(namespace, text));
        if request.options.is_dry_run {
            self.estimate(size, findings).await?;
        }
        if let (Layout::Plain, Layout::Pages(options)) = (&plan.from, &plan.to) {
            let target = subject.target(&plan.from, &plan.to)?;
            let shape = BucketShape::new((**options).clone()).map_err(|_| Halt::Misfit)?;
            let fitness = Fitness::of_documents(&target, &shape, request.options.missing, definition.indexes);
            return Ok(fitness.look_at_documents(request.stop, findings).await?.is_some());
        }
        Ok(true)
    }

    /// Reports the time and the room that the copy needs.
    async fn estimate(self, size: StoredSize, findings: &mut Findings) -> Result<(), Halt> {
        let (database, collection) = (&self.subject.database, &self.subject.collection);
        let target = self.subject.target(&self.plan.from, &self.plan.to)?;
        let pages = target.bucket().filter(|_| !self.plan.from.is_plain());
        let estimate = CopyEstimate {
            size,
            reading: estimate::reading_time(database, collection, size.count).await?,
            documents: estimate::documents(database, collection, pages).await?,
            is_to_pages: !self.plan.to.is_plain(),
            limits: self.request.options.pace,
        };
        for text in estimate.texts() {
            findings.add(&Finding::note(&self.subject.namespace, text));
        }
        Ok(())
    }
}
