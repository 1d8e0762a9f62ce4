//! A collection's own collation: changes of outliers are worked out in another collection, which does not have it, so that strings
//! would compare otherwise there.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use bson::raw::{RawBsonRef, cstr};

use super::Outlier;
use crate::command::arguments::Carried;
use crate::command::document::{get, single};
use crate::command::error::CommandError;
use crate::command::reply::CursorReply;
use crate::session::error::RunError;
use crate::session::link::Request;

/// The collections that have been seen to have none.
#[derive(Debug, Default)]
pub(in crate::session) struct WithoutCollation(Mutex<HashSet<String>>);

impl WithoutCollation {
    /// Looks again at all of them.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outlier<'_> {
    /// The error for a collation of the collection's own.
    pub(super) fn own_collation(&self) -> CommandError {
        self.unsupported("a collation of its own")
    }

    /// Refuses a collection that has one.
    pub(super) async fn check_collation(&mut self) -> Result<(), RunError> {
        let namespace = self.namespace.to_string();
        if self.settings.without_collation.lock().contains(&namespace) {
            return Ok(());
        }
        let mut list = single("listCollections", 1);
        list.append(cstr!("filter"), single("name", self.namespace.collection));
        Carried::of(self.head.body()).append_identity(&mut list);
        let answer = self.link.call(Request::plain(&list)).await?;
        // Who may not ask, or asks for what is made in this moment, is not kept from writing.
        let found = CursorReply::parse(&answer).and_then(|cursor| cursor.documents().next());
        let Some(found) = found else { return Ok(()) };
        let options = get(found, "options").and_then(RawBsonRef::as_document);
        if options.is_some_and(|options| get(options, "collation").is_some()) {
            return Err(self.own_collation().into());
        }
        self.settings.without_collation.lock().insert(namespace);
        Ok(())
    }
}
