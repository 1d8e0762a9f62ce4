//! Earlier attempts of a retryable write on a collection with an automatic shape, which may have been
//! executed in the other layout. mongod's retry records do not depend on the layout, but their meaning does.

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::command::BucketCommand;
use super::insert;
use super::item_update::ItemUpdate;
use super::update::is_relocated;
use super::upsert;
use super::write_statement::is_remembered;
use crate::command::document::get;
use crate::command::find_and_modify::FindAndModify;
use crate::command::registry::Command;
use crate::command::update::Update;
use crate::pattern::bucket::update_by_id::UpdateRequest;
use crate::pattern::shapes::{BucketShape, StoredLayout};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// What an earlier attempt has executed that mongod, or the planner of the current layout, would not find.
#[derive(Debug)]
pub(in crate::session) enum EarlierAttempt {
    /// Nothing of that kind.
    None,
    /// Statements of an `insert` or `update`.
    Statements(Vec<ExecutedStatement>),
    /// A `findAndModify`, with mongod's reply.
    Reply(RawDocumentBuf),
    /// These statements of an `update`, or a `findAndModify`, were executed on pages. The collection of
    /// pages, which is kept, has what is needed to repeat the reply.
    OnPages(Vec<usize>),
}

/// A statement that was executed.
#[derive(Debug)]
pub(in crate::session) struct ExecutedStatement {
    pub(in crate::session) index: usize,
    pub(in crate::session) statement_id: i32,
    /// The `_id` of an upserted document.
    pub(in crate::session) upserted: Option<RawBson>,
}

impl BucketCommand<'_> {
    /// Looks for an earlier attempt of the command in the other layout than `current`. Costs one round trip
    /// for each statement that could need it.
    pub(in crate::session) async fn earlier_attempt(
        &mut self,
        current: StoredLayout,
    ) -> Result<EarlierAttempt, RunError> {
        match (self.context.head.command, current) {
            (Command::Insert, StoredLayout::Plain) => self.stored_on_pages().await,
            (Command::Update, StoredLayout::Plain) => self.updated_on_pages().await,
            (Command::Update, StoredLayout::Pages) => self.upserted_plain().await,
            (Command::FindAndModify, _) => self.found_and_modified(current).await,
            _ => Ok(EarlierAttempt::None),
        }
    }

    /// On pages, only the first item of a page has a record.
    async fn stored_on_pages(&mut self) -> Result<EarlierAttempt, RunError> {
        let command = crate::command::insert::Insert::parse(self.context.head)?;
        if command.documents.len() < 2 {
            return Ok(EarlierAttempt::None);
        }
        let mut stored = insert::stored_before(self).await?;
        stored.sort_unstable();
        let stored = stored.into_iter().map(|index| ExecutedStatement {
            index,
            statement_id: command.statement_id(index),
            upserted: None,
        });
        Ok(EarlierAttempt::of(stored.collect()))
    }

    /// On pages, upserts and relocations have records under other numbers, and the `_id` of an upserted item
    /// is not recorded.
    async fn updated_on_pages(&mut self) -> Result<EarlierAttempt, RunError> {
        let command = Update::parse(self.context.head)?;
        let mut executed = Vec::new();
        for (index, statement) in command.statements.iter().enumerate() {
            let id = command.statement_ids.of(index);
            let mut task = ItemUpdate::new(
                UpdateRequest::from(statement),
                command.let_variables,
                statement.constants,
            );
            task.statement_id = Some(id);
            if statement.multi {
                continue;
            }
            if (statement.upsert && upsert::is_recorded(self, id).await?) || is_relocated(self, &task).await?.is_some()
            {
                executed.push(index);
            }
        }
        Ok(if executed.is_empty() {
            EarlierAttempt::None
        } else {
            EarlierAttempt::OnPages(executed)
        })
    }

    /// The planner of pages does not expect that a record has the `_id` of an upserted document.
    async fn upserted_plain(&mut self) -> Result<EarlierAttempt, RunError> {
        let command = Update::parse(self.context.head)?;
        let statements = command.statements.iter().enumerate();
        let upserts: Vec<usize> = statements
            .filter(|(_, statement)| statement.upsert && !statement.multi)
            .map(|(index, _)| index)
            .collect();
        let ids: Vec<i32> = upserts.iter().map(|index| command.statement_ids.of(*index)).collect();
        let mut recorded = insert::remembered(self, &ids).await?;
        let executed = upserts.into_iter().zip(ids).filter_map(|(index, statement_id)| {
            let upserted = recorded.remove(&statement_id)?.into_inserted()?;
            Some(ExecutedStatement {
                index,
                statement_id,
                upserted: Some(upserted),
            })
        });
        Ok(EarlierAttempt::of(executed.collect()))
    }

    /// mongod's record of a `findAndModify` has the document before or after it: a page or a plain document.
    async fn found_and_modified(&mut self, current: StoredLayout) -> Result<EarlierAttempt, RunError> {
        let command = FindAndModify::parse(self.context.head.body())?;
        let id = command.statement_id.unwrap_or(0);
        if is_remembered(self, id).await?.is_some() {
            // The record answers the command, whatever the name denotes.
            let reply = self
                .context
                .link
                .call(UpstreamRequest::plain(self.context.head.body()))
                .await?;
            let image = get(&reply, "value").and_then(RawBsonRef::as_document);
            let is_page = image.map(|image| is_page(self.shape, image));
            return Ok(match (is_page, current) {
                (Some(true), StoredLayout::Plain) => EarlierAttempt::OnPages(Vec::new()),
                (Some(true), StoredLayout::Pages) => EarlierAttempt::None,
                (Some(false) | None, _) => EarlierAttempt::Reply(reply),
            });
        }
        let Some(change) = command
            .change
            .filter(|_| !command.remove && current == StoredLayout::Plain)
        else {
            return Ok(EarlierAttempt::None);
        };
        let asked = UpdateRequest {
            filter: command.filter,
            change,
            array_filters: command.array_filters,
            collation: command.collation,
        };
        let mut task = ItemUpdate::new(asked, command.let_variables, None);
        task.statement_id = Some(id);
        let is_elsewhere =
            (command.upsert && upsert::is_recorded(self, id).await?) || is_relocated(self, &task).await?.is_some();
        Ok(if is_elsewhere {
            EarlierAttempt::OnPages(Vec::new())
        } else {
            EarlierAttempt::None
        })
    }
}

impl EarlierAttempt {
    fn of(executed: Vec<ExecutedStatement>) -> Self {
        if executed.is_empty() {
            Self::None
        } else {
            Self::Statements(executed)
        }
    }
}

/// Whether an image is that of a page. No conversion accepts plain documents of that form.
fn is_page(shape: &BucketShape, image: &RawDocument) -> bool {
    let is_number = |value: RawBsonRef<'_>| {
        matches!(
            value,
            RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_)
        )
    };
    let control = get(image, BucketShape::CONTROL).and_then(RawBsonRef::as_document);
    let is_versioned = control.and_then(|control| get(control, "v")).is_some_and(is_number);
    is_versioned
        || (get(image, shape.items()).is_some_and(|items| items.as_array().is_some())
            && get(image, shape.count()).is_some_and(is_number))
}
