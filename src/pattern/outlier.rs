//! The outlier pattern: an array's elements beyond a threshold are stored in another collection.
//!
//! An inline document is stored as the application wrote it. An outlier's *base document* has the first
//! elements, the flag, and the control of its *extras*, which are in *pages* of another collection. See
//! [`layout`] and `docs/decisions/0017-the-base-document-determines-the-array.md`.

pub mod add_to_set;
pub mod classify;
pub mod enclosed;
pub mod index;
pub mod inline;
pub mod join;
pub mod layout;
pub mod orphans;
pub mod page;
pub mod pipeline;
pub mod reassemble;
pub mod resplit;
pub mod split_fence;
pub mod statement;
pub mod unsupported_index;

/// A shape for tests.
#[cfg(test)]
fn sample() -> super::shapes::OutlierShape {
    use super::shapes::{ExtrasOptions, Mode, NamespacePattern, OutlierOptions, OutlierShape, Reads};
    OutlierShape::new(OutlierOptions {
        namespace: NamespacePattern::parse("shop.sales").expect("a namespace"),
        array: "buyers".to_owned(),
        threshold: 50,
        flag: "has_extras".to_owned(),
        reads: Reads::Merged,
        mode: Mode::Rewrite,
        extras: ExtrasOptions {
            collection: "extra_sales".to_owned(),
            reference: "book_id".to_owned(),
            array: "buyers_extra".to_owned(),
            max_items: 1000,
        },
    })
    .expect("no contradiction")
}
