//! Existing data under `check`, `setup`, `setup --split` and the proxy: long documents, hand-written
//! outliers, and remains of crashes.

mod by_hand;
mod fixture;
mod remains;
mod split;
