//! The outlier pattern: its examples, and random operations beside a plain collection.

mod budget;
mod collations;
mod deletes_of_many;
mod dropped;
mod examples;
mod extras_index;
mod failing_projections;
mod fixture;
mod in_place;
mod interleaved;
mod leading_stages;
mod many;
mod many_inline;
mod missing_pages;
mod modifiers;
mod overlong;
mod random;
mod refusals;
mod regressions;
mod repeated_array;
mod snapshots;
mod tails;
mod time_limits;
mod timestamps;
mod upsert_races;
mod write_concerns;
