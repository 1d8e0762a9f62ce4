//! Updates of items on a plain collection and on a shaped one of one replica set: the replies and the items
//! afterwards.

mod again;
mod by_id;
mod failing;
mod fields;
mod found;
mod malformed;
mod many;
mod moving;
mod not_a_number;
mod positional;
mod random;
mod sides;
mod together;
mod wrong;
