//! The outlier pattern: an array's elements beyond a threshold are kept elsewhere.
//!
//! A typical document is stored as the application wrote it. An outlier's *base* document has the first elements, the flag, and
//! says what its *extras* are; these lie in documents of their own, its *pages*. See [`layout`] and
//! `docs/decisions/0017-an-outlier-says-all-of-itself.md`.

pub mod layout;
pub mod merge;
pub mod page;
pub mod pipeline;
pub mod regroup;
pub mod remains;
pub mod statement;
pub mod touch;
