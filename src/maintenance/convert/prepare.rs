//! Begins a conversion, and continues one.

use std::time::{Duration, Instant};

use bson::doc;

use super::definition::Start;
use super::ids::Ids;
use super::layout::{Layout, PagesOf};
use super::mirror::Mirror;
use super::outlier::OutlierConversion;
use super::pace::throttle::Throttle;
use super::preflight::Preflight;
use super::progress::observer::RunObserver;
use super::record::{Direction, Phase, Record};
use super::subject::{Plan, Subject, uuid_named};
use super::swap_names::recover;
use super::{Conversion, ConvertTask, Request};
use crate::command::namespace::Namespace;
use crate::maintenance::check::collection::has_images;
use crate::maintenance::embedded_proxy::EmbeddedProxy;
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::swap::{CollectionRename, Freezing, Halt, uuid_of};
use crate::maintenance::upstream::ShapedCollection;
use crate::pattern::bucket::conversion::{copy_name, kept_name};
use crate::pattern::bucket::validation::Validation;
use crate::pattern::shapes::{BucketShape, Shape, Shapes};

impl Request<'_> {
    /// Executes the task, and prints the result.
    pub(super) async fn execute(self, findings: &mut Findings) -> Result<(), Halt> {
        let subject = self.subject().await?;
        let outliers = subject
            .configured
            .as_ref()
            .and_then(|target| Some((target, target.outlier()?)));
        if let Some((target, shape)) = outliers {
            let conversion = OutlierConversion {
                request: self,
                target,
                shape,
                is_replicated: subject.is_replicated,
            };
            return conversion.execute(findings).await;
        }
        let record = Record::read(&subject.database, &subject.collection).await?;
        let record = match record {
            Some(record) if self.may_write() && subject.may_be_frozen(&record).await? => {
                let target = subject.target(&record.from, &record.to)?;
                let record = recover(self.freezing(&target, &record.from), record, self.stop).await?;
                if self.options.task == ConvertTask::Back && record.is_back() && record.is_done() {
                    // The killed run has swapped. Another way back would undo it.
                    subject.report_converted(&record, findings);
                    return Ok(());
                }
                Some(record)
            }
            record => record,
        };
        match self.options.task {
            ConvertTask::ToShape | ConvertTask::Shadow | ConvertTask::ToPlain => {
                self.convert(&subject, record, findings).await
            }
            ConvertTask::Back => self.back(&subject, record, findings).await,
            ConvertTask::Follow => self.follow(&subject, record, findings).await,
            ConvertTask::Finish => self.finish(&subject, record, findings).await,
            ConvertTask::Verify => self.verify(&subject, record, findings).await,
        }
    }

    fn may_write(self) -> bool {
        !self.options.is_dry_run && self.options.task != ConvertTask::Verify
    }

    async fn subject(self) -> Result<Subject, Halt> {
        let words = |text: &str| Halt::Words(text.to_owned());
        let namespace = Namespace::parse(self.options.namespace);
        let namespace = namespace.ok_or_else(|| words("its name is not of the form database.collection"))?;
        let database = self.client.database(namespace.database);
        let collection = namespace.collection.to_owned();
        let shapes = &self.config.shapes;
        let shape = shapes.lookup(namespace).or_else(|| shapes.shadow(namespace)).cloned();
        let is_in_place = matches!(shape.as_deref(), Some(Shape::Outlier(_)));
        let hello = self.client.database("admin").run_command(doc! { "hello": 1 }).await?;
        let is_replicated = hello.contains_key("setName");
        let copies =
            !self.options.is_dry_run && !matches!(self.options.task, ConvertTask::Verify | ConvertTask::Finish);
        if copies && !is_in_place && !is_replicated && !self.options.is_offline {
            let text = "a standalone server has no change streams; stop all programs that write, and use --offline";
            return Err(words(text));
        }
        let with_shape = |shape| ShapedCollection::with_shape(database.clone(), collection.clone(), shape);
        Ok(Subject {
            configured: shape.map(with_shape),
            namespace: namespace.to_string(),
            database,
            collection,
            is_replicated,
        })
    }

    pub(super) fn freezing<'t>(self, target: &'t ShapedCollection, from: &Layout) -> Freezing<'t>
    where
        Self: 't,
    {
        Freezing {
            client: self.client,
            target,
            work: from.swap_kind(self.options.task),
        }
    }

    fn wanted(self, subject: &Subject) -> Result<Layout, Halt> {
        if self.options.task == ConvertTask::ToPlain {
            return Ok(Layout::Plain);
        }
        let shape = subject.configured.as_ref().and_then(ShapedCollection::bucket);
        shape.map(Layout::of_shape).ok_or_else(|| {
            Halt::Words("the configuration has no [[bucket]] for it; add one, or give `--to plain`".to_owned())
        })
    }

    async fn convert(self, subject: &Subject, record: Option<Record>, findings: &mut Findings) -> Result<(), Halt> {
        let to = self.wanted(subject)?;
        let described = subject.described().await?;
        let (ended, record) = match record {
            Some(record) if record.is_done() => (Some(record), None),
            record => (None, record),
        };
        if let Some(record) = record {
            if !record.to.is_same(&to) {
                return Err(Halt::Words(record.unfinished()));
            }
            self.check_shadow(subject, &record.from)?;
            return self.go_on(subject, record, findings).await;
        }
        let configured = subject.configured.as_ref();
        let from = Layout::of_collection(&subject.database, &subject.collection, configured).await?;
        if from.is_same(&to) {
            findings.add(&Finding::fine(&subject.namespace, format!("contains {to} already")));
            return Ok(());
        }
        self.check_shadow(subject, &from)?;
        let plan = Plan { from, to };
        if let Some(ended) = &ended {
            let text = format!(
                "ends the way back of the earlier conversion from {}",
                ended.kept().layout
            );
            findings.add(&Finding::note(&subject.namespace, text));
        }
        let preflight = Preflight {
            request: self,
            subject,
            plan: &plan,
            described: &described,
            ended: ended.as_ref(),
        };
        if !preflight.is_fit(findings).await? || self.options.is_dry_run {
            return Ok(());
        }
        if let Some(ended) = &ended {
            self.drop_kept(subject, ended).await?;
        }
        // The end of a way back may have ended the storage of images.
        let described = subject.described().await?;
        let record = Record {
            phase: Phase::Copying,
            source: uuid_of(&described)?,
            // Known after the copy is created.
            copy: uuid_of(&described)?,
            had_images: has_images(&described),
            token: None,
            direction: Direction::Forward,
            swap_number: 0,
            from: plan.from,
            to: plan.to,
        };
        self.start(subject, record, Start::WithNewCopy, findings).await
    }

    /// Continues a conversion that has not swapped.
    pub(super) async fn go_on(self, subject: &Subject, record: Record, findings: &mut Findings) -> Result<(), Halt> {
        if self.options.is_dry_run {
            let text = format!("a conversion to {} is in progress", record.to);
            findings.add(&Finding::note(&subject.namespace, text));
            return Ok(());
        }
        let (kept, copy) = (kept_name(&subject.collection), copy_name(&subject.collection));
        if uuid_named(&subject.database, &kept).await?.as_ref() == Some(&record.copy) {
            let target = subject.target(&record.from, &record.to)?;
            let renamed = CollectionRename {
                from: &kept,
                uuid: &record.copy,
                to: &copy,
                dropped: None,
            };
            self.freezing(&target, &record.from).rename(renamed).await?;
        }
        if uuid_named(&subject.database, &subject.collection).await?.as_ref() != Some(&record.source) {
            let words = format!(
                "the collection is not the one that was converted; end the conversion by `{}`",
                record.ending()
            );
            return Err(Halt::Words(words));
        }
        let found = uuid_named(&subject.database, &copy).await?;
        let (start, text) = if found.is_some() && found.as_ref() == record.known_copy() {
            (Start::WithTheCopy, "continues with the copy of an earlier run")
        } else {
            (Start::WithNewCopy, "begins with a new copy")
        };
        findings.add(&Finding::note(&subject.namespace, text));
        self.start(subject, record, start, findings).await
    }

    async fn verify(self, subject: &Subject, record: Option<Record>, findings: &mut Findings) -> Result<(), Halt> {
        let Some(record) = record else {
            return Err(Halt::Words("there is no conversion to verify".to_owned()));
        };
        let (plan, copy) = if record.is_done() {
            let (from, to) = (record.current().clone(), record.kept().layout.clone());
            (Plan { from, to }, kept_name(&subject.collection))
        } else {
            let (from, to) = (record.from.clone(), record.to.clone());
            (Plan { from, to }, copy_name(&subject.collection))
        };
        let target = subject.target(&plan.from, &plan.to)?;
        let proxy = self.proxy(subject, &plan, &copy).await?;
        let mirror = subject.mirror(&proxy, &plan, &copy);
        let mut conversion = self.conversion(&target, mirror, record, findings);
        conversion.expect_documents().await;
        let compared = match conversion.key_ranges().await {
            Ok(ranges) => conversion.compare(Some(ranges)).await,
            Err(halt) => Err(halt),
        };
        drop(conversion);
        proxy.stop().await;
        let compared = compared?;
        findings.extend(compared.ranges(&subject.namespace));
        findings.extend(compared.findings(&subject.namespace));
        Ok(())
    }

    /// Runs a conversion to its end.
    pub(super) async fn start(
        self,
        subject: &Subject,
        record: Record,
        start: Start,
        findings: &mut Findings,
    ) -> Result<(), Halt> {
        let plan = Plan {
            from: record.from.clone(),
            to: record.to.clone(),
        };
        let copy = if record.is_way_back() {
            kept_name(&subject.collection)
        } else {
            copy_name(&subject.collection)
        };
        let target = subject.target(&plan.from, &plan.to)?;
        let proxy = self.proxy(subject, &plan, &copy).await?;
        let mut mirror = subject.mirror(&proxy, &plan, &copy);
        mirror.source.batch_size = self.options.pace.scanned();
        let mut conversion = self.conversion(&target, mirror, record, findings);
        conversion.expect_documents().await;
        let mut done = conversion.prepare(start, !self.options.is_offline).await;
        if done.is_ok() {
            done = conversion.run().await;
        }
        let unfenced = conversion.end_fence().await;
        done = done.and(unfenced);
        let record = conversion.record.clone();
        drop(conversion);
        proxy.stop().await;
        if record.is_way_back() && matches!(done, Ok(()) | Err(Halt::Stopped)) {
            // Such a run has no other end, and the next one goes on from its position.
            return Ok(());
        }
        if self.options.task == ConvertTask::Shadow && matches!(done, Ok(()) | Err(Halt::Stopped)) {
            findings.add(&record.finding(&subject.namespace, &subject.collection));
            return Ok(());
        }
        done?;
        subject.report_converted(&record, findings);
        Ok(())
    }

    /// Whether the writers are clients of proxies, which hold their writes to the frozen collection. A run that
    /// does not swap never holds writers: they would wait for nothing if it was killed meanwhile.
    fn may_hold(self, record: &Record) -> bool {
        if matches!(self.options.task, ConvertTask::Shadow | ConvertTask::Follow) {
            return false;
        }
        let namespace = Namespace::parse(self.options.namespace);
        let is_automatic = namespace.is_some_and(|namespace| self.config.shapes.automatic(namespace).is_some());
        is_automatic || !record.from.is_plain()
    }

    fn conversion<'c>(
        self,
        target: &'c ShapedCollection,
        mirror: Mirror,
        record: Record,
        findings: &'c mut Findings,
    ) -> Conversion<'c>
    where
        Self: 'c,
    {
        let may_hold = self.may_hold(&record);
        let observer = RunObserver::new(self.options.task != ConvertTask::Verify);
        findings.share_terminal(observer.screen.bar());
        Conversion {
            client: self.client,
            target,
            task: self.options.task,
            mirror,
            record,
            indexes: Vec::new(),
            validation: Validation::default(),
            late_options: Vec::new(),
            changes: None,
            is_renamed: false,
            renamed_since: None,
            is_committing: false,
            fence: None,
            may_hold,
            holds: 0,
            last_thaw: Duration::ZERO,
            refused_since: None,
            released: None,
            pending: Ids::default(),
            touched: Ids::default(),
            opened: None,
            last: None,
            compared: 0,
            recorded: Instant::now(),
            reported: Instant::now(),
            read: Instant::now(),
            applied: Instant::now(),
            observer,
            throttle: Throttle::new(self.options.pace),
            findings,
            stop: self.stop,
        }
    }

    /// A proxy that knows the collection and its copy.
    async fn proxy(self, subject: &Subject, plan: &Plan, copy: &str) -> Result<EmbeddedProxy, Halt> {
        let mut shapes = Vec::new();
        let streams = |layout: &Layout| matches!(layout, Layout::Pages(options) if options.change_streams);
        let named = [
            (&plan.from, subject.collection.as_str(), false),
            (&plan.to, copy, streams(&plan.to)),
        ];
        // The record of a conversion does not contain the option, so the configuration decides.
        let configured = subject.configured.as_ref().and_then(ShapedCollection::bucket);
        let rejects_direct_writes = configured.is_some_and(BucketShape::rejects_direct_writes);
        for (layout, collection, has_change_streams) in named {
            let of = PagesOf {
                database: &subject.database,
                collection,
                has_change_streams,
                rejects_direct_writes,
            };
            shapes.extend(layout.shape(&of)?);
        }
        let invalid = |_| Halt::Words("its shapes contradict each other".to_owned());
        let shapes = Shapes::new(shapes).map_err(invalid)?;
        let started = EmbeddedProxy::start(self.config, shapes, self.name).await;
        started.map_err(|error| Halt::Words(format!("{error:#}")))
    }
}
