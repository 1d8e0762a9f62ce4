//! The projection of a `findAndModify`.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::arguments::with_replaced;
use crate::command::document::{get, put};
use crate::command::find::Find;
use crate::command::find_and_modify::FindAndModify;
use crate::pattern::bucket::predicate_pushdown::key_position;
use crate::pattern::bucket::projection::Projection;
use crate::pattern::unwound::{self, names_nothing};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::item_lookup;
use crate::session::bucket::upstream_query::documents;
use crate::session::error::RunError;

/// Whether a reply is that of a retried command. mongod then returns the whole document.
pub(in crate::session::bucket) fn is_retried(reply: &RawDocument) -> bool {
    get(reply, "retriedStmtId").is_some()
}

/// The projection of the document in a reply.
pub(in crate::session::bucket) fn projection_of<'p>(reply: &RawDocument, asked: &'p Projection) -> &'p Projection {
    if is_retried(reply) { &Projection::All } else { asked }
}

/// The projection, by whom it is evaluated.
pub(super) enum ItemProjection {
    /// The proxy includes or excludes top-level fields.
    ByProxy(Projection),
    /// mongod executes these stages on the item, after it was changed. A projection that fails then fails as
    /// on a plain collection, where the document has been changed, too.
    ByMongod(Vec<RawDocumentBuf>),
}

impl ItemProjection {
    /// The projection of the command. If mongod evaluates it, it validates that of a removal here, which
    /// costs one round trip. That of an update is validated with the update, because mongod reports an error
    /// in the update first.
    ///
    /// # Errors
    /// A projection that is not supported, and mongod's error for an invalid one.
    pub(super) async fn of(run: &mut BucketCommand<'_>, command: &FindAndModify<'_>) -> Result<Self, RunError> {
        if let Some(projection) = Projection::parse(command.projection) {
            return Ok(Self::ByProxy(projection));
        }
        if command.remove {
            item_lookup::check(run, command.filter)?;
            run.ensure_readable(None).await?;
        }
        let find = Find {
            projection: command.projection,
            collation: command.collation,
            let_variables: command.let_variables,
            ..Find::default()
        };
        let refused = |form: &str| run.unsupported(&format!("findAndModify with {form} in its projection"));
        let stages = unwound::of_find(&find, |field| key_position(run.shape, field).is_some()).map_err(refused)?;
        // mongod validates no projection of a command on a missing collection.
        if command.remove && run.collection.is_some() {
            // mongod reports an error in the filter first. It crashes on some filters on a field without a
            // name.
            let filter = command
                .filter
                .filter(|filter| !names_nothing(RawBsonRef::Document(filter)));
            let find = Find { filter, ..find };
            let mut validation = unwound::projection_validation(run.namespace.collection, &find).map_err(refused)?;
            run.context.inherited().append_to_internal_read(&mut validation);
            run.context.link.run(&validation).await?;
        }
        Ok(Self::ByMongod(stages))
    }

    /// Whether mongod evaluates the projection.
    pub(super) fn is_by_mongod(&self) -> bool {
        matches!(self, Self::ByMongod(_))
    }

    /// The part that the proxy evaluates.
    pub(super) fn by_proxy(&self) -> &Projection {
        match self {
            Self::ByProxy(projection) => projection,
            Self::ByMongod(_) => &Projection::All,
        }
    }

    /// The reply with the projected item, from a reply with the item after [`Self::by_proxy`].
    pub(super) async fn projected(
        &self,
        run: &mut BucketCommand<'_>,
        command: &FindAndModify<'_>,
        reply: RawDocumentBuf,
    ) -> Result<RawDocumentBuf, RunError> {
        let Self::ByMongod(stages) = self else {
            return Ok(reply);
        };
        if is_retried(&reply) {
            return Ok(reply);
        }
        let Some(item) = get(&reply, "value").and_then(RawBsonRef::as_document) else {
            return Ok(reply);
        };
        let mut evaluation = unwound::aggregate_document(item, stages);
        for (name, value) in [("collation", command.collation), ("let", command.let_variables)] {
            if let Some(value) = value {
                put(&mut evaluation, name, value);
            }
        }
        run.context.inherited().append_to_internal_read(&mut evaluation);
        let answer = run.context.link.run(&evaluation).await?;
        let item = documents(&answer).next().map(RawBsonRef::Document);
        Ok(with_replaced(
            &reply,
            &[("value", Some(item.unwrap_or(RawBsonRef::Null)))],
        ))
    }
}
