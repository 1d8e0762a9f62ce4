//! Retryable writes that an earlier attempt executed before a conversion.

use bson::raw::RawDocumentBuf;

use super::{CommandProgress, CurrentLayouts, Step, own};
use crate::command::error::CommandError;
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::pattern::shapes::BucketShape;
use crate::session::automatic::touched::TouchedCollection;
use crate::session::automatic::{Identity, MergedWrite, identity};
use crate::session::bucket::BucketCommand;
use crate::session::bucket::earlier_attempt::{ConvertedCollection, EarlierAttempt};
use crate::session::command_context::CommandContext;
use crate::session::connection::Session;
use crate::session::error::RunError;
use crate::session::metrics::CommandOutcome;
use crate::session::shared::Settings;
use crate::session::upstream::UpstreamKind;
use crate::wire::OpMsg;

impl Session<'_> {
    /// Finds what an earlier attempt of a retryable write has executed before a conversion.
    pub(super) async fn executed_before(
        &mut self,
        head: &CommandHeader<'_>,
        touched: &[TouchedCollection],
        layouts: &CurrentLayouts,
        progress: &mut CommandProgress,
    ) -> Result<Option<Step>, RunError> {
        let (Some(own), Some(stored)) = (own(touched, head), layouts.collections.first()) else {
            return Ok(None);
        };
        let Some(former) = &stored.former else {
            return Ok(None);
        };
        let is_due = head.is_retryable_write() && self.upstream.kind() == UpstreamKind::Member;
        // The retry records of the parts of this attempt are found in the same way.
        if !is_due || std::mem::replace(&mut progress.is_checked, true) || progress.merged.is_some() {
            return Ok(None);
        }
        let Some(shape) = layouts.settings.shapes.automatic(own) else {
            return Ok(None);
        };
        let converted = ConvertedCollection {
            current: &stored.layout,
            former,
            shape,
        };
        let of_former = former.layout.recorded_shape(shape);
        let shape = of_former.as_ref().unwrap_or(shape);
        let context = CommandContext::new(self.shared, &layouts.settings, &mut self.link, self.upstream, head);
        let mut command = BucketCommand::new(context, shape, own);
        let found = Box::pin(command.earlier_attempt(converted)).await;
        let (expected, former) = (former.expected(), Namespace::new(own.database, &former.name));
        if !matches!(found, Ok(EarlierAttempt::None))
            && identity(&mut self.link, head, former, expected).await? == Identity::Changed
        {
            // `convert --back` has renamed it since it was listed.
            return Err(RunError::LayoutChanged);
        }
        match found {
            // An error: the command is invalid, and its execution reports why.
            Ok(EarlierAttempt::None) | Err(RunError::Command(CommandError::Own { .. })) => Ok(None),
            Ok(EarlierAttempt::Unknown(error)) => Err(error.into()),
            Ok(EarlierAttempt::Reply(reply)) => Ok(Some(Step::Answered(reply, CommandOutcome::Relayed))),
            Ok(EarlierAttempt::OnPages(executed)) => {
                let Some(mut merged) = MergedWrite::of(head) else {
                    let reply = self.repeated_on(former, head, shape, &layouts.settings).await?;
                    return Ok(Some(Step::Answered(reply, CommandOutcome::Rewritten)));
                };
                let rest = merged.divide(executed);
                if let Some(part) = merged.rest(head).map_err(RunError::Link)? {
                    let opened = OpMsg::parse_unverified(&part).map_err(|error| RunError::Link(error.into()))?;
                    let part = CommandHeader::of(opened)?;
                    merged.add(self.repeated_on(former, &part, shape, &layouts.settings).await?);
                }
                merged.set_pending(rest);
                if merged.is_complete() {
                    let reply = merged.into_reply(head);
                    return Ok(Some(Step::Answered(reply, CommandOutcome::Rewritten)));
                }
                progress.rest = merged.rest(head).map_err(RunError::Link)?;
                progress.merged = Some(merged);
                Ok(None)
            }
            Ok(EarlierAttempt::Statements(executed)) => {
                let Some(mut merged) = MergedWrite::of(head) else {
                    return Ok(None);
                };
                merged.add_executed(executed);
                if merged.is_complete() {
                    let reply = merged.into_reply(head);
                    return Ok(Some(Step::Answered(reply, CommandOutcome::Rewritten)));
                }
                progress.rest = merged.rest(head).map_err(RunError::Link)?;
                progress.merged = Some(merged);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The reply to statements that were executed on the pages of the former collection. mongod answers each
    /// from its retry record, so nothing is executed.
    async fn repeated_on(
        &mut self,
        former: Namespace<'_>,
        head: &CommandHeader<'_>,
        shape: &BucketShape,
        settings: &Settings,
    ) -> Result<RawDocumentBuf, RunError> {
        let context = CommandContext::new(self.shared, settings, &mut self.link, self.upstream, head);
        let reply = Box::pin(BucketCommand::new(context, shape, former).run()).await;
        settings.catalog.forget(former);
        reply
    }
}
