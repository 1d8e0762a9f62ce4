//! Translates mongod's error texts to items.

use bson::raw::RawBsonRef;

use crate::command::value_text::value_text;
use crate::pattern::bucket::item_index::{in_item_names, location_error};
use crate::pattern::shapes::BucketShape;

/// How mongod's messages name a document: the text before and after its `_id`.
const DOCUMENTS: [[&str; 2]; 2] = [["{_id: ", "} has the field"], [" in document {_id: ", "}"]];

/// The part of mongod's message for a document with two arrays that one index cannot contain.
const PARALLEL_ARRAYS: &str = "cannot index parallel arrays [";

/// The message in terms of the item with this `_id`, without the path to the item.
#[must_use]
pub fn in_terms_of_items(shape: &BucketShape, message: &str, id: RawBsonRef<'_>) -> String {
    if message.contains(PARALLEL_ARRAYS) {
        return in_item_names(shape, message);
    }
    match location_error(message) {
        Some(location) => location.message,
        None => with_id(&without_path(shape, message), id),
    }
}

/// Replaces the bucket's `_id` by the item's.
fn with_id(message: &str, id: RawBsonRef<'_>) -> String {
    for [begin, end] in DOCUMENTS {
        let parts = message
            .split_once(begin)
            .and_then(|(before, rest)| Some((before, rest.rsplit_once(end)?.1)));
        if let Some((before, behind)) = parts {
            return format!("{before}{begin}{}{end}{behind}", value_text(id));
        }
    }
    message.to_owned()
}

fn without_path(shape: &BucketShape, message: &str) -> String {
    let prefix = format!("{}.", shape.items());
    let mut words = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, behind)) = rest.split_once(&prefix) {
        words.push_str(before);
        // The element: its number or its identifier.
        match behind.split_once('.') {
            Some((element, path)) if is_element(element) => rest = path,
            _ => {
                words.push_str(&prefix);
                rest = behind;
            }
        }
    }
    words.push_str(rest);
    words
}

fn is_element(text: &str) -> bool {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number || (text.starts_with("$[mongoshapeItem") && text.ends_with(']'))
}
