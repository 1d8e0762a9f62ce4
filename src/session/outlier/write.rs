//! Selecting and replacing documents, for `update`, `delete` and `findAndModify`.

use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use super::id_cursor::Selection;
use super::internal_write::OutlierWriteResult;
use super::page_store::Written;
use crate::command::arguments::with_replaced;
use crate::command::collection::is_of_a_language;
use crate::command::document::{array_of, get, put, single};
use crate::command::error::CommandError;
use crate::command::find::Find;
use crate::command::reply::CursorReply;
use crate::pattern::exact_match::{holds_text, same};
use crate::pattern::outlier::classify::depends_on_array;
use crate::pattern::outlier::layout::{DocumentState, Split, is_typical};
use crate::pattern::outlier::pipeline;
use crate::pattern::outlier::statement::replacing;
use crate::pattern::unsupported::Unsupported;
use crate::pattern::unwound;
use crate::session::error::RunError;

/// The filter and options that select documents.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DocumentSelector<'a> {
    pub(super) filter: Option<&'a RawDocument>,
    pub(super) sort: Option<&'a RawDocument>,
    pub(super) collation: Option<&'a RawDocument>,
    pub(super) hint: Option<RawBsonRef<'a>>,
    pub(super) variables: Option<&'a RawDocument>,
}

impl<'a> DocumentSelector<'a> {
    /// The single `_id` that the filter requires, if any.
    pub(super) fn id(&self) -> Option<RawBsonRef<'a>> {
        let id = get(self.filter?, "_id")?;
        let is_value = match id {
            RawBsonRef::RegularExpression(_) | RawBsonRef::Array(_) | RawBsonRef::Undefined => false,
            RawBsonRef::Document(words) => !words.iter().flatten().any(|(name, _)| name.as_str().starts_with('$')),
            _ => true,
        };
        let is_one = !self.may_equal_others(id);
        (is_value && is_one).then_some(id)
    }

    /// Whether several `_id`s may be equal to this one under the collation.
    fn may_equal_others(&self, id: RawBsonRef<'_>) -> bool {
        self.collation.is_some_and(is_of_a_language) && holds_text(id)
    }

    /// The filter, restricted to the document with this `_id`.
    fn with_id(&self, id: RawBsonRef<'_>) -> Result<RawDocumentBuf, Unsupported> {
        if let Some(filter) = self.filter.filter(|_| self.id().is_some()) {
            // The filter contains the `_id`.
            return Ok(filter.to_owned());
        }
        let mut of_id = single("_id", single("$eq", id));
        if self.may_equal_others(id) {
            put(&mut of_id, "$expr", same("$_id".into(), id, true)?);
        }
        Ok(match self.filter {
            Some(filter) => single("$and", array_of(&[filter.to_owned(), of_id])),
            None => of_id,
        })
    }
}

impl OutlierCommand<'_> {
    /// Whether an expression may depend on the array.
    pub(super) fn depends(&self, words: Option<&RawDocument>) -> bool {
        words.is_some_and(|words| depends_on_array(self.shape, words))
    }

    /// The selector's filter, restricted to the document with this `_id`. No other document matches it, not
    /// even under a collation.
    pub(super) fn filter_of(
        &self,
        selector: DocumentSelector<'_>,
        id: RawBsonRef<'_>,
    ) -> Result<RawDocumentBuf, CommandError> {
        selector.with_id(id).map_err(|what| self.unsupported(&what))
    }

    /// The `_id` of the first matching document.
    pub(super) async fn first_id(&mut self, selector: DocumentSelector<'_>) -> Result<Option<RawBson>, RunError> {
        let (mut command, merges) = self.id_query(selector, Selection::Found, 1)?;
        self.context.inherited().append_to_selection(&mut command);
        let answer = if merges {
            self.put_together(&command).await?
        } else {
            self.context.link.run(&command).await?
        };
        let found = CursorReply::parse(&answer).and_then(|cursor| cursor.documents().next());
        Ok(found.and_then(|found| get(found, "_id")).map(RawBson::from))
    }

    /// Whether no document matches a filter that names an `_id` and has other conditions, none of them on the
    /// array. A query on base documents is cheaper than an evaluation on a copy.
    pub(super) async fn is_mismatch(&mut self, selector: DocumentSelector<'_>) -> Result<bool, RunError> {
        let is_narrower = selector.filter.is_some_and(|filter| filter.iter().count() > 1);
        if selector.id().is_none() || !is_narrower || self.depends(selector.filter) {
            return Ok(false);
        }
        let sort = None;
        let found = self.first_id(DocumentSelector { sort, ..selector }).await?;
        Ok(found.is_none())
    }

    /// The stored document with that `_id`, like [`base`](Self::base). `None` if it does not match the
    /// filter, which demands that `_id` and does not depend on the array.
    pub(super) async fn matching_base(
        &mut self,
        selector: DocumentSelector<'_>,
        id: RawBsonRef<'_>,
    ) -> Result<Option<RawDocumentBuf>, RunError> {
        let (of_id, _) = self.id_query(selector, Selection::Found, 1)?;
        let mut query = with_replaced(&of_id, &[("projection", None)]);
        self.context.inherited().append_to_selection(&mut query);
        let answer = self.context.link.run(&query).await?;
        let Some(found) = CursorReply::parse(&answer).and_then(|cursor| cursor.documents().next()) else {
            return Ok(None);
        };
        if DocumentState::of(self.shape, found) == DocumentState::Unmanaged {
            return self.base(id).await;
        }
        self.check_collation().await?;
        Ok(Some(found.to_owned()))
    }

    /// The query for the `_id`s of matching documents, and whether it is a pipeline that
    /// reassembles outliers. `limit`: 0 for all.
    pub(super) fn id_query(
        &self,
        selector: DocumentSelector<'_>,
        selection: Selection,
        limit: u64,
    ) -> Result<(RawDocumentBuf, bool), RunError> {
        let only_id = single("_id", 1);
        let by_id = (selection == Selection::ById).then_some(&*only_id);
        let find = Find {
            filter: selector.filter.filter(|filter| !filter.is_empty()),
            sort: by_id.or(selector.sort).filter(|sort| !sort.is_empty()),
            projection: Some(&only_id),
            limit,
            ..Find::default()
        };
        let merges = self.depends(find.filter) || self.depends(find.sort);
        let is_outlier = single("$nor", array_of(&[is_typical(self.shape)]));
        let is_outlier = Some(is_outlier).filter(|_| selection == Selection::Outliers);
        let mut command = if merges {
            let mut stages = pipeline::of_find(self.shape, &find).map_err(|what| self.unsupported(&what))?;
            if let Some(is_outlier) = is_outlier {
                // Must come first: after the stages that reassemble outliers, the proxy's own fields
                // are gone.
                stages.insert(0, single("$match", is_outlier));
            }
            unwound::aggregate(self.namespace.collection, &stages, None)
        } else {
            let mut command = single("find", self.namespace.collection);
            let of_outliers = is_outlier.map(|is_outlier| match find.filter {
                Some(filter) => single("$and", array_of(&[filter.to_owned(), is_outlier])),
                None => is_outlier,
            });
            for (name, words) in [
                ("filter", of_outliers.as_deref().or(find.filter)),
                ("sort", find.sort),
                ("projection", find.projection),
            ] {
                if let Some(words) = words {
                    put(&mut command, name, words);
                }
            }
            if limit > 0 {
                put(&mut command, "limit", i64::try_from(limit).unwrap_or(i64::MAX));
                put(&mut command, "singleBatch", true);
            }
            command
        };
        for (name, words) in [("collation", selector.collation), ("let", selector.variables)] {
            if let Some(words) = words {
                put(&mut command, name, words);
            }
        }
        if let Some(hint) = selector.hint {
            command.append(cstr!("hint"), hint);
        }
        Ok((command, merges))
    }

    /// Replaces a stored document by an `update` or `findAndModify` (`name`). `None`: the document or the
    /// collection has changed since it was read.
    pub(super) async fn replace(
        &mut self,
        stored: &RawDocument,
        then: &RawDocument,
        name: &str,
        id: i32,
    ) -> Result<Option<OutlierWriteResult>, RunError> {
        if let Some((own, _)) = then.iter().flatten().find(|(name, _)| self.shape.is_own(name.as_str())) {
            let what = format!("a document with the field `{}`", own.as_str());
            return Err(self.unsupported(&what).into());
        }
        let before = self.extras_of(stored)?;
        let generation = ObjectId::new();
        let Split { base, pages } = self.split(then, generation).await?;
        let Some(of) = get(stored, "_id") else {
            return Err(self.misfit().into());
        };
        let written = Written::of(&base, generation, &pages);
        let (filter, change) = replacing(stored, &base).map_err(|what| self.unsupported(&what))?;
        self.write_pages(&pages, &written).await?;
        let result = self.replace_by(name, &filter, &change, id).await;
        let result = self.settled(result, &written).await;
        let Some(result) = self.of_checked_collection(result)? else {
            return Ok(None);
        };
        let is_done = result.error.is_none() && result.n > 0 && !result.resent;
        if let Some(before) = before.filter(|_| is_done) {
            self.remove_pages(of, before.generation).await?;
        }
        Ok((result.error.is_some() || result.n > 0).then_some(result))
    }

    async fn replace_by(
        &mut self,
        name: &str,
        filter: &RawDocument,
        change: &RawBson,
        id: i32,
    ) -> Result<OutlierWriteResult, RunError> {
        if name == "update" {
            let mut statement = single("q", filter);
            put(&mut statement, "u", change);
            put(&mut statement, "collation", single("locale", "simple"));
            return self.write_evaluated(&statement, id).await;
        }
        let mut command = single("findAndModify", self.namespace.collection);
        put(&mut command, "query", filter);
        put(&mut command, "update", change);
        if let Some(new) = get(self.context.head.body(), "new") {
            // Determines which image mongod keeps for a retry.
            put(&mut command, "new", new);
        }
        put(&mut command, "collation", single("locale", "simple"));
        self.find_and_modify(command).await
    }
}

/// Whether a filter contains `$expr`. mongod refuses an upsert with such a filter, whether or not a
/// document matches.
pub(super) fn has_expression(filter: &RawDocument) -> bool {
    filter
        .iter()
        .flatten()
        .any(|(name, value)| match (name.as_str(), value) {
            ("$expr", _) => true,
            ("$and" | "$or" | "$nor", RawBsonRef::Array(branches)) => {
                let mut branches = branches.into_iter().flatten().filter_map(RawBsonRef::as_document);
                branches.any(has_expression)
            }
            _ => false,
        })
}

/// The client's filter, and a condition that matches nothing.
pub(super) fn matching_nothing(filter: &RawDocument) -> RawDocumentBuf {
    let none = single("_id", single("$in", RawArrayBuf::new()));
    single("$and", array_of(&[filter.to_owned(), none]))
}
