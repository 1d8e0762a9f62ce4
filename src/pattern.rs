//! Stored layouts and planners. Pure: no input or output; the clock and new ids are passed in.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

pub mod bucket;
pub mod exact_match;
pub mod matched_element;
pub mod outlier;
pub mod pipeline;
pub mod shape_marker;
pub mod shapes;
pub mod unsupported;
pub mod unwound;
