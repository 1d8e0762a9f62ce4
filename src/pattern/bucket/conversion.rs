//! The collections beside a collection that is converted to another layout while applications use it.

/// The suffix of the copy's name.
const COPY: &str = ".mongoshape_convert";
/// The suffix of the name under which the converted collection is kept.
const KEPT: &str = ".mongoshape_kept";
/// The suffix of the name of the collection that records the conversion.
const RECORD: &str = ".mongoshape_conversion";

/// The field of the record that has the direction of the conversion.
pub const DIRECTION: &str = "direction";
/// Its value if the copy is the collection in its former layout.
pub const BACK: &str = "back";

/// The field of the record that has the number of the last swap that was given up, or that `--back` made: the
/// name then denotes a collection that it has denoted before. Proxies read it.
pub const SWAP_NUMBER: &str = "given_up_swaps";

/// The name of the copy in the new layout, in the same database. While it exists and no collection has the
/// converted name, a swap is in progress.
#[must_use]
pub fn copy_name(collection: &str) -> String {
    format!("{collection}{COPY}")
}

/// The name of the collection in its former layout, after the swap.
#[must_use]
pub fn kept_name(collection: &str) -> String {
    format!("{collection}{KEPT}")
}

/// The name of the collection that records the conversion.
#[must_use]
pub fn record_name(collection: &str) -> String {
    format!("{collection}{RECORD}")
}
