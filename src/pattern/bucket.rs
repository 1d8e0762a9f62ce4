//! The bucket pattern.

pub mod index;
