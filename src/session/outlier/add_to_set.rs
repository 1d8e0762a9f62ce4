//! `$addToSet` on an outlier: mongod compares the values with the elements, in the base document and by one query of
//! its pages. The values that the array does not contain go to the tail, if the array is still the same.

use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use super::hot_documents::KnownOutliers;
use super::id_cursor::Selection;
use super::push::Push;
use super::update::{At, OutlierUpdate};
use super::write::DocumentSelector;
use crate::command::arguments::with_replaced;
use crate::command::collection::is_of_a_language;
use crate::command::document::single;
use crate::command::reply::{CursorReply, succeeded};
use crate::pattern::outlier::add_to_set::{Partition, SetValues};
use crate::pattern::outlier::classify::Growth;
use crate::pattern::outlier::layout::{DocumentState, Extras};
use crate::pattern::outlier::statement::{Append, outlier_with_pages, typical, typical_with_room};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// The most pages that may contain one of the values: their reply is one batch.
const MAX_PAGES: usize = 1000;

/// The `$addToSet` of one statement to one document. The statement changes the array in no other way, and its filter
/// does not depend on the array.
pub(super) struct SetAddition<'a> {
    statement: &'a OutlierUpdate<'a, 'a>,
    operators: &'a RawDocument,
    values: SetValues,
    /// The statement's filter, with the document's `_id`.
    filter: &'a RawDocument,
    id: RawBsonRef<'a>,
}

/// The state of the document before the addition.
enum Before {
    /// No document matches the filter.
    NoMatch,
    /// The document must be evaluated on a copy.
    Other,
    Inline(Partition),
    Outlier {
        extras: Extras,
        values: Partition,
    },
}

impl<'a> SetAddition<'a> {
    /// The addition of a statement to the document with this `_id`. `None`: the statement is another change, or
    /// compares strings by a collation, for which pages have no index.
    pub(super) fn of(
        run: &OutlierCommand<'_>,
        statement: &'a OutlierUpdate<'a, 'a>,
        filter: &'a RawDocument,
        id: RawBsonRef<'a>,
    ) -> Option<Self> {
        let operators = statement.of.change.as_document()?;
        let is_collated = statement.of.collation.is_some_and(is_of_a_language);
        if is_collated || run.depends(Some(filter)) {
            return None;
        }
        Some(Self {
            statement,
            operators,
            values: SetValues::of(run.shape, operators)?,
            filter,
            id,
        })
    }

    /// Whether the document was an outlier when a command last read it.
    pub(super) fn is_to_known_outlier(&self, run: &OutlierCommand<'_>) -> bool {
        self.known_generation(run).is_some()
    }

    fn known_generation(&self, run: &OutlierCommand<'_>) -> Option<ObjectId> {
        let place = KnownOutliers::place(run.namespace, self.id);
        run.context.settings.known_outliers.get(&place)
    }

    /// Adds the values to an outlier, or to an inline document that may have no room for them. `None`: the document
    /// must be evaluated on a copy.
    pub(super) async fn run(&self, run: &mut OutlierCommand<'_>) -> Result<Option<At>, RunError> {
        for attempt in 0..MAX_ATTEMPTS {
            pause(attempt).await;
            let added = match self.before(run).await? {
                Before::NoMatch => Some(At::NoMatch),
                Before::Other => return Ok(None),
                Before::Inline(values) => {
                    if values.absent.count() > run.shape.threshold() {
                        return Ok(None);
                    }
                    self.to_inline(run, &values).await?
                }
                Before::Outlier { extras, values } => {
                    let unchanged = outlier_with_pages(run.shape, self.filter, &extras);
                    let operators = values.absent.replacing(run.shape, self.operators);
                    let push = self.push(&operators, &unchanged, &values);
                    push.append(run, extras.generation).await?
                }
            };
            if added.is_some() {
                return Ok(added);
            }
        }
        Ok(None)
    }

    /// The push of the absent values, as a set: another client may push an equal value to the tail.
    fn push<'p>(&'p self, operators: &'p RawDocument, filter: &'p RawDocument, values: &Partition) -> Push<'p> {
        Push {
            statement: self.statement,
            operators,
            append: Append::ToSet,
            count: values.absent.count(),
            filter,
            id: self.id,
        }
    }

    /// Adds the values to an inline document, by the client's own statement. `None`: the document has changed, or had
    /// no room and is an outlier now.
    async fn to_inline(&self, run: &mut OutlierCommand<'_>, values: &Partition) -> Result<Option<At>, RunError> {
        let filter = values.present.demanded(run.shape, self.filter);
        let count = values.absent.count();
        if let Some(inline) = typical_with_room(run.shape, &filter, Growth::By(count))
            && let Some(at) = self.statement.on_inline(run, &inline).await?
        {
            return Ok(Some(at));
        }
        if count == 0 {
            return Ok(None);
        }
        if !run.may_split().await? {
            // It stays whole.
            let typical = typical(run.shape, self.filter);
            return self.statement.on_inline(run, &typical).await;
        }
        let push = self.push(self.operators, self.filter, values);
        push.make_outlier(run, ObjectId::new()).await?;
        Ok(None)
    }

    /// Reads the state of the document. The base document is read first, so its pages contain all elements that it
    /// counts.
    async fn before(&self, run: &mut OutlierCommand<'_>) -> Result<Before, RunError> {
        run.check_collation().await?;
        let known = self.known_generation(run);
        let mut queries = vec![self.base(run)?];
        queries.extend(known.map(|generation| self.pages(run, generation)));
        let requests: Vec<_> = queries.iter().map(|query| UpstreamRequest::plain(query)).collect();
        let mut answers = run.context.link.call_all(&requests).await?.into_iter();
        let base = succeeded(answers.next().unwrap_or_default())?;
        let Some(base) = CursorReply::parse(&base).and_then(|cursor| cursor.documents().next()) else {
            return Ok(Before::NoMatch);
        };
        let place = KnownOutliers::place(run.namespace, self.id);
        let extras = match DocumentState::of(run.shape, base) {
            DocumentState::Outlier(extras) => extras,
            DocumentState::Inline => {
                run.context.settings.known_outliers.forget(&place);
                let values = self.values.partition(run.shape, base, []);
                return Ok(values.map_or(Before::Other, Before::Inline));
            }
            DocumentState::Unmanaged | DocumentState::Invalid => return Ok(Before::Other),
        };
        run.context.settings.known_outliers.learn(place, extras.generation);
        let pages = if known == Some(extras.generation) {
            succeeded(answers.next().unwrap_or_default())?
        } else {
            run.context.link.run(&self.pages(run, extras.generation)).await?
        };
        let pages: Vec<_> = CursorReply::parse(&pages).map_or_else(Vec::new, |cursor| cursor.documents().collect());
        if pages.len() >= MAX_PAGES {
            return Ok(Before::Other);
        }
        let values = self.values.partition(run.shape, base, pages);
        Ok(values.map_or(Before::Other, |values| Before::Outlier { extras, values }))
    }

    /// The query for the control of the base document, and for the values that it contains.
    fn base(&self, run: &OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
        let selector = DocumentSelector {
            filter: Some(self.filter),
            sort: None,
            ..self.statement.selector()
        };
        let (of_id, _) = run.id_query(selector, Selection::Found, 1)?;
        let projection = self.values.presence_in_base(run.shape);
        let projection = Some(RawBsonRef::Document(&projection));
        let mut query = with_replaced(&of_id, &[("projection", projection)]);
        run.context.inherited().append_to_selection(&mut query);
        Ok(query)
    }

    /// The query for the pages of a generation that contain some of the values.
    fn pages(&self, run: &OutlierCommand<'_>, generation: ObjectId) -> RawDocumentBuf {
        let mut query = single("find", run.shape.extras_collection());
        query.append(cstr!("filter"), self.values.pages(run.shape, self.id, generation));
        query.append(cstr!("projection"), self.values.presence_in_page(run.shape));
        query.append(cstr!("limit"), i32::try_from(MAX_PAGES).unwrap_or(i32::MAX));
        query.append(cstr!("batchSize"), i32::try_from(MAX_PAGES).unwrap_or(i32::MAX));
        query.append(cstr!("singleBatch"), true);
        query.append(cstr!("collation"), single("locale", "simple"));
        run.context.inherited().append_to_read_of_write(&mut query);
        query
    }
}
