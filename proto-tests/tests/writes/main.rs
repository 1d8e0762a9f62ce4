//! Writes to bucket collections, beside a plain collection.

mod bulk_deletes;
mod bulk_write;
mod change_streams;
mod concurrency;
mod deletes;
mod deletes_by_id;
mod duplicate_keys;
mod emptied_pages;
mod error_order;
mod exactly_once;
mod explained;
mod insert_groups;
mod inserts;
mod key_changes;
mod long_values;
mod majority_reads;
mod page_reservation;
mod parallel_arrays;
mod shared_pages;
mod time_changes;
mod time_limits;
mod transactions;
mod unique_indexes;
mod unique_values;
mod updates;
mod upserts;
