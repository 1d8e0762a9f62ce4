//! Queries on bucket collections, beside a plain collection.

mod cursors;
mod disjunctions;
mod distinct_hint;
mod dotted_names;
mod errors_in_transactions;
mod examples;
mod key_and_time;
mod keys;
mod large_batches;
mod listed_values;
mod long_names;
mod lookups;
mod near;
mod newest;
mod newest_lookup;
mod order;
mod paging;
mod projections;
mod proxies;
mod queries;
mod range_cursors;
mod regressions;
mod repeated_fields;
mod secondaries;
mod snapshots;
mod values;
