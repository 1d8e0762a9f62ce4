//! The position at which a change stream begins.

use bson::raw::{RawBson, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{append_fields, get, put, single};
use crate::pattern::bucket::change_stream::{ItemPosition, ResumeToken, TokenError, UpstreamToken};

/// The options of `$changeStream` that name a token.
const TOKENS: [&str; 2] = ["resumeAfter", "startAfter"];

/// The position at which a client's stream begins.
#[derive(Clone, Debug)]
pub(super) struct Start {
    /// The client's options about the position and the collections, with tokens of mongod.
    requested: RawDocumentBuf,
    /// The client's own token.
    token: Option<RawDocumentBuf>,
    /// The position within an event of mongod, if the client has received a part of its item events.
    within: Option<EventPosition>,
}

/// A position within an event of mongod.
#[derive(Clone, Debug)]
pub(super) struct EventPosition {
    /// The event.
    pub(super) upstream: UpstreamToken,
    /// The last item event that the client has received.
    pub(super) item: ItemPosition,
}

impl Start {
    pub(super) fn of(options: &RawDocument) -> Result<Self, TokenError> {
        let mut start = Self {
            requested: RawDocumentBuf::new(),
            token: None,
            within: None,
        };
        for (name, value) in options.iter().flatten() {
            if TOKENS.contains(&name.as_str()) {
                let token = value.as_document().map(ResumeToken::parse).transpose()?.flatten();
                start.token = value.as_document().map(RawDocument::to_owned);
                match token {
                    Some(ResumeToken { upstream, item }) => {
                        put(&mut start.requested, name.as_str(), upstream.document());
                        start.within = item.map(|item| EventPosition { upstream, item });
                    }
                    // mongod refuses the token.
                    None => start.requested.append(name, value),
                }
            } else if ["startAtOperationTime", "allChangesForCluster"].contains(&name.as_str()) {
                start.requested.append(name, value);
            }
        }
        Ok(start)
    }

    /// Behind an `invalidate`.
    pub(super) fn behind_invalidate(token: &RawDocument) -> Self {
        Self {
            requested: single("startAfter", token),
            token: None,
            within: None,
        }
    }

    /// The stage that opens the stream of pages, with these options about images. A position within an event
    /// begins at the time of the event.
    pub(super) fn stage(&self, images: &RawDocument) -> RawDocumentBuf {
        let mut options = images.to_owned();
        match &self.within {
            None => append_fields(&mut options, &self.requested),
            Some(position) => {
                for (name, value) in self.requested.iter().flatten() {
                    if !TOKENS.contains(&name.as_str()) {
                        options.append(name, value);
                    }
                }
                options.append(cstr!("startAtOperationTime"), position.item.cluster_time);
            }
        }
        single("$changeStream", &options)
    }

    /// The client's options with tokens of mongod.
    pub(super) fn as_of_mongod(&self, options: &RawDocument) -> RawDocumentBuf {
        let mut copy = RawDocumentBuf::new();
        for (name, value) in options.iter().flatten() {
            match get(&self.requested, name.as_str()) {
                Some(requested) => copy.append(name, RawBson::from(requested)),
                None => copy.append(name, value),
            }
        }
        copy
    }

    /// The client's token, if it has named one.
    pub(super) fn token(&self) -> Option<&RawDocument> {
        self.token.as_deref()
    }

    /// The position within an event of mongod, if there is one.
    pub(super) fn within(self) -> Option<EventPosition> {
        self.within
    }
}
