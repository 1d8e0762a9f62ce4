//! Reads the forecast that `advise` prints.

use anyhow::{Context as _, Result};

use super::PageSizes;
use crate::ItemIds;

/// The forecast for a setting of `item_ids`. If `advise` proposes no shape, the sizes in its reason.
pub(super) fn forecast(printed: &str, item_ids: ItemIds) -> Result<PageSizes> {
    let refused = printed.split_once("pages by key would need ").map(|(_, reason)| reason);
    if let Some(reason) = refused {
        return refused_sizes(reason, item_ids).with_context(|| format!("no sizes in:\n{printed}"));
    }
    let column = |row: &str| {
        let line = printed.lines().find(|line| line.trim_start().starts_with(row));
        line.and_then(last_number)
            .with_context(|| format!("no {row} in:\n{printed}"))
    };
    let after = |words: &str| {
        let rest = printed.split_once(words).map(|(_, rest)| rest);
        rest.and_then(first_size)
            .with_context(|| format!("no {words:?} in:\n{printed}"))
    };
    let mut sizes = PageSizes {
        pages: column("documents ")?,
        storage: column("storage ")?,
        indexes: column("index bytes ")?,
    };
    if item_ids != ItemIds::Unique {
        sizes.indexes -= after("index entries, ")?;
    }
    if item_ids == ItemIds::Dropped {
        // An earlier build has no forecast for it.
        sizes.storage = after("\"dropped\": the storage is ").unwrap_or(sizes.storage);
    }
    Ok(sizes)
}

/// The sizes in the reason against a shape.
fn refused_sizes(reason: &str, item_ids: ItemIds) -> Option<PageSizes> {
    let reason = reason.lines().next()?;
    let behind = |setting: &str| reason.split_once(setting).map(|(_, text)| text);
    let text = match item_ids {
        ItemIds::Unique | ItemIds::UniqueInKey => reason,
        ItemIds::Stored => behind("item_ids = \"stored\"")?,
        ItemIds::Dropped => behind("item_ids = \"dropped\"").or_else(|| behind("item_ids = \"stored\""))?,
    };
    let size = |words: &str| text.split_once(words).and_then(|(_, rest)| first_size(rest));
    let pages = text.split_once('(').and_then(|(_, rest)| rest.split_once(" pages,"));
    let Some((pages, _)) = pages else {
        // An earlier build gives only the sum.
        let text = text.trim_start_matches(" the pages would need ");
        return Some(PageSizes {
            pages: f64::NAN,
            storage: first_size(text)?,
            indexes: 0.0,
        });
    };
    Some(PageSizes {
        pages: pages.replace(',', "").parse().ok()?,
        storage: size("storage ")?,
        indexes: size("indexes ")?,
    })
}

/// The number at the end of a line: a count, or a size with its unit.
fn last_number(line: &str) -> Option<f64> {
    let mut words = line.split_whitespace().rev();
    let last = words.next()?;
    match factor(last) {
        Some(factor) => Some(words.next()?.parse::<f64>().ok()? * factor),
        None => last.replace(',', "").parse().ok(),
    }
}

/// The size at the beginning of a text.
fn first_size(text: &str) -> Option<f64> {
    let mut words = text.split([' ', ',', ';', ')']);
    let number: f64 = words.next()?.parse().ok()?;
    Some(number * factor(words.next()?.trim())?)
}

fn factor(unit: &str) -> Option<f64> {
    let unit = unit.lines().next().unwrap_or(unit);
    ["B", "kB", "MB", "GB"]
        .iter()
        .zip([1.0, 1e3, 1e6, 1e9])
        .find(|(name, _)| **name == unit)
        .map(|(_, factor)| factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        let printed = "  documents            100,000        10,010\n    index bytes           3.2 MB        2.5 MB\n    storage               \
                       2.9 MB        3.5 kB\n  options       item_ids = \"stored\" saves 100,000 index entries, 2.0 MB, if every\n  \"dropped\": \
                       the storage is 3.1 kB\n";
        let check = |item_ids, storage, indexes| {
            let expected = PageSizes {
                pages: 10_010.0,
                storage,
                indexes,
            };
            assert_eq!(forecast(printed, item_ids).unwrap(), expected);
        };
        check(ItemIds::Unique, 3500.0, 2_500_000.0);
        check(ItemIds::Stored, 3500.0, 500_000.0);
        check(ItemIds::Dropped, 3100.0, 500_000.0);
        let refused = "no bucket shape: pages by key would need 5.5 MB on disk (1,234 pages, storage 4.1 MB, indexes 1.4 MB); the documents \
                       need 3.9 MB; with item_ids = \"stored\" the pages would need 5.1 MB on disk (1,234 pages, storage 4.1 MB, indexes 1.0 \
                       MB), with item_ids = \"dropped\" 5.0 MB on disk (1,234 pages, storage 4.0 MB, indexes 1.0 MB)\n";
        let sizes = forecast(refused, ItemIds::Dropped).unwrap();
        let expected = PageSizes {
            pages: 1234.0,
            storage: 4e6,
            indexes: 1e6,
        };
        assert_eq!(sizes, expected);
        assert!(forecast("nothing", ItemIds::Unique).is_err());
    }
}
