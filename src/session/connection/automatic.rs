//! Commands on collections with an automatic shape. A command is executed in the layout that its collections
//! have ([`execute`]), and again in the other layout if a conversion exchanges one of them before it takes
//! effect. A retryable write is looked up first ([`earlier`]).

mod earlier;
mod execute;

use std::sync::Arc;

use bson::raw::RawDocumentBuf;
use tokio::time::Instant;

use super::{Closed, Message, Session};
use crate::command::arguments::InheritedOptions;
use crate::command::document::get;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::registry::Command;
use crate::command::reply::says_not_primary;
use crate::session::automatic::stored::{CollectionObserver, MAX_HELD, StoredCollection, exchanged_in_transaction};
use crate::session::automatic::touched::TouchedCollection;
use crate::session::automatic::{MergedWrite, refuse_during_conversion, stable_api};
use crate::session::error::RunError;
use crate::session::metrics::CommandOutcome;
use crate::session::namespace_cache::CacheLookup;
use crate::session::route;
use crate::session::shared::Settings;
use crate::session::upstream_connection::LinkError;
use crate::wire::{Frame, OpMsg};

/// A command that is not in the registry.
const CONVERT_TO_CAPPED: &str = "convertToCapped";

/// The end of one execution.
enum Step {
    /// The client has its reply, or is not to have one.
    Replied(Result<CommandOutcome, Closed>),
    /// The reply to the statements that were executed. It is complete.
    Answered(RawDocumentBuf, CommandOutcome),
    /// A collection was exchanged. The reply, if a part of the statements was executed.
    Exchanged(Option<RawDocumentBuf>),
}

/// The settings of one execution, and the state of the command's own collection.
struct CurrentLayouts {
    settings: Arc<Settings>,
    collections: Vec<StoredCollection>,
}

/// A write under `apiStrict` that was checked.
enum WithoutStrict {
    /// The message that is executed.
    Message(Frame),
    /// The reply, because the stable API does not allow the write.
    Refused(RawDocumentBuf),
}

/// A command between two executions.
struct CommandProgress {
    /// The statements that were executed, once there are any.
    merged: Option<MergedWrite>,
    /// The statements that are left. `None`: the client's message.
    rest: Option<Frame>,
    /// Whether an earlier attempt of a retryable write was looked for.
    is_checked: bool,
}

impl Session<'_> {
    pub(super) async fn automatic(
        &mut self,
        message: Message<'_>,
        head: &CommandHeader<'_>,
        touched: &[TouchedCollection],
    ) -> Result<CommandOutcome, Closed> {
        let frame = message.opened;
        // A relayed message names the collection's UUID, so its checksum is not that of the client's.
        OpMsg::parse(frame).map_err(|error| Closed::Protocol(error.to_string()))?;
        self.link.compress_with(self.compressor);
        if head.command == Command::GetMore {
            // A cursor belongs to the layout in which it was opened, and ends with its collection.
            return match self.layouts(head, touched).await {
                Ok(layouts) => {
                    self.dispatch(message, head, route::decide(&layouts.settings, head))
                        .await
                }
                Err(error) => self.finish(frame, head, Err(error)).await,
            };
        }
        if !stable_api::is_strict_write(head) {
            return self.repeat(message, head, touched).await;
        }
        match self.without_strict(frame, head).await {
            Ok(WithoutStrict::Message(frame)) => {
                let opened = OpMsg::parse_unverified(&frame).map_err(LinkError::from)?;
                match CommandHeader::of(opened) {
                    Ok(head) => self.repeat(Message::plain(&frame), &head, touched).await,
                    Err(error) => self.finish(&frame, head, Err(error.into())).await,
                }
            }
            Ok(WithoutStrict::Refused(reply)) => self.finish(frame, head, Ok(reply)).await,
            Err(error) => self.finish(frame, head, Err(error)).await,
        }
    }

    /// Executes the command, until no conversion exchanges one of its collections meanwhile.
    async fn repeat(
        &mut self,
        message: Message<'_>,
        head: &CommandHeader<'_>,
        touched: &[TouchedCollection],
    ) -> Result<CommandOutcome, Closed> {
        let frame = message.opened;
        let mut progress = CommandProgress {
            merged: None,
            rest: None,
            is_checked: false,
        };
        let begun = Instant::now();
        loop {
            let step = self.attempt(message, head, touched, &mut progress).await;
            self.link.set_fence(None);
            let executed = match step {
                Ok(Step::Replied(outcome)) => return outcome,
                Ok(Step::Answered(reply, outcome)) => {
                    let reply = match progress.merged {
                        Some(mut merged) => {
                            merged.add(reply);
                            merged.into_reply(head)
                        }
                        None => reply,
                    };
                    return self.answer(frame, head, reply, outcome).await;
                }
                Ok(Step::Exchanged(executed)) => executed,
                Err(RunError::LayoutChanged) => None,
                Err(error) => return self.finish(frame, head, Err(error)).await,
            };
            let failed = Instant::now();
            self.forget(touched);
            progress.is_checked = false;
            if head.in_transaction() {
                let error = exchanged_in_transaction(named(touched));
                return self.finish(frame, head, Err(error.into())).await;
            }
            if let Some(executed) = executed
                && let Some(reply) = progress.add(head, executed).map_err(Closed::from)?
            {
                return self.answer(frame, head, reply, CommandOutcome::Relayed).await;
            }
            if begun.elapsed() > MAX_HELD {
                let message = format!(
                    "`mongoshape convert` exchanges {} again and again: try again",
                    named(touched)
                );
                let error = CommandError::new(ErrorCode::WriteConflict, message);
                return self.finish(frame, head, Err(error.into())).await;
            }
            if !head.only_reads()
                && let Err(error) = self.wait_until_thawed(head, touched, failed).await
            {
                return self.finish(frame, head, Err(error)).await;
            }
        }
    }

    /// Checks a write under `apiStrict`.
    async fn without_strict(&mut self, frame: &Frame, head: &CommandHeader<'_>) -> Result<WithoutStrict, RunError> {
        head.validate()?;
        Ok(match stable_api::refusal(&mut self.link, head).await? {
            Some(reply) => WithoutStrict::Refused(reply),
            None => WithoutStrict::Message(stable_api::without_strict(frame, head)?),
        })
    }

    /// Executes what is left of the command in the layouts that its collections have now.
    async fn attempt(
        &mut self,
        message: Message<'_>,
        head: &CommandHeader<'_>,
        touched: &[TouchedCollection],
        progress: &mut CommandProgress,
    ) -> Result<Step, RunError> {
        let layouts = self.layouts(head, touched).await?;
        if let Some(step) = self.executed_before(head, touched, &layouts, progress).await? {
            return Ok(step);
        }
        let Some(rest) = &progress.rest else {
            if changes_definition(head) {
                for touched in touched {
                    refuse_during_conversion(&mut self.link, head, touched.namespace()).await?;
                }
            }
            return self.in_layouts(message, head, touched, &layouts).await;
        };
        let opened = OpMsg::parse_unverified(rest).map_err(|error| RunError::Link(error.into()))?;
        let head = CommandHeader::of(opened)?;
        self.in_layouts(Message::plain(rest), &head, touched, &layouts).await
    }

    /// The layouts of all touched collections. Collections that are not known are listed.
    async fn layouts(
        &mut self,
        head: &CommandHeader<'_>,
        touched: &[TouchedCollection],
    ) -> Result<CurrentLayouts, RunError> {
        let mut settings = self.shared.settings();
        let mut collections = Vec::with_capacity(touched.len());
        let begun = Instant::now();
        for touched in touched {
            let namespace = touched.namespace();
            let is_open = head.in_transaction() && get(head.body(), "startTransaction").is_none();
            let looked_up = match head.command {
                // It cannot name the UUID, and must not create a collection that was dropped.
                Command::Create => CacheLookup::Unknown(None),
                // It waits for no other session, because it may hold the collection.
                _ if is_open => settings
                    .automatic
                    .get(namespace)
                    .map_or(CacheLookup::Unknown(None), CacheLookup::Known),
                _ => settings.automatic.lookup(namespace).await,
            };
            let (known, _turn) = match looked_up {
                CacheLookup::Known(stored) => (Some(stored), None),
                CacheLookup::Unknown(turn) => (None, turn),
            };
            let known = known.filter(|stored| !self.must_look_again(head, stored));
            let stored = if let Some(stored) = known {
                stored
            } else {
                let carried = InheritedOptions::of(head.body());
                let mut observer = CollectionObserver {
                    link: &mut self.link,
                    carried,
                    namespace,
                };
                let now = if is_open {
                    let found = observer.stored_at_once().await?;
                    found.ok_or_else(|| exchanged_in_transaction(namespace))?
                } else {
                    observer.stored_since(begun).await?
                };
                let stored = now.stored;
                self.hidden_formers.note(&stored);
                // A missing collection is listed again, because nothing reports that it exists.
                if stored.uuid.is_some() {
                    settings.automatic.put(namespace, stored.clone());
                }
                tracing::debug!(%namespace, layout = ?stored.layout, "listed a collection with an automatic shape");
                stored
            };
            if settings.shapes.automatic(namespace).is_some()
                && settings.shapes.layout(namespace) != Some(&stored.layout)
            {
                self.shared.learn_layout(namespace, &stored.layout);
                settings = self.shared.settings();
            }
            collections.push(stored);
        }
        Ok(CurrentLayouts { settings, collections })
    }

    /// Whether a client that may have fewer rights has listed the collection, and this one may find an
    /// earlier attempt of its write in the former layout.
    fn must_look_again(&self, head: &CommandHeader<'_>, stored: &StoredCollection) -> bool {
        head.is_retryable_write() && self.hidden_formers.may_be_read(stored)
    }

    fn forget(&self, touched: &[TouchedCollection]) {
        let settings = self.shared.settings();
        for touched in touched {
            settings.automatic.forget(touched.namespace());
            settings.catalog.forget(touched.namespace());
        }
    }

    /// Waits until the command's collections accept writes. `failed`: the time of the refusal.
    async fn wait_until_thawed(
        &mut self,
        head: &CommandHeader<'_>,
        touched: &[TouchedCollection],
        failed: Instant,
    ) -> Result<(), RunError> {
        let settings = self.shared.settings();
        let carried = InheritedOptions::of(head.body());
        for touched in touched {
            let mut observer = CollectionObserver {
                link: &mut self.link,
                carried,
                namespace: touched.namespace(),
            };
            let thaws = settings.catalog.thaws();
            if !thaws.wait(&mut observer, failed, failed + MAX_HELD).await? {
                return Err(observer.held_too_long().into());
            }
        }
        Ok(())
    }

    /// Sends a reply.
    async fn answer(
        &mut self,
        frame: &Frame,
        head: &CommandHeader<'_>,
        reply: RawDocumentBuf,
        outcome: CommandOutcome,
    ) -> Result<CommandOutcome, Closed> {
        if outcome != CommandOutcome::Relayed {
            return self.finish(frame, head, Ok(reply)).await;
        }
        let is_gone = self.presentation.promises_primary() && says_not_primary(&reply);
        if !head.expects_no_reply {
            self.reply(frame, reply).await?;
        }
        if is_gone {
            self.see_to_primary().await?;
        }
        Ok(outcome)
    }
}

impl CommandProgress {
    /// Adds the reply to a part of the statements. Returns the client's reply if no statement is left.
    fn add(&mut self, head: &CommandHeader<'_>, executed: RawDocumentBuf) -> Result<Option<RawDocumentBuf>, LinkError> {
        let Some(mut merged) = self.merged.take().or_else(|| MergedWrite::of(head)) else {
            return Ok(Some(executed));
        };
        merged.add(executed);
        if merged.is_complete() {
            return Ok(Some(merged.into_reply(head)));
        }
        self.rest = merged.rest(head)?;
        self.merged = Some(merged);
        Ok(None)
    }
}

/// The command's own collection, if it has an automatic shape. It is the first of the touched ones.
fn own<'t>(touched: &'t [TouchedCollection], head: &CommandHeader<'_>) -> Option<Namespace<'t>> {
    let own = head.namespace()?;
    let first = touched.first().map(TouchedCollection::namespace);
    first.filter(|first| *first == own)
}

/// The collection that an error names.
fn named(touched: &[TouchedCollection]) -> Namespace<'_> {
    let first = touched.first().map(TouchedCollection::namespace);
    first.unwrap_or(Namespace::new("", ""))
}

/// Whether the command changes the definition of a collection, or writes to one that is not its own.
fn changes_definition(head: &CommandHeader<'_>) -> bool {
    match head.command {
        Command::CreateIndexes
        | Command::DropIndexes
        | Command::CollMod
        | Command::Drop
        | Command::RenameCollection
        | Command::MapReduce => true,
        Command::Aggregate => !head.only_reads(),
        _ => head.name == CONVERT_TO_CAPPED,
    }
}
