//! Updates of items on a plain collection and on a shaped one of one replica set: the replies and the items
//! afterwards.

mod by_filter;
mod by_id;
mod concurrent;
mod failing;
mod fields;
mod growing;
mod invalid_statements;
mod long_arrays;
mod long_updates;
mod malformed;
mod many;
mod moving;
mod not_a_number;
mod positional;
mod random;
mod repeated;
mod resent;
mod sent_once;
mod sides;
mod sort_by_id;
mod sorted;
