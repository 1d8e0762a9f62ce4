//! Commands that define collections and indexes, commands across collections, and refused commands.

mod change_streams;
mod changed_shape;
mod cross_collection;
mod definitions;
mod direct_writes;
mod expiry;
mod indexes;
mod merge;
mod refusals;
mod stream_layouts;
mod stream_positions;
mod validators;
