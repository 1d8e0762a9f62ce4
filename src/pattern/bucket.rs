//! The bucket pattern: many small items kept as one document per page of one key.
//!
//! An item's way in: [`item`] prepares it, [`key`] groups it, [`insert`] plans the statements that put it on a page
//! ([`layout`] says what a page looks like). Its way out: [`read`] decides between looking at one page ([`page`] has the
//! arithmetic, [`unpack`] the items) and a pipeline that unpacks in mongod ([`pipeline`], narrowed by [`filter`]). What was
//! there before, written by hand, becomes pages by [`adopt`]; plain documents become items on pages by [`pack`]; short pages are packed by [`compact`]. [`change`] changes items where they lie, [`upsert`] builds the one
//! that an upsert inserts. [`index`] has the shape's own indexes, [`item_index`] those of the application.

pub mod adopt;
pub mod change;
pub mod compact;
pub mod delete;
pub mod distinct;
mod expression;
pub mod fence;
pub mod field_names;
pub mod index;
pub mod insert;
pub mod item;
pub mod item_index;
pub mod items_view;
pub mod key;
pub mod layout;
mod number;
pub mod pack;
pub mod page;
pub mod pipeline;
pub mod place;
pub mod predicate_pushdown;
pub mod projection;
pub mod read;
pub mod resolve;
pub mod statistics;
pub mod summary;
pub mod take_back;
pub mod unpack;
pub mod upsert;
