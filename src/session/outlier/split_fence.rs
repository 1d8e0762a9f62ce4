//! Whether documents may be split: not while the collection has the split fence.

use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument, cstr};

use super::command::OutlierCommand;
use crate::command::arguments::InheritedOptions;
use crate::command::document::{get, single};
use crate::command::error::ErrorCode;
use crate::command::reply::{CursorReply, succeeded};
use crate::pattern::outlier::layout::{self, Split};
use crate::pattern::outlier::split_fence::is_fenced;
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

impl OutlierCommand<'_> {
    /// Whether a document may become an outlier. Read for each document: splits are rare, and a conversion
    /// may begin at any time. If the fence is put up after this, mongod refuses the split.
    pub(super) async fn may_split(&mut self) -> Result<bool, RunError> {
        let mut list = single("listCollections", 1);
        list.append(cstr!("filter"), single("name", self.namespace.collection));
        InheritedOptions::of(self.context.head.body()).append_to_inspect(&mut list);
        let reply = match succeeded(self.context.link.call(UpstreamRequest::plain(&list)).await?) {
            Err(error) if error.is(ErrorCode::Unauthorized) => return Ok(true),
            reply => reply?,
        };
        let listed = CursorReply::parse(&reply).and_then(|cursor| cursor.documents().next());
        let options = listed.and_then(|listed| get(listed, "options").and_then(RawBsonRef::as_document));
        Ok(!options.is_some_and(|options| is_fenced(self.shape, options)))
    }

    /// The stored form of a document. `generation` is used if it gets extras.
    ///
    /// # Errors
    /// If it would get extras and has the array's field more than once.
    pub(super) async fn split(&mut self, document: &RawDocument, generation: ObjectId) -> Result<Split, RunError> {
        let split = layout::split(self.shape, document, generation);
        if split.pages.is_empty() {
            return Ok(split);
        }
        if self.may_split().await? {
            self.check_array(document)?;
            return Ok(split);
        }
        Ok(Split {
            base: document.to_owned(),
            pages: Vec::new(),
        })
    }
}
