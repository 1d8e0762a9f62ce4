//! The bucket pattern: many small items kept as one document per page of one key.
//!
//! An item's way in: [`item`] prepares it, [`key`] groups it, [`insert`] plans the statements that put it on a page
//! ([`layout`] says what a page looks like). Its way out: [`read`] decides between looking at one page ([`page_locator`] has the
//! arithmetic, [`item_decoder`] the items) and a pipeline that unpacks in mongod ([`unwind`], narrowed by [`predicate_pushdown`]). What was
//! there before, written by hand, becomes pages by [`adopt`]; plain documents become items on pages by [`pack`]; short pages are packed by [`compact`]. [`update_by_id`] changes items where they lie, [`upsert`] builds the one
//! that an upsert inserts. [`index`] has the shape's own indexes, [`item_index`] those of the application.

pub mod adopt;
pub mod compact;
pub mod count_pushdown;
pub mod delete;
pub mod distinct;
mod expression;
pub mod fence;
pub mod field_names;
pub mod index;
pub mod insert;
pub mod item;
pub mod item_decoder;
pub mod item_index;
pub mod item_lookup;
pub mod items_view;
pub mod key;
pub mod layout;
mod number;
pub mod pack;
pub mod page_locator;
pub mod predicate_pushdown;
pub mod projection;
pub mod read;
pub mod statistics;
pub mod take_back;
pub mod unwind;
pub mod update_by_id;
pub mod update_by_position;
pub mod upsert;
