//! The errors of an upstream connection.

use std::io::ErrorKind;

use crate::session::stream::StreamError;
use crate::wire::WireError;

/// The reason why the upstream connection is unusable.
#[derive(Debug, thiserror::Error)]
pub(in crate::session) enum LinkError {
    /// It could not be established.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// The server's address.
        address: String,
        /// The cause.
        reason: String,
    },
    /// The upstream closed it.
    #[error("the upstream closed the connection")]
    Closed,
    /// Its reply belongs to another request, so no later reply on this connection can be trusted.
    #[error("the upstream replied to an earlier request; the connection was closed")]
    OutOfStep,
    /// The upstream closed it without the `close_notify` of TLS.
    #[error("the upstream closed the TLS connection; if it requires a client certificate, set tlsCertificateKeyFile")]
    BrokenOff,
    /// A dry run sends nothing. The connection is intact.
    #[error("the command is a dry run")]
    DryRun,
    /// Another session executed the command in a group, and its result is unknown. The connection is intact.
    #[error("an insert was executed together with those of other clients, and its result is unknown")]
    GroupLost,
    #[error("the upstream connection failed: {0}")]
    Stream(StreamError),
    /// An internal command could not be encoded, or its reply not decoded.
    #[error("the upstream sent an invalid message: {0}")]
    Wire(#[from] WireError),
}

impl From<StreamError> for LinkError {
    fn from(error: StreamError) -> Self {
        match error {
            // rustls reports a missing `close_notify` as `UnexpectedEof`. Without TLS this error does
            // not occur.
            StreamError::Io(error) if error.kind() == ErrorKind::UnexpectedEof => Self::BrokenOff,
            error => Self::Stream(error),
        }
    }
}
