//! A checksum of the items of a collection.
//!
//! Each item is hashed as stored, with its key. The sum of the hashes does not depend on the order.
//! If the documents read again and the pages read back have the same sum, they contain the same
//! items, except with a probability of 2⁻⁶⁴. So one comparison shows that no document has changed
//! and none was lost.

use std::hash::{DefaultHasher, Hasher};

use bson::raw::{RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::Cursor;
use tokio_util::sync::CancellationToken;

use super::copy::unfit;
use crate::command::document::single;
use crate::maintenance::swap::Halt;
use crate::maintenance::upstream::ShapedCollection;
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::pack;
use crate::pattern::bucket::read::bucket::Bucket;
use crate::pattern::shapes::BucketShape;

/// The number of items, and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Items {
    pub(super) count: u64,
    sum: u64,
}

impl Items {
    fn add(&mut self, key: &[u8], stored: &[u8]) {
        let mut hasher = DefaultHasher::new();
        hasher.write_usize(key.len());
        hasher.write(key);
        hasher.write(stored);
        self.count += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }

    /// The items of a collection of plain documents.
    pub(super) async fn of_documents(
        target: &ShapedCollection,
        shape: &BucketShape,
        collection: &str,
        stop: &CancellationToken,
    ) -> Result<Self, Halt> {
        let mut items = Self::default();
        let mut documents = all(target, collection).await?;
        while let Some(document) = documents.try_next().await? {
            not_stopped(stop)?;
            let item = pack::item(shape, &document).map_err(|error| unfit(&document, &error))?;
            items.add(item.identity(), item.stored().as_bytes());
        }
        Ok(items)
    }

    /// The items of a collection of pages.
    pub(super) async fn of_pages(
        target: &ShapedCollection,
        shape: &BucketShape,
        collection: &str,
        stop: &CancellationToken,
    ) -> Result<Self, Halt> {
        let mut items = Self::default();
        let mut pages = all(target, collection).await?;
        while let Some(page) = pages.try_next().await? {
            not_stopped(stop)?;
            let key = Key::of(shape, &page).map_err(|_| Halt::Misfit)?.identity();
            let bucket = Bucket::open(shape, &page).ok_or(Halt::Misfit)?;
            bucket.stored().for_each(|stored| items.add(&key, stored.as_bytes()));
        }
        Ok(items)
    }

    /// Fails if the items read from the plain documents differ from the packed ones.
    pub(super) fn must_be(self, packed: Self) -> Result<(), Halt> {
        if self == packed {
            return Ok(());
        }
        let text = format!(
            "documents were deleted or changed while they were packed ({} exist, {} were packed); stop the programs that write, and run \
             again",
            self.count, packed.count
        );
        Err(Halt::Words(text))
    }
}

fn not_stopped(stop: &CancellationToken) -> Result<(), Halt> {
    if stop.is_cancelled() {
        Err(Halt::Stopped)
    } else {
        Ok(())
    }
}

/// All documents of a collection, in natural order.
async fn all(target: &ShapedCollection, collection: &str) -> Result<Cursor<RawDocumentBuf>, Halt> {
    let mut find = single("find", collection);
    find.append(cstr!("hint"), single("$natural", 1));
    Ok(target.database.run_raw_cursor_command(find).await?.with_type())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_ignores_order_only() {
        let of = |items: &[(&[u8], &[u8])]| {
            let mut sum = Items::default();
            for (key, stored) in items {
                sum.add(key, stored);
            }
            sum
        };
        let both: [(&[u8], &[u8]); 2] = [(b"a", b"1"), (b"b", b"2")];
        let turned: [(&[u8], &[u8]); 2] = [(b"b", b"2"), (b"a", b"1")];
        assert_eq!(of(&both), of(&turned));
        assert_ne!(of(&both), of(&[(b"a", b"2"), (b"b", b"1")]));
        assert_ne!(of(&both), of(&both[..1]));
        assert_ne!(of(&[(b"ab", b"c")]), of(&[(b"a", b"bc")]));
        assert!(of(&both).must_be(of(&both[..1])).is_err());
    }
}
