//! Change events of items, computed from mongod's change events of pages.
//!
//! Each event of a page contains the page before and after the change (`changeStreamPreAndPostImages`). The
//! items of both are compared by `_id`. Changes of the page header alone are no events.
//!
//! An item that moves to another page is removed and inserted in one transaction. The removal
//! [records the move](change_record) on its page, and both become one `update` or `replace`.

pub mod change_record;
mod difference;
mod event;
mod images;
mod page_changes;
mod resume_token;
mod update_description;

pub use self::event::{EventError, ItemEvent, ItemEvents, is_of_shape};
pub use self::images::{BeforeChange, FullDocument, Images};
pub use self::resume_token::{ItemPosition, ResumeToken, TokenError, UpstreamToken};
