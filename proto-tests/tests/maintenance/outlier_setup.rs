//! What is there already: documents beyond the threshold, outliers that were split by hand, and what crashes
//! have left. What becomes of them under `check`, `setup`, `setup --split` and the proxy.

mod by_hand;
mod remains;
mod split;
mod world;
