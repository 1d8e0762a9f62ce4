//! Estimates whether packing would save a page. Pages that were closed because of their size, or because of a
//! `2dsphere` index, cannot be packed.

use bson::raw::{RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use tokio_util::sync::CancellationToken;

use super::page_cursor::{PageCursor, given};
use crate::command::document::{put, single};
use crate::maintenance::swap::Halt;
use crate::maintenance::upstream::{ShapedCollection, indexes, raw_specs};
use crate::pattern::bucket::compact::Packer;
use crate::pattern::bucket::index;
use crate::pattern::bucket::item_index::SphereLocations;
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::layout::path;
use crate::pattern::shapes::BucketShape;

/// Packs keys with short pages in memory, until one would have fewer pages.
pub(super) async fn is_worth_it(
    target: &ShapedCollection,
    shape: &BucketShape,
    stop: &CancellationToken,
) -> Result<bool, Halt> {
    let mut filter = single(path::EXCEPTION, true);
    put(&mut filter, path::SHORT, true);
    let mut fields = single("_id", 0);
    for field in shape.key() {
        put(&mut fields, field, 1);
    }
    let mut find = single("find", target.collection.as_str());
    find.append(cstr!("filter"), &filter);
    find.append(cstr!("projection"), &fields);
    find.append(cstr!("hint"), index::EXCEPTIONS);
    let found = target.database.run_raw_cursor_command(find).await?;
    let mut found = found.with_type::<RawDocumentBuf>();
    let locations = SphereLocations::of(shape, raw_specs(&indexes(target).await?));
    // Pages arrive key by key, except those that change concurrently.
    let mut last: Option<Vec<u8>> = None;
    while let Some(page) = found.try_next().await? {
        if stop.is_cancelled() {
            return Err(Halt::Stopped);
        }
        let key = Key::of(shape, &page).map_err(|_| Halt::Misfit)?;
        let identity = Some(key.identity());
        if last == identity {
            continue;
        }
        last = identity;
        let pages = PageCursor::open(&target.database, &target.collection, shape, Some(&key)).await?;
        if saves_a_page(pages, shape, &locations).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Packs the pages of a key.
async fn saves_a_page(
    mut pages: PageCursor<'_>,
    shape: &BucketShape,
    locations: &SphereLocations,
) -> Result<bool, Halt> {
    let Some(packer) = pages.peek().map(|page| Packer::new(shape, given(), page)) else {
        return Ok(false);
    };
    let mut packer = packer.map_err(|_| Halt::Misfit)?.with_locations(locations.clone());
    let identity = packer.identity().to_vec();
    let (mut before, mut after) = (0_u64, 0_u64);
    while let Some(page) = pages.take_of(&identity).await? {
        before += 1;
        after += u64::try_from(packer.take(&page).map_err(|_| Halt::Misfit)?.len()).unwrap_or(u64::MAX);
    }
    after += u64::try_from(packer.finish().len()).unwrap_or(u64::MAX);
    Ok(after < before)
}
