//! The bucket pattern: many small items stored as one document per page of one key.
//!
//! * Writing: [`item`] validates an item, [`key`] groups items, and [`insert`] plans the statements
//!   that store them on pages. [`layout`] defines a page. [`update_by_id`] and
//!   [`update_by_position`] change items in place, and [`upsert`] builds the item of an upsert.
//! * Reading: [`read`] plans page scans ([`page_locator`] has the arithmetic, [`item_decoder`]
//!   decodes items). [`unwind`] and [`predicate_pushdown`] make pipelines, [`stored_paths`] those
//!   that group or count.
//! * Conversion: [`adopt`] makes hand-written buckets pages, [`pack`] packs plain documents, and
//!   [`compact`] packs short pages again. [`beside`] has the names of the collections that they use.
//! * Indexes: [`index`] has the shape's own indexes, [`item_index`] those of the application.

mod added_fields;
pub mod adopt;
pub mod beside;
pub mod change_stream;
pub mod compact;
pub mod conversion;
pub mod count_pushdown;
pub mod delete;
pub mod distinct;
pub mod expiry;
mod expression;
pub mod fence;
pub mod field_names;
pub mod freeze;
pub mod index;
pub mod insert;
pub mod item;
pub mod item_decoder;
pub mod item_filter;
pub mod item_index;
pub mod item_lookup;
pub mod items_view;
pub mod key;
pub mod key_end;
pub mod layout;
pub mod merge;
pub mod near;
mod number;
pub mod pack;
pub mod page_locator;
pub mod predicate_pushdown;
pub mod projection;
pub mod read;
pub mod readable_indexes;
pub mod skip_scan;
pub mod statistics;
mod stored_paths;
pub mod targeting;
pub mod undo_ordered_insert;
pub mod unique_index;
pub mod unwind;
pub mod update_by_id;
pub mod update_by_position;
pub mod upsert;
pub mod validation;
pub mod validator;
pub mod value_order;
