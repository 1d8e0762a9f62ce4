//! Compares the collection and its copy side by side, and corrects the copy.

use std::time::{Duration, Instant};

use bson::raw::RawDocument;
use tokio_util::sync::CancellationToken;

use super::copy::Copy;
use super::page_cursor::{PageCursor, given, has_key};
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::swap::Halt;
use crate::maintenance::upstream::ShapedCollection;
use crate::pattern::bucket::compact::{Packer, PageChain};
use crate::pattern::bucket::key::Key;
use crate::pattern::shapes::BucketShape;

/// Interval of progress reports.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// The results of a pass.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PassTally {
    /// Keys of the collection.
    pub(super) keys: u64,
    /// Pages of the collection.
    pub(super) before: u64,
    /// Pages after packing.
    pub(super) after: u64,
    /// Keys whose pages in the copy were wrong or missing.
    pub(super) differences: u64,
}

/// Reports the progress of a pass.
pub(super) struct Progress<'a> {
    namespace: &'a str,
    verb: &'static str,
    findings: &'a mut Findings,
    reported: Instant,
}

impl<'a> Progress<'a> {
    pub(super) fn new(namespace: &'a str, verb: &'static str, findings: &'a mut Findings) -> Self {
        let reported = Instant::now();
        Self {
            namespace,
            verb,
            findings,
            reported,
        }
    }

    fn report(&mut self, tally: &PassTally) {
        if self.reported.elapsed() >= REPORT_EVERY {
            self.reported = Instant::now();
            let text = format!("{} {} keys, {} pages so far", self.verb, tally.keys, tally.before);
            self.findings.add(&Finding::note(self.namespace, text));
        }
    }
}

pub(super) struct SyncPass<'a, 'c> {
    target: &'a ShapedCollection,
    shape: &'a BucketShape,
    copy: &'a mut Copy<'c>,
    stop: &'a CancellationToken,
    tally: PassTally,
    /// A key of the copy that the collection also has, but further on.
    ahead: Option<Vec<u8>>,
}

impl<'a, 'c> SyncPass<'a, 'c> {
    pub(super) fn new(
        target: &'a ShapedCollection,
        shape: &'a BucketShape,
        copy: &'a mut Copy<'c>,
        stop: &'a CancellationToken,
    ) -> Self {
        copy.begin();
        Self {
            target,
            shape,
            copy,
            stop,
            tally: PassTally::default(),
            ahead: None,
        }
    }

    /// Processes all keys. Both collections are read in the same order, so a key on one side only
    /// is new or was removed.
    pub(super) async fn go(mut self, progress: &mut Progress<'_>) -> Result<PassTally, Halt> {
        let database = &self.target.database;
        let mut source = PageCursor::open(database, &self.target.collection, self.shape, None).await?;
        let mut copy = PageCursor::open(database, self.copy.name(), self.shape, None).await?;
        while let Some(identity) = source.identity().map(<[u8]>::to_vec) {
            if self.stop.is_cancelled() {
                return Err(Halt::Stopped);
            }
            self.tally.keys += 1;
            self.pass_over_gone(&mut copy, Some(&identity)).await?;
            if copy.identity() == Some(&identity) {
                self.compare(&mut source, &mut copy).await?;
            } else {
                self.write(&mut source).await?;
            }
            progress.report(&self.tally);
        }
        while copy.peek().is_some() {
            self.ahead = None;
            self.pass_over_gone(&mut copy, None).await?;
            skip(&mut copy).await?;
        }
        self.copy.flush().await?;
        Ok(self.tally)
    }

    /// Removes keys of the copy that the collection does not have, up to the key `until` or a key
    /// that exists.
    async fn pass_over_gone(&mut self, copy: &mut PageCursor<'_>, until: Option<&[u8]>) -> Result<(), Halt> {
        while let Some(page) = copy.peek() {
            let identity = copy.identity();
            if identity == until || identity == self.ahead.as_deref() {
                return Ok(());
            }
            let key = Key::of(self.shape, page).map_err(|_| Halt::Misfit)?;
            if has_key(&self.target.database, &self.target.collection, self.shape, &key).await? {
                self.ahead = Some(key.identity());
                return Ok(());
            }
            self.copy.remove(&key).await?;
            self.tally.differences += 1;
            skip(copy).await?;
        }
        Ok(())
    }

    /// Writes a key that the copy does not have.
    async fn write(&mut self, source: &mut PageCursor<'_>) -> Result<(), Halt> {
        let Some(mut packer) = self.packer(source)? else {
            return Ok(());
        };
        if !self.copy.is_fresh() {
            self.copy.remove(packer.key()).await?;
        }
        let identity = packer.identity().to_vec();
        let mut written = false;
        while let Some(page) = source.take_of(&identity).await? {
            self.tally.before += 1;
            for packed in packer.take(&page).map_err(|_| Halt::Misfit)? {
                self.tally.after += 1;
                self.copy.push(packed).await?;
            }
        }
        for packed in packer.finish() {
            written = true;
            self.tally.after += 1;
            self.copy.push(packed).await?;
        }
        self.tally.differences += u64::from(written);
        Ok(())
    }

    /// Compares the pages of a key in the copy with the expected ones.
    async fn compare(&mut self, source: &mut PageCursor<'_>, copy: &mut PageCursor<'_>) -> Result<(), Halt> {
        let Some(mut packer) = self.packer(source)? else {
            return Ok(());
        };
        let (key, identity) = (packer.key().clone(), packer.identity().to_vec());
        let mut chain = PageChain::default();
        while let Some(page) = source.take_of(&identity).await? {
            self.tally.before += 1;
            for packed in packer.take(&page).map_err(|_| Halt::Misfit)? {
                self.tally.after += 1;
                self.hold_against(&mut chain, &packed.document, copy, &identity).await?;
            }
        }
        for packed in packer.finish() {
            self.tally.after += 1;
            self.hold_against(&mut chain, &packed.document, copy, &identity).await?;
        }
        while copy.take_of(&identity).await?.is_some() {
            chain.differ();
        }
        if chain.is_same() && !self.copy.is_evicted(&identity) {
            return Ok(());
        }
        self.tally.differences += 1;
        self.write_anew(&key).await
    }

    async fn hold_against(
        &self,
        chain: &mut PageChain,
        expected: &RawDocument,
        copy: &mut PageCursor<'_>,
        identity: &[u8],
    ) -> Result<(), Halt> {
        if chain.differs() {
            return Ok(());
        }
        chain.expect(self.shape, expected);
        // Packed pages arrive in the order of their numbers except the first one, so the chain holds at
        // most two unmatched pages.
        match copy.take_of(identity).await? {
            Some(found) => chain.find(self.shape, &found),
            None => chain.differ(),
        }
        Ok(())
    }

    async fn write_anew(&mut self, key: &Key) -> Result<(), Halt> {
        self.copy.remove(key).await?;
        let place = (&self.target.database, &self.target.collection);
        let mut source = PageCursor::open(place.0, place.1, self.shape, Some(key)).await?;
        let Some(mut packer) = self.packer(&source)? else {
            return Ok(());
        };
        let identity = packer.identity().to_vec();
        while let Some(page) = source.take_of(&identity).await? {
            for packed in packer.take(&page).map_err(|_| Halt::Misfit)? {
                self.copy.push(packed).await?;
            }
        }
        for packed in packer.finish() {
            self.copy.push(packed).await?;
        }
        Ok(())
    }

    /// The packer for the next key. `None` at the end.
    fn packer<'p>(&self, source: &PageCursor<'_>) -> Result<Option<Packer<'p>>, Halt>
    where
        'a: 'p,
    {
        let packer = source.peek().map(|page| Packer::new(self.shape, given(), page));
        let packer = packer.transpose().map_err(|_| Halt::Misfit)?;
        Ok(packer.map(|packer| packer.with_locations(self.copy.locations().clone())))
    }
}

/// Skips all pages of the next key.
async fn skip(pages: &mut PageCursor<'_>) -> Result<(), Halt> {
    if let Some(identity) = pages.identity().map(<[u8]>::to_vec) {
        while pages.take_of(&identity).await?.is_some() {}
    }
    Ok(())
}
