//! Long runs of concurrent writers. `MONGOSHAPE_CHURN=full` runs them in full.

mod buckets;
mod outlier_crashes;
mod outliers;
