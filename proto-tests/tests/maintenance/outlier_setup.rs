//! Existing data under `check`, `setup`, `setup --split`, `convert` and the proxy: long documents, hand-written
//! outliers, and remains of crashes.

mod by_hand;
mod convert;
mod fixture;
mod pushers;
mod remains;
mod split;
