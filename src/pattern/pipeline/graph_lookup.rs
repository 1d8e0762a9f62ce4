//! `$graphLookup`, which takes no pipeline: it reads the view of a shaped collection's items.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::{PipelineRefusal, Pipelines, bucket};
use crate::command::arguments::with_replaced;
use crate::command::document::get;
use crate::pattern::bucket::items_view;
use crate::pattern::shapes::ItemIds;
use crate::pattern::unwound::match_documents;

impl Pipelines<'_> {
    /// The stage's new arguments. `None` if they do not change.
    pub(super) fn graph_lookup(
        &mut self,
        stage: &RawDocument,
        spec: &RawDocument,
    ) -> Result<Option<RawDocumentBuf>, PipelineRefusal> {
        let from = match get(spec, "from") {
            Some(RawBsonRef::String(from)) if super::lookup::is_given_once(spec, "from") => from,
            _ => {
                self.refuse_all(
                    stage,
                    "a $graphLookup with two from arguments or with a database in from",
                )?;
                return Ok(None);
            }
        };
        let Some(shape) = self.shaped(from) else {
            return Ok(None);
        };
        let Some(bucket) = bucket(&shape) else {
            return Err(self.refused(from, &shape, "$graphLookup (it has no pipeline to merge extras)"));
        };
        if bucket.item_ids() == ItemIds::Dropped {
            // mongod distinguishes documents by `_id` (error 40271).
            return Err(self.refused(from, &shape, "$graphLookup of items without an _id"));
        }
        self.reach(from, &shape, true);
        let view = items_view::name(from);
        let search = get(spec, "restrictSearchWithMatch").and_then(RawBsonRef::as_document);
        let search = search.map(match_documents);
        let search = search.as_ref().and_then(|stage| get(stage, "$match"));
        let mut replaced = vec![("from", Some(RawBsonRef::String(&view)))];
        if search.is_some() {
            replaced.push(("restrictSearchWithMatch", search));
        }
        Ok(Some(with_replaced(spec, &replaced)))
    }
}
