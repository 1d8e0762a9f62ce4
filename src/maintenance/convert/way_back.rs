//! The collection in its former layout after a conversion: the way back to it, and its end.

use super::Request;
use super::definition::Start;
use super::record::{Direction, Record};
use super::subject::Subject;
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::swap::{Halt, take_fences_down};
use crate::pattern::bucket::conversion::{copy_name, kept_name, record_name};

impl Request<'_> {
    /// Drops the collection in its former layout. A way back that has not swapped is given up.
    pub(super) async fn finish(
        self,
        subject: &Subject,
        record: Option<Record>,
        findings: &mut Findings,
    ) -> Result<(), Halt> {
        let record = record.ok_or_else(|| Halt::Words("there is no conversion to finish".to_owned()))?;
        let dropped = if record.is_done() {
            self.drop_kept(subject, &record).await?;
            record.kept().layout
        } else if record.is_back() {
            self.end(subject, &record).await?;
            &record.to
        } else {
            return Err(Halt::Words(record.unfinished()));
        };
        let text = format!("the collection of {dropped} was dropped");
        findings.add(&Finding::fine(&subject.namespace, text));
        Ok(())
    }

    /// Drops the copy of a conversion that has not swapped, and the record of the conversion. The copy of the
    /// way back is the collection in its former layout.
    async fn end(self, subject: &Subject, record: &Record) -> Result<(), Halt> {
        let target = subject.target(&record.from, &record.to)?;
        let by = self.freezing(&target, &record.from);
        by.drop(&copy_name(&subject.collection), record.known_copy()).await?;
        if let Some(copy) = record.known_copy() {
            // A way back that was killed before it renamed the kept collection.
            by.drop(&kept_name(&subject.collection), Some(copy)).await?;
        }
        subject.disable_images(record).await?;
        // A killed run leaves its fence.
        take_fences_down(&subject.database, &subject.collection, &record.source).await?;
        by.drop(&record_name(&subject.collection), None).await
    }

    /// Drops the collection in its former layout, and the record of the conversion.
    pub(super) async fn drop_kept(self, subject: &Subject, record: &Record) -> Result<(), Halt> {
        let target = subject.target(&record.from, &record.to)?;
        let by = self.freezing(&target, &record.from);
        by.drop(&kept_name(&subject.collection), Some(record.kept().uuid))
            .await?;
        if record.is_way_back() {
            subject.disable_images(record).await?;
        }
        by.drop(&record_name(&subject.collection), None).await
    }

    /// Returns to the layout before the last conversion, and continues a run of the way back that was
    /// stopped. Ends another conversion that has not swapped.
    pub(super) async fn back(
        self,
        subject: &Subject,
        record: Option<Record>,
        findings: &mut Findings,
    ) -> Result<(), Halt> {
        let record = record.ok_or_else(|| Halt::Words("there is no conversion to undo".to_owned()))?;
        if !record.is_done() {
            if record.is_back() {
                return self.go_on(subject, record, findings).await;
            }
            self.end(subject, &record).await?;
            findings.add(&Finding::fine(
                &subject.namespace,
                "the conversion was ended; the collection is as before",
            ));
            return Ok(());
        }
        let back = Record {
            direction: Direction::Back,
            ..subject.way_back(record).await?
        };
        back.write(&subject.database, &subject.collection).await?;
        self.go_on(subject, back, findings).await
    }

    /// Keeps the collection in its former layout up to date, until the run is stopped.
    pub(super) async fn follow(
        self,
        subject: &Subject,
        record: Option<Record>,
        findings: &mut Findings,
    ) -> Result<(), Halt> {
        let Some(record) = record else {
            let words = "no former collection is kept; `--follow` is for the time after a conversion";
            return Err(Halt::Words(words.to_owned()));
        };
        if !record.is_done() {
            return Err(Halt::Words(record.unfinished()));
        }
        let record = subject.way_back(record).await?;
        record.write(&subject.database, &subject.collection).await?;
        self.start(subject, record, Start::WithTheCopy, findings).await
    }
}
