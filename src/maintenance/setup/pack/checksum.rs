//! The items of a collection, told apart from any others by one number.
//!
//! Each item is hashed as it is stored, with its key; what the hashes sum up to does not depend on their
//! order. So documents that are read once more and pages that are read back are the same items if they have
//! the same sum, but for a chance of one in 2⁶⁴. That nothing has changed in the documents since, nor been
//! lost on their way, is one comparison.

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

/// How many there are, and their sum.
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

    /// Those that the plain documents of a collection are.
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

    /// Those that a collection's pages hold.
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

    /// That these, read of plain documents, are the packed ones.
    pub(super) fn must_be(self, packed: Self) -> Result<(), Halt> {
        if self == packed {
            return Ok(());
        }
        let text = format!(
            "documents were deleted or changed while they were packed ({} are there, {} were packed); stop what does that, and run \
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

/// All documents of a collection, in the order in which they are found.
async fn all(target: &ShapedCollection, collection: &str) -> Result<Cursor<RawDocumentBuf>, Halt> {
    let mut find = single("find", collection);
    find.append(cstr!("hint"), single("$natural", 1));
    Ok(target.database.run_raw_cursor_command(find).await?.with_type())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_does_not_matter_and_everything_else_does() {
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
