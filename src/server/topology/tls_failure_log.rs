//! Logs TLS failures once per server. An unreachable server recovers by itself and is reported by
//! the topology monitor. A rejected certificate needs a person, and clients would only see that
//! there is no primary.

use std::collections::HashMap;
use std::io;

use mongodb::error::{Error, ErrorKind};
use mongodb::event::sdam::TopologyDescription;
use mongodb::options::ServerAddress;

/// The logged failures, by server.
#[derive(Debug, Default)]
pub(super) struct TlsFailureLog {
    logged: HashMap<ServerAddress, String>,
}

impl TlsFailureLog {
    /// Logs the TLS errors in this description that were not logged yet.
    pub(super) fn report(&mut self, found: &TopologyDescription) {
        for (address, server) in found.servers() {
            let error = server.error().and_then(of_tls);
            if let Some(error) = self.news(address, error) {
                tracing::warn!(server = %address, error, "the TLS handshake failed: the upstream's certificate or the proxy's was \
                                                          rejected");
            }
        }
    }

    /// The error if it was not logged since the server's last success.
    fn news(&mut self, address: &ServerAddress, error: Option<String>) -> Option<String> {
        let Some(error) = error else {
            self.logged.remove(address);
            return None;
        };
        let logged = self.logged.insert(address.clone(), error.clone());
        (logged.as_ref() != Some(&error)).then_some(error)
    }
}

/// The message of an error from the TLS library, which uses the kind `InvalidData` for its errors.
fn of_tls(error: &Error) -> Option<String> {
    match error.kind.as_ref() {
        ErrorKind::Io(error) if error.kind() == io::ErrorKind::InvalidData => Some(error.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_error_is_logged_once_and_again_after_recovery() {
        let mut distrust = TlsFailureLog::default();
        let server = ServerAddress::parse("127.0.0.1:27017").unwrap();
        let error = || Some("unknown issuer".to_owned());
        assert_eq!(distrust.news(&server, error()), error());
        assert_eq!(distrust.news(&server, error()), None);
        assert_eq!(distrust.news(&server, None), None);
        assert_eq!(distrust.news(&server, error()), error());
    }
}
