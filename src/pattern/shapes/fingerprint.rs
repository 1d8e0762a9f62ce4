//! The options of a shape that stored data depends on, in the form that the [shape
//! marker](crate::pattern::shape_marker) records. An option that a later version adds is left out
//! if it has the value that earlier versions implied.

use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::bucket::{BucketOptions, ItemIds};
use super::namespace_pattern::NamespacePattern;
use super::outlier::{ExtrasOptions, OutlierOptions};
use crate::command::document::{as_whole_number, get};
use crate::pattern::shape_marker::{differing, index};

/// The fingerprint of a bucket collection: the options that pages depend on.
pub(super) fn of_bucket(options: &BucketOptions) -> RawDocumentBuf {
    // Destructured completely, so that no new option is forgotten.
    let BucketOptions {
        namespace: _,
        mode: _,
        shadow_share: _,
        change_streams: _,
        reject_direct_writes: _,
        // A page that was closed at another `max_bytes` is marked short, so reads do not depend on
        // the option.
        max_bytes: _,
        key,
        time,
        items,
        count,
        max_items,
        rename,
        item_ids,
    } = options;
    let mut stored = RawDocumentBuf::new();
    stored.append(cstr!("key"), array(key));
    if let Some(time) = time {
        stored.append(cstr!("time"), time.as_str());
    }
    stored.append(cstr!("items"), items.as_str());
    stored.append(cstr!("count"), count.as_str());
    stored.append(cstr!("max_items"), i64::from(*max_items));
    if !rename.is_empty() {
        // Names may be any text, which field names may not.
        let mut pairs = RawArrayBuf::new();
        for (item, stored) in rename {
            pairs.push(array([item, stored]));
        }
        stored.append(cstr!("rename"), pairs);
    }
    stored.append(cstr!("item_ids"), item_ids.name());
    stored
}

/// The options of a bucket collection that a fingerprint records. Options that it does not record have their
/// defaults. `None`: this version does not know all of its options.
pub(super) fn bucket_options(stored: &RawDocument, namespace: NamespacePattern) -> Option<BucketOptions> {
    let text = |name| stored.get_str(name).ok().map(str::to_owned);
    let item_ids = match stored.get_str("item_ids").ok()? {
        "unique" => ItemIds::Unique,
        "unique_in_key" => ItemIds::UniqueInKey,
        "stored" => ItemIds::Stored,
        "dropped" => ItemIds::Dropped,
        _ => return None,
    };
    let pair = |pair: RawBsonRef<'_>| match texts(pair.as_array()?)?.as_slice() {
        [item, stored] => Some((item.clone(), stored.clone())),
        _ => None,
    };
    let rename = stored.get_array("rename").ok().into_iter().flatten().flatten();
    let options = BucketOptions {
        time: text("time"),
        items: text("items")?,
        count: text("count")?,
        max_items: get(stored, "max_items").and_then(as_whole_number)?.try_into().ok()?,
        rename: rename.map(pair).collect::<Option<_>>()?,
        item_ids,
        ..BucketOptions::new(namespace, texts(stored.get_array("key").ok()?)?)
    };
    let is_complete = differing(&of_bucket(&options), &index(stored)).is_empty();
    is_complete.then_some(options)
}

fn texts(array: &RawArray) -> Option<Vec<String>> {
    let texts = array.into_iter().map(|text| Some(text.ok()?.as_str()?.to_owned()));
    texts.collect()
}

fn array<'a>(texts: impl IntoIterator<Item = &'a String>) -> RawArrayBuf {
    texts.into_iter().map(String::as_str).collect()
}

/// The fingerprint of an outlier collection: the options that outliers and their extras depend on.
/// The extras' collection records it.
pub(super) fn of_outlier(options: &OutlierOptions) -> RawDocumentBuf {
    let OutlierOptions {
        namespace: _,
        mode: _,
        reads: _,
        array,
        threshold,
        flag,
        extras,
    } = options;
    let ExtrasOptions {
        // The shape marker is in this collection.
        collection: _,
        reference,
        array: extras_array,
        max_items,
    } = extras;
    let mut stored = RawDocumentBuf::new();
    stored.append(cstr!("array"), array.as_str());
    stored.append(cstr!("threshold"), i64::from(*threshold));
    stored.append(cstr!("flag"), flag.as_str());
    // The names of the configuration, with `_` in place of the dot.
    stored.append(cstr!("extras_ref"), reference.as_str());
    stored.append(cstr!("extras_array"), extras_array.as_str());
    stored.append(cstr!("extras_max_items"), i64::from(*max_items));
    stored
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{Mode, Reads};

    fn options() -> BucketOptions {
        let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
        BucketOptions {
            time: Some("at".to_owned()),
            rename: [("quantity".to_owned(), "qty".to_owned())].into(),
            ..options
        }
    }

    #[test]
    fn fingerprint_format_is_stable() {
        let expected = rawdoc! {
            "key": ["k"], "time": "at", "items": "history", "count": "count", "max_items": 10_i64, "rename": [["quantity", "qty"]],
            "item_ids": "unique",
        };
        assert_eq!(of_bucket(&options()), expected);
        let outlier = OutlierOptions {
            namespace: NamespacePattern::parse("d.c").unwrap(),
            array: "buyers".to_owned(),
            threshold: 50,
            flag: "has_extras".to_owned(),
            reads: Reads::Base,
            mode: Mode::Rewrite,
            extras: ExtrasOptions {
                collection: "extra_c".to_owned(),
                reference: "book".to_owned(),
                array: "more".to_owned(),
                max_items: 1000,
            },
        };
        let expected = rawdoc! {
            "array": "buyers", "threshold": 50_i64, "flag": "has_extras", "extras_ref": "book", "extras_array": "more",
            "extras_max_items": 1000_i64,
        };
        assert_eq!(of_outlier(&outlier), expected);
    }

    #[test]
    fn options_are_read_from_a_fingerprint() {
        let namespace = || NamespacePattern::parse("d.c").unwrap();
        for item_ids in [ItemIds::Unique, ItemIds::UniqueInKey, ItemIds::Stored, ItemIds::Dropped] {
            let stored = of_bucket(&BucketOptions { item_ids, ..options() });
            let read = bucket_options(&stored, namespace()).unwrap();
            assert_eq!(of_bucket(&read), stored);
        }
        let mut unknown = of_bucket(&options());
        unknown.append(cstr!("later"), 1);
        assert!(bucket_options(&unknown, namespace()).is_none());
        assert!(bucket_options(&rawdoc! {}, namespace()).is_none());
    }

    #[test]
    fn differing_options_are_named_and_irrelevant_ones_ignored() {
        let check = |options: BucketOptions, expected: &[&str]| {
            let there = index(&of_bucket(&self::options()));
            assert_eq!(differing(&of_bucket(&options), &there), expected);
        };
        check(
            BucketOptions {
                max_bytes: 1024,
                ..options()
            },
            &[],
        );
        let other = BucketOptions {
            time: None,
            item_ids: ItemIds::Dropped,
            max_items: 20,
            ..options()
        };
        check(
            other,
            &[
                "item_ids is \"unique\" in the shape marker",
                "max_items is 10 in the shape marker",
                "time is \"at\" in the shape marker",
            ],
        );
    }
}
