//! Why a connection was closed, and at which level it is logged.

use std::net::SocketAddr;

use super::http_request;
use crate::command::error::{CommandError, ErrorCode};
use crate::session::error::RunError;
use crate::session::metrics::{Limit, SessionMetrics};
use crate::session::stream::StreamError;
use crate::session::upstream::Upstream;
use crate::session::upstream_connection::LinkError;
use crate::wire::WireError;

#[derive(Debug)]
pub(super) enum Closed {
    /// The client closed it while idle, or while waiting for a reply.
    ByClient,
    /// The proxy is draining, or another server is the primary.
    Retired,
    /// The client exceeded the idle timeout.
    Idle,
    /// The client sent bytes that are not a valid message.
    Protocol(String),
    /// The client sent an HTTP request.
    HttpRequest,
    /// The client's compressed message cannot be decompressed.
    Compressed(WireError),
    /// No memory became free in time for the client's long message.
    NoRoom,
    /// The client's socket failed.
    Client(StreamError),
    /// The upstream connection failed.
    Upstream(LinkError),
    /// The upstream is a replica set without a primary.
    NoPrimary,
}

impl Closed {
    /// The error reply of a failed command, or the reason why the connection ends instead.
    pub(super) fn unless_replied(error: RunError) -> Result<CommandError, Self> {
        match error {
            RunError::Command(error) => Ok(error),
            RunError::Link(error) => Err(error.into()),
            RunError::ClientClosed => Err(Self::ByClient),
            RunError::LayoutChanged => Ok(layout_changed()),
        }
    }
}

/// The error for a layout that changed where no command can be executed again.
fn layout_changed() -> CommandError {
    let message = "`mongoshape convert` has exchanged a collection of this command: try again";
    CommandError::new(ErrorCode::WriteConflict, message)
}

impl From<LinkError> for Closed {
    fn from(error: LinkError) -> Self {
        Self::Upstream(error)
    }
}

impl From<StreamError> for Closed {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Idle(_) => Self::Idle,
            error if http_request::is_request(&error) => Self::HttpRequest,
            error => Self::Client(error),
        }
    }
}

impl Closed {
    /// Logs the reason once, at the level of its audience. `upstream`: the client's server, if it
    /// was connected.
    pub(super) fn report(&self, peer: SocketAddr, upstream: Option<&Upstream>, metrics: &SessionMetrics) {
        if let Some(limit) = self.limit() {
            metrics.limit_hit(limit);
        }
        match self {
            Self::ByClient | Self::Retired | Self::Idle => tracing::debug!(%peer, closed = ?self, "connection closed"),
            Self::HttpRequest => tracing::info!(%peer, "closed a connection: the client sent an HTTP request"),
            Self::Client(
                error @ (StreamError::Io(_) | StreamError::Wire(WireError::Io(_) | WireError::UnexpectedEof { .. })),
            ) => {
                tracing::debug!(%peer, %error, "the client closed the connection");
            }
            Self::Client(error @ (StreamError::Stalled(_) | StreamError::Unread(_))) => {
                tracing::warn!(%peer, %error, "closed a connection: the client is too slow");
            }
            Self::Client(error) => {
                tracing::warn!(%peer, %error, "closed a connection: the client violates the protocol");
            }
            Self::Compressed(error) => {
                tracing::warn!(%peer, %error, "closed a connection: the client violates the protocol");
            }
            Self::Protocol(reason) => {
                tracing::warn!(%peer, %reason, "closed a connection: the client violates the protocol");
            }
            Self::NoRoom => {
                tracing::warn!(%peer, "closed a connection: too many long messages at once");
            }
            // The topology monitor logs once that a primary stepped down or failed, instead of each
            // connection.
            Self::Upstream(error) if upstream.is_some_and(Upstream::is_retired) => {
                tracing::debug!(%peer, %error, "closed a connection: the upstream is no longer the primary");
            }
            Self::Upstream(error @ LinkError::GroupLost) => {
                tracing::warn!(%peer, %error, "closed a connection: the result of its insert is unknown");
            }
            Self::Upstream(error) => {
                tracing::warn!(%peer, %error, "closed a connection: the upstream is not available");
            }
            Self::NoPrimary => tracing::warn!(%peer, "refused a connection: the upstream has no primary"),
        }
    }

    fn limit(&self) -> Option<Limit> {
        match self {
            Self::Idle => Some(Limit::IdleTimeout),
            Self::Client(StreamError::Stalled(_)) => Some(Limit::FrameTimeout),
            Self::Client(StreamError::Unread(_)) => Some(Limit::SendTimeout),
            Self::Client(StreamError::Wire(WireError::MessageLength { .. })) => Some(Limit::MessageBytes),
            Self::Compressed(WireError::UncompressedSize { .. } | WireError::ImplausibleSize { .. }) => {
                Some(Limit::InflatedBytes)
            }
            Self::NoRoom => Some(Limit::LongMessages),
            _ => None,
        }
    }
}
