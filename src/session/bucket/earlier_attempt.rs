//! Earlier attempts of a retryable write on a collection with an automatic shape, which may have been
//! executed before a conversion. mongod's retry records do not depend on the layout, but their meaning does.

use std::collections::{BTreeSet, HashSet};

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::BucketCommand;
use super::insert::{self, EarlierInsert};
use super::item_update::ItemUpdate;
use super::relocate::was_relocated_on_former_pages;
use super::update::task_of;
use super::upsert;
use super::write_statement::is_remembered;
use crate::command::document::{array_of, get, length_of, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::find_and_modify::FindAndModify;
use crate::command::insert::Insert;
use crate::command::namespace::Namespace;
use crate::command::registry::Command;
use crate::command::reply::CursorReply;
use crate::command::update::Update;
use crate::command::write_batch::lookup_parts;
use crate::pattern::bucket::key::value_identity;
use crate::pattern::bucket::update_by_id::UpdateRequest;
use crate::pattern::shapes::{BucketShape, StoredLayout};
use crate::session::automatic::stored::FormerCollection;
use crate::session::automatic::{Identity, identity};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// `_id`s in one query.
const MAX_IDS: usize = 1000;

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
    /// It was executed, and its result is not known any more.
    Unknown(CommandError),
}

/// A statement that was executed.
#[derive(Debug)]
pub(in crate::session) struct ExecutedStatement {
    pub(in crate::session) index: usize,
    pub(in crate::session) statement_id: i32,
    /// The `_id` of an upserted document.
    pub(in crate::session) upserted: Option<RawBson>,
}

/// A collection and its former layout.
#[derive(Clone, Copy)]
pub(in crate::session) struct ConvertedCollection<'a> {
    pub(in crate::session) current: &'a StoredLayout,
    pub(in crate::session) former: &'a FormerCollection,
    /// The shape of the current pages.
    pub(in crate::session) shape: &'a BucketShape,
}

impl<'a> BucketCommand<'a> {
    /// Looks for an earlier attempt of the command in the former collection, whose shape this command has.
    /// Costs one round trip for each statement that could need it.
    pub(in crate::session) async fn earlier_attempt(
        &mut self,
        converted: ConvertedCollection<'a>,
    ) -> Result<EarlierAttempt, RunError> {
        let ConvertedCollection { current, former, .. } = converted;
        match (self.context.head.command, current.is_plain(), former.layout.is_plain()) {
            (_, true, true) => Ok(EarlierAttempt::None),
            // A single document has its own record.
            (Command::Insert, ..) if Insert::parse(self.context.head)?.documents.len() < 2 => Ok(EarlierAttempt::None),
            (Command::Insert, true, false) => self.stored_on_pages(former).await,
            (Command::Insert, false, false) => self.stored_on_either(converted).await,
            (Command::Update, true, false) => self.updated_on_pages().await,
            (Command::Update, false, true) => self.upserted_plain().await,
            (Command::FindAndModify, ..) => self.found_and_modified(converted).await,
            _ => Ok(EarlierAttempt::None),
        }
    }

    /// On pages, only the first item of a statement has a record.
    async fn stored_on_pages(&mut self, former: &FormerCollection) -> Result<EarlierAttempt, RunError> {
        let mut earlier = EarlierInsert::find(self, &former.name).await?;
        let pushed = std::mem::take(&mut earlier.pushed);
        match earlier.stored(self, &pushed) {
            Ok(stored) => self.stored(stored),
            Err(error) => Ok(EarlierAttempt::Unknown(error)),
        }
    }

    /// The records do not tell whether the current or the kept pages were written, and both may divide the
    /// items in different ways. An item that only one division contains was stored if it exists.
    async fn stored_on_either(&mut self, converted: ConvertedCollection<'a>) -> Result<EarlierAttempt, RunError> {
        let kept = EarlierInsert::find(self, &converted.former.name).await?;
        // Under either shape, each item may be the first of a statement. So the other shape has no records either.
        if kept.is_empty() {
            return Ok(EarlierAttempt::None);
        }
        let kept_shape = std::mem::replace(&mut self.shape, converted.shape);
        let current = EarlierInsert::find(self, self.namespace.collection).await;
        self.shape = kept_shape;
        let current = current?;
        let pushed: HashSet<i32> = kept.pushed.union(&current.pushed).copied().collect();
        let (on_kept, on_current) = match (kept.stored(self, &pushed), current.stored(self, &pushed)) {
            (Ok(on_kept), Ok(on_current)) => (on_kept, on_current),
            // A push without a record ends the division under one shape. So it was executed under the other.
            (Ok(known), Err(_)) | (Err(_), Ok(known)) => return self.stored(known),
            (Err(error), Err(_)) => return Ok(EarlierAttempt::Unknown(error)),
        };
        let (on_kept, on_current) = (BTreeSet::from_iter(on_kept), BTreeSet::from_iter(on_current));
        let mut stored: Vec<usize> = on_kept.intersection(&on_current).copied().collect();
        let unclear: Vec<usize> = on_kept.symmetric_difference(&on_current).copied().collect();
        self.shape = converted.shape;
        let existing = self.existing(&unclear).await;
        self.shape = kept_shape;
        stored.extend(existing?);
        self.stored(stored)
    }

    /// Those of the client's documents whose `_id` exists.
    async fn existing(&mut self, indexes: &[usize]) -> Result<Vec<usize>, RunError> {
        let command = Insert::parse(self.context.head)?;
        let id_of = |index: &usize| get(command.documents.get(*index)?, "_id");
        let path = format!("{}._id", self.shape.items());
        let mut existing = BTreeSet::new();
        for part in lookup_parts(indexes, MAX_IDS, |index| id_of(index).map_or(0, length_of)) {
            let ids: RawArrayBuf = part.iter().filter_map(id_of).collect();
            let mut aggregate = single("aggregate", self.namespace.collection);
            let stages = [
                single("$match", single(&path, single("$in", &ids))),
                single("$unwind", format!("${}", self.shape.items())),
                single("$match", single(&path, single("$in", &ids))),
                single("$project", single(&path, 1)),
            ];
            put(&mut aggregate, "pipeline", array_of(&stages));
            let mut cursor = RawDocumentBuf::new();
            cursor.append(cstr!("batchSize"), i32::MAX);
            put(&mut aggregate, "cursor", &cursor);
            self.context.inherited().append_to_read_of_write(&mut aggregate);
            let reply = self.context.link.run(&aggregate).await?;
            let found = CursorReply::parse(&reply);
            for page in found.iter().flat_map(CursorReply::documents) {
                let item = get(page, self.shape.items()).and_then(RawBsonRef::as_document);
                existing.extend(item.and_then(|item| get(item, "_id")).map(value_identity));
            }
        }
        let exists = |index: &usize| id_of(index).is_some_and(|id| existing.contains(&value_identity(id)));
        Ok(indexes.iter().copied().filter(exists).collect())
    }

    fn stored(&self, mut stored: Vec<usize>) -> Result<EarlierAttempt, RunError> {
        let command = Insert::parse(self.context.head)?;
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
            if statement.multi {
                continue;
            }
            let id = command.statement_ids.of(index);
            let task = task_of(self.context.head, &command, index, statement);
            if (statement.upsert && upsert::is_recorded(self, id).await?)
                || was_relocated_on_former_pages(self, &task).await?
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
        let sought = ids.iter().map(|id| insert::SoughtRecord {
            id: *id,
            nothing: self.no_statement(),
        });
        let sought: Vec<insert::SoughtRecord> = sought.collect();
        let mut recorded = insert::remembered(self, &sought, None).await?;
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
    async fn found_and_modified(&mut self, converted: ConvertedCollection<'_>) -> Result<EarlierAttempt, RunError> {
        let is_plain = converted.current.is_plain();
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
            return match image.filter(|image| is_page(self.shape, image)) {
                None if is_plain || converted.former.layout.is_plain() => Ok(EarlierAttempt::Reply(reply)),
                None => Ok(EarlierAttempt::None),
                Some(_) if is_plain => Ok(EarlierAttempt::OnPages(Vec::new())),
                Some(_) if converted.former.layout.is_plain() => Ok(EarlierAttempt::None),
                Some(page) => self.modified_on_either(page, converted).await,
            };
        }
        let Some(change) = command.change.filter(|_| !command.remove && is_plain) else {
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
        let is_elsewhere = (command.upsert && upsert::is_recorded(self, id).await?)
            || was_relocated_on_former_pages(self, &task).await?;
        Ok(if is_elsewhere {
            EarlierAttempt::OnPages(Vec::new())
        } else {
            EarlierAttempt::None
        })
    }
}

impl BucketCommand<'_> {
    /// Determines whether the page that a `findAndModify` changed is a former or a current one.
    async fn modified_on_either(
        &mut self,
        page: &RawDocument,
        converted: ConvertedCollection<'_>,
    ) -> Result<EarlierAttempt, RunError> {
        let places = |shape: &BucketShape| {
            let options = shape.options();
            (
                options.key.clone(),
                options.time.clone(),
                options.items.clone(),
                options.rename.clone(),
            )
        };
        if places(self.shape) == places(converted.shape) {
            return Ok(EarlierAttempt::None);
        }
        let former = converted.former.name.as_str();
        let mut exists = [false; 2];
        for (exists, collection) in exists.iter_mut().zip([former, self.namespace.collection]) {
            let mut find = single("find", collection);
            find.append(
                cstr!("filter"),
                single("_id", get(page, "_id").unwrap_or(RawBsonRef::Null)),
            );
            find.append(cstr!("projection"), single("_id", 1));
            find.append(cstr!("singleBatch"), true);
            self.context.inherited().append_to_read_of_write(&mut find);
            let reply = self.context.link.run(&find).await?;
            *exists = CursorReply::parse(&reply).is_some_and(|cursor| cursor.documents().next().is_some());
        }
        let former = Namespace::new(self.namespace.database, former);
        let expected = converted.former.expected();
        if identity(self.context.link, self.context.head, former, expected).await? == Identity::Changed {
            // `convert --back` has renamed it since it was listed.
            return Err(RunError::LayoutChanged);
        }
        match exists {
            [true, false] => Ok(EarlierAttempt::OnPages(Vec::new())),
            [false, true] => Ok(EarlierAttempt::None),
            _ => Ok(EarlierAttempt::Unknown(CommandError::new(
                ErrorCode::WriteConflict,
                "an earlier attempt has executed this command; `mongoshape convert` has replaced the page whose earlier version \
                 contains the result",
            ))),
        }
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
