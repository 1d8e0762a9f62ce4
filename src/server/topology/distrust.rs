//! Tells of servers with which TLS fails. A server that is away comes back by itself, and whoever watches it says so; a
//! certificate that is not accepted stays so until a person acts, and clients would only see that there is no primary.

use std::collections::HashMap;
use std::io;

use mongodb::error::{Error, ErrorKind};
use mongodb::event::sdam::TopologyDescription;
use mongodb::options::ServerAddress;

/// What was told, so that it is told once.
#[derive(Debug, Default)]
pub(super) struct Distrust {
    told: HashMap<ServerAddress, String>,
}

impl Distrust {
    /// Looks at what the driver has found, and logs what is new in it.
    pub(super) fn tell(&mut self, found: &TopologyDescription) {
        for (address, server) in found.servers() {
            let Some(error) = server.error().and_then(of_tls) else {
                continue;
            };
            if self.told.get(address) != Some(&error) {
                tracing::warn!(server = %address, error, "the upstream's certificate or ours is not accepted");
                self.told.insert(address.clone(), error);
            }
        }
    }
}

/// The words of an error if it is one of the TLS library: it gives all of its own as invalid data.
fn of_tls(error: &Error) -> Option<String> {
    match error.kind.as_ref() {
        ErrorKind::Io(error) if error.kind() == io::ErrorKind::InvalidData => Some(error.to_string()),
        _ => None,
    }
}
