//! Changes of an item's time on a standalone, where items are not relocated: the replies, concurrent reads,
//! and the marks on pages.

mod compared;
mod marks;
mod readers;
mod scans;
mod scene;
mod writers;
