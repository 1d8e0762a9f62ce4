//! The names of the collections of a conversion between plain documents and pages.
//!
//! The copy is built beside the collection. At the cut-over the collection is frozen and renamed to the kept
//! one, and the copy takes its name. The state exists from before the freeze until after the copy has the
//! name. So a missing collection with a state is between the two renamings.

/// The suffix of the copy's name.
const COPY: &str = ".mongoshape_convert";
/// The suffix of the name under which the original is kept.
const KEPT: &str = ".mongoshape_kept";
/// The suffix of the name of the conversion's state.
const STATE: &str = ".mongoshape_conversion";

/// The name of the copy in the other layout.
#[must_use]
pub fn copy_name(collection: &str) -> String {
    format!("{collection}{COPY}")
}

/// The name of the original after the cut-over.
#[must_use]
pub fn kept_name(collection: &str) -> String {
    format!("{collection}{KEPT}")
}

/// The name of the collection with the conversion's state.
#[must_use]
pub fn state_name(collection: &str) -> String {
    format!("{collection}{STATE}")
}
