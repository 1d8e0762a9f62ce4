//! What of a bucket collection's options its pages are stored by: who reads them by others reads them wrongly.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::{BucketOptions, ItemIds};
use crate::command::document::{as_whole_number, get};
use crate::command::value_text::value_text;

/// The options, as the collection's index [`SHAPE`](crate::pattern::bucket::index::SHAPE) says them. A stored format: an option that is
/// added later, and must not change either, is left out where it has the value that it had before.
pub(super) fn stored_as(options: &BucketOptions) -> RawDocumentBuf {
    // Each of them is named here, so that none is forgotten.
    let BucketOptions {
        namespace: _,
        mode: _,
        // A page that was closed by it is marked short, whatever it is now.
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
        // Names may be any text, which fields of documents may not.
        let mut pairs = RawArrayBuf::new();
        for (item, stored) in rename {
            pairs.push(array([item, stored]));
        }
        stored.append(cstr!("rename"), pairs);
    }
    let item_ids = match item_ids {
        ItemIds::Unique => "unique",
        ItemIds::Stored => "stored",
        ItemIds::Dropped => "dropped",
    };
    stored.append(cstr!("item_ids"), item_ids);
    stored
}

fn array<'a>(texts: impl IntoIterator<Item = &'a String>) -> RawArrayBuf {
    texts.into_iter().map(String::as_str).collect()
}

/// The options that are another in what is there, with what they are there; none where pages may be read.
pub(super) fn differing(there: &RawDocument, wanted: &RawDocument) -> Vec<String> {
    let fields = there.iter().chain(wanted.iter()).flatten();
    let mut names: Vec<&str> = fields.map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !is_same(get(there, name), get(wanted, name)));
    let told = |name: &str| match get(there, name) {
        Some(value) => format!("{name} is {} there", value_text(value)),
        None => format!("there is no {name}"),
    };
    names.into_iter().map(told).collect()
}

/// Tools that restore an index may give a number another type.
fn is_same(one: Option<RawBsonRef<'_>>, other: Option<RawBsonRef<'_>>) -> bool {
    let number = |value: Option<RawBsonRef<'_>>| value.and_then(as_whole_number);
    one == other || (number(one).is_some() && number(one) == number(other))
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::NamespacePattern;

    fn options() -> BucketOptions {
        let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
        BucketOptions {
            time: Some("at".to_owned()),
            rename: [("quantity".to_owned(), "qty".to_owned())].into(),
            ..options
        }
    }

    #[test]
    fn it_is_a_stored_format() {
        let expected = rawdoc! {
            "key": ["k"], "time": "at", "items": "history", "count": "count", "max_items": 10_i64, "rename": [["quantity", "qty"]],
            "item_ids": "unique",
        };
        assert_eq!(stored_as(&options()), expected);
    }

    #[test]
    fn what_differs_is_named_and_what_does_not_matter_is_not() {
        let check = |options: BucketOptions, expected: &[&str]| {
            assert_eq!(differing(&stored_as(&self::options()), &stored_as(&options)), expected);
        };
        check(
            BucketOptions {
                max_bytes: 1024,
                ..options()
            },
            &[],
        );
        check(
            BucketOptions {
                max_items: 20,
                ..options()
            },
            &["max_items is 10 there"],
        );
        let other = BucketOptions {
            time: None,
            item_ids: ItemIds::Dropped,
            ..options()
        };
        check(other, &["item_ids is \"unique\" there", "time is \"at\" there"]);
        let restored = rawdoc! { "max_items": 10 };
        assert!(differing(&restored, &rawdoc! { "max_items": 10_i64 }).is_empty());
        assert_eq!(differing(&rawdoc! {}, &restored), ["there is no max_items"]);
    }
}
