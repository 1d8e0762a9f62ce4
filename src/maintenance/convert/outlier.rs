//! Converts an outlier collection in place: documents are split, or joined, one by one.
//!
//! A document with or without extras is the same to applications, and each change of it is one statement. So
//! there is no copy, and no swap. While documents are joined, and after that, the [split
//! fence](crate::pattern::outlier::split_fence) prevents that documents become outliers again. See
//! `docs/decisions/0045-outliers-are-converted-in-place.md`.

mod join;

use std::time::{Duration, SystemTime};

use bson::Document;
use bson::raw::{RawBson, RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use tokio::time::sleep;

use self::join::{Joining, OutlierCensus};
use super::{ConvertTask, Request};
use crate::command::collection::VALIDATION;
use crate::command::document::{put, single};
use crate::maintenance::check::outlier as check;
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::setup::OutlierSplit;
use crate::maintenance::swap::{Freezing, Halt, SwapKind};
use crate::maintenance::upstream::{ShapedCollection, as_integer, description};
use crate::pattern::outlier::{orphans, resplit, split_fence};
use crate::pattern::shapes::OutlierShape;

/// The time from the announcement of the fence until mongod refuses splits. A proxy reads the fence before
/// each split, so a split that it has begun should end in this time.
const ANNOUNCED: Duration = Duration::from_secs(2);

/// The action of the fence's validator.
#[derive(Clone, Copy)]
enum FenceAction {
    /// Only proxies obey it.
    Announce,
    Refuse,
}

/// The conversion of one collection.
pub(super) struct OutlierConversion<'a> {
    pub(super) request: Request<'a>,
    pub(super) target: &'a ShapedCollection,
    pub(super) shape: &'a OutlierShape,
    /// Whether the server is a replica set, whose majority reads wait for.
    pub(super) is_replicated: bool,
}

impl OutlierConversion<'_> {
    /// Executes the task, and prints the result.
    pub(super) async fn execute(&self, findings: &mut Findings) -> Result<(), Halt> {
        let Some(described) = description(&self.target.database, &self.target.collection).await? else {
            return Err(Halt::Words("does not exist".to_owned()));
        };
        let unfit = check::unfit(self.target, Some(&described));
        if !unfit.is_empty() {
            findings.extend(unfit);
            return Ok(());
        }
        let is_fenced = self.is_fenced(&described);
        match self.request.options.task {
            ConvertTask::Back if !is_fenced && self.was_never_split().await? => {
                Err(Halt::Words("there is no conversion to undo".to_owned()))
            }
            ConvertTask::Back if !is_fenced => self.to_plain(&described, findings).await,
            ConvertTask::ToShape | ConvertTask::Back => self.to_outliers(is_fenced, findings).await,
            ConvertTask::ToPlain => self.to_plain(&described, findings).await,
            ConvertTask::Finish => self.finish(is_fenced, findings).await,
            ConvertTask::Verify => {
                findings.extend(check::check(self.target, self.shape).await?);
                Ok(())
            }
            ConvertTask::Follow | ConvertTask::Shadow => {
                let words =
                    "an outlier collection is converted in place, so there is no other collection to keep up to date";
                Err(Halt::Words(words.to_owned()))
            }
        }
    }

    async fn was_never_split(&self) -> Result<bool, Halt> {
        let extras = description(&self.target.database, self.shape.extras_collection()).await?;
        Ok(extras.is_none())
    }

    /// Splits long documents.
    async fn to_outliers(&self, is_fenced: bool, findings: &mut Findings) -> Result<(), Halt> {
        if self.request.options.is_dry_run {
            return self.count_long(findings).await;
        }
        if is_fenced {
            self.take_down_fence().await?;
        }
        self.split(findings).await?;
        if !findings.failed() {
            let text = "converted: long arrays are split; `mongoshape convert --to plain` or `--back` joins them again";
            self.add(findings, Finding::fine, text);
        }
        Ok(())
    }

    async fn split(&self, findings: &mut Findings) -> Result<(), Halt> {
        let split = OutlierSplit {
            client: self.request.client,
            config: self.request.config,
            missing: self.request.options.missing,
            stop: self.request.stop,
        };
        Ok(split.run(self.target, findings).await?)
    }

    async fn count_long(&self, findings: &mut Findings) -> Result<(), Halt> {
        let mut count = single("count", self.target.collection.as_str());
        count.append(cstr!("query"), resplit::overlong(self.shape));
        let reply = self.target.database.run_raw_command(count).await?;
        let long = reply.get("n").and_then(as_integer).unwrap_or_default();
        let text = format!(
            "{long} documents have more elements than {} and would be split",
            self.shape.threshold()
        );
        self.add(findings, Finding::note, &text);
        Ok(())
    }

    /// Joins all outliers.
    async fn to_plain(&self, described: &Document, findings: &mut Findings) -> Result<(), Halt> {
        let is_fenced = self.is_fenced(described);
        let has_validator = described
            .get_document("options")
            .and_then(|options| options.get_document(split_fence::VALIDATOR))
            .is_ok_and(|validator| !validator.is_empty());
        if has_validator && !is_fenced {
            let text = "has a validator; remove it by `collMod`, and set it again after `mongoshape convert --finish`";
            self.add(findings, Finding::error, text);
            return Ok(());
        }
        findings.extend(self.lacking_rights().await?);
        if findings.failed() {
            return Ok(());
        }
        let census = OutlierCensus::of(self).await?;
        findings.extend(census.findings(&self.target.namespace()));
        if findings.failed() || self.request.options.is_dry_run {
            return Ok(());
        }
        if !is_fenced {
            self.put_up_fence(FenceAction::Announce).await?;
            sleep(ANNOUNCED).await;
        }
        self.put_up_fence(FenceAction::Refuse).await?;
        let joined = match self.join_all(findings).await {
            Ok(joined) => joined,
            Err(Halt::Stopped) => return Err(Halt::Stopped),
            Err(halt) => {
                self.take_down_fence().await?;
                self.split(findings).await?;
                return Err(halt);
            }
        };
        let described = description(&self.target.database, &self.target.collection).await?;
        if !described.is_some_and(|described| self.is_fenced(&described)) {
            let words = "another program has changed its validator or dropped it; run again";
            return Err(Halt::Words(words.to_owned()));
        }
        let text = format!("converted: contains plain documents now; {joined} outliers were joined");
        self.add(findings, Finding::fine, &text);
        let text = "mongod refuses that documents become outliers until `mongoshape convert --finish`; `--back` splits long arrays again";
        self.add(findings, Finding::note, text);
        Ok(())
    }

    async fn join_all(&self, findings: &mut Findings) -> Result<u64, Halt> {
        let mut joining = Joining {
            conversion: self,
            joined: 0,
        };
        joining.run(findings).await?;
        Ok(joining.joined)
    }

    /// Drops the extras, which no document references any more, and then the fence. A split that began before
    /// the announcement has stored its pages first. Without the fence, its base document would be accepted.
    async fn finish(&self, is_fenced: bool, findings: &mut Findings) -> Result<(), Halt> {
        if !is_fenced {
            return Err(Halt::Words("there is no conversion to finish".to_owned()));
        }
        // A run that was killed may only have announced it.
        self.put_up_fence(FenceAction::Refuse).await?;
        if self.outliers().await?.try_next().await?.is_some() {
            let words = "the conversion is in progress; run `mongoshape convert --to plain` again to continue, or with --back to end it";
            return Err(Halt::Words(words.to_owned()));
        }
        if self.has_young_pages().await? {
            let words = "its extras have pages younger than one hour, which a write may still need; run again later";
            return Err(Halt::Words(words.to_owned()));
        }
        self.by().drop(self.shape.extras_collection(), None).await?;
        self.take_down_fence().await?;
        let text = format!("{} was dropped", self.shape.extras_collection());
        self.add(findings, Finding::fine, &text);
        Ok(())
    }

    async fn has_young_pages(&self) -> Result<bool, Halt> {
        let mut find = single("find", self.shape.extras_collection());
        find.append(cstr!("filter"), orphans::young(SystemTime::now()));
        find.append(cstr!("projection"), single("_id", 1));
        find.append(cstr!("limit"), 1);
        let mut found = self.target.database.run_raw_cursor_command(find).await?;
        Ok(found.try_next().await?.is_some())
    }

    fn is_fenced(&self, described: &Document) -> bool {
        check::is_fenced(self.shape, described)
    }

    async fn put_up_fence(&self, action: FenceAction) -> Result<(), Halt> {
        let action = match action {
            FenceAction::Announce => "warn",
            FenceAction::Refuse => "error",
        };
        let [validator, level, of_action] = VALIDATION;
        let validator = (validator, split_fence::validator(self.shape).into());
        self.modify([validator, (level, "moderate".into()), (of_action, action.into())])
            .await
    }

    async fn take_down_fence(&self) -> Result<(), Halt> {
        let [validator, level, action] = VALIDATION;
        let none = (validator, RawDocumentBuf::new().into());
        self.modify([none, (level, "strict".into()), (action, "error".into())])
            .await
    }

    async fn modify(&self, options: [(&'static str, RawBson); 3]) -> Result<(), Halt> {
        let mut command = single("collMod", self.target.collection.as_str());
        for (name, value) in options {
            put(&mut command, name, value);
        }
        self.by().modify(command, self.request.stop).await
    }

    fn by(&self) -> Freezing<'_> {
        Freezing {
            client: self.request.client,
            target: self.target,
            work: SwapKind::ConvertPlain(self.request.options.task.command()),
        }
    }

    fn add(&self, findings: &mut Findings, kind: fn(String, String) -> Finding, text: &str) {
        findings.add(&kind(self.target.namespace(), text.to_owned()));
    }
}
