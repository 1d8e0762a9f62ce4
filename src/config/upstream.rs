//! The section `upstream`. Parses the connection string with the driver. Resolves no name, opens no
//! socket.

use mongodb::options::{ConnectionString, HostInfo};

use super::model::UpstreamConfig;
use super::options::upstream::{CONNECT_TIMEOUT_MS, EXPIRE_INTERVAL_MS, URI};
use super::section::Section;
use super::tls;
use super::values::milliseconds;
use crate::server::topology::dial_address;

/// `None` only if a mistake was recorded.
pub(super) fn resolve(section: &mut Section<'_>) -> Option<UpstreamConfig> {
    let uri = section.required_string(&URI);
    let connect_timeout = milliseconds(section, &CONNECT_TIMEOUT_MS);
    let expire_interval = milliseconds(section, &EXPIRE_INTERVAL_MS);
    let uri = uri?;
    let parsed = match ConnectionString::parse(&uri) {
        Ok(parsed) => parsed,
        Err(error) => return malformed(section, &uri, &error),
    };
    if parsed.load_balanced == Some(true) {
        let remedy = "remove it, and name the servers";
        section.fault("uri", "loadBalanced is not supported", remedy);
    }
    let hosts = match &parsed.host_info {
        HostInfo::HostIdentifiers(hosts) => hosts.iter().map(dial_address).collect::<Option<Vec<_>>>(),
        HostInfo::DnsRecord(name) => Some(vec![name.clone()]),
        _ => None,
    };
    let Some(hosts) = hosts.filter(|hosts| !hosts.is_empty()) else {
        return section.refuse(
            "uri",
            "it does not contain a host and port",
            "write mongodb://host:port",
        );
    };
    Some(UpstreamConfig {
        uri,
        hosts,
        connect_timeout,
        expire_interval,
    })
}

/// The driver's message may quote the string. So it is shown only if the string cannot contain a
/// secret.
fn malformed(section: &mut Section<'_>, uri: &str, error: &mongodb::error::Error) -> Option<UpstreamConfig> {
    if let Some((problem, remedy)) = tls::unknown_option(uri) {
        return section.refuse("uri", problem, remedy);
    }
    let lower = uri.to_lowercase();
    let secret = ["@", "password", "authmechanismproperties"];
    if secret.iter().any(|word| lower.contains(word)) {
        let remedy = "write mongodb://user:password@host:port, with : / ? # [ ] @ % in user and password percent-encoded: %3A for :";
        return section.refuse("uri", "it is not a connection string", remedy);
    }
    let reason = match error.kind.as_ref() {
        mongodb::error::ErrorKind::InvalidArgument { message, .. } => message.clone(),
        other => other.to_string(),
    };
    let problem = format!("it is not a connection string ({reason})");
    section.refuse("uri", &problem, "write mongodb://host:port")
}
