//! The outlier pattern: its examples, and all operations at random beside a naive collection.

mod examples;
mod extras_index;
mod found;
mod random;
mod scene;
mod tails;
