//! Changes of an item's time on a standalone, where items are not relocated: the replies, concurrent reads,
//! and the marks on pages.

mod comparison;
mod fixture;
mod marks;
mod readers;
mod scans;
mod writers;
