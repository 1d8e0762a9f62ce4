//! What the section `upstream` means. Parses the connection string with the driver; resolves no name, opens no socket.

use std::net::Ipv6Addr;

use mongodb::options::{ConnectionString, HostInfo, ServerAddress, Tls};

use super::UpstreamConfig;
use super::resolve::milliseconds;
use super::section::Section;

/// Where a server listens when the connection string names no port.
const DEFAULT_PORT: u16 = 27017;

/// `None` only after a mistake was noted.
pub(super) fn resolve(section: &mut Section<'_>) -> Option<UpstreamConfig> {
    let uri = section.required_string("uri", "\"mongodb://127.0.0.1:27017\"");
    let connect_timeout = milliseconds(section, "connect_timeout_ms", 10_000);
    let uri = uri?;
    let parsed = match ConnectionString::parse(&uri) {
        Ok(parsed) => parsed,
        Err(error) => return malformed(section, &uri, &error),
    };
    for (problem, remedy) in unsupported(&parsed) {
        section.fault("uri", problem, remedy);
    }
    let address = match &parsed.host_info {
        HostInfo::HostIdentifiers(hosts) => hosts.first().and_then(dial_address),
        _ => None,
    };
    if address.is_none() && !section.is_faulty("uri") {
        return section.refuse("uri", "it names no host and port", "write mongodb://host:port");
    }
    Some(UpstreamConfig {
        uri,
        address: address?,
        connect_timeout,
    })
}

/// The driver's message may quote the string, so it is only shown where that cannot hold a secret.
fn malformed(section: &mut Section<'_>, uri: &str, error: &mongodb::error::Error) -> Option<UpstreamConfig> {
    let lower = uri.to_lowercase();
    let secret = ["@", "password", "authmechanismproperties"];
    if secret.iter().any(|word| lower.contains(word)) {
        let remedy =
            "write mongodb://user:password@host:port, with : / ? # [ ] @ % in user and password as %3A and so on";
        return section.refuse("uri", "it is not a connection string", remedy);
    }
    let reason = match error.kind.as_ref() {
        mongodb::error::ErrorKind::InvalidArgument { message, .. } => message.clone(),
        other => other.to_string(),
    };
    let problem = format!("it is not a connection string ({reason})");
    section.refuse("uri", &problem, "write mongodb://host:port")
}

/// What the driver could do and this version of the proxy cannot: (problem, remedy).
fn unsupported(parsed: &ConnectionString) -> Vec<(&'static str, &'static str)> {
    let several = match &parsed.host_info {
        HostInfo::HostIdentifiers(hosts) => hosts.len() > 1,
        _ => false,
    };
    let checks = [
        (
            matches!(parsed.host_info, HostInfo::DnsRecord(_)),
            "mongodb+srv is not in this version",
            "write mongodb://host:port",
        ),
        (
            several,
            "several hosts are not in this version",
            "name one standalone server",
        ),
        (
            parsed.replica_set.is_some(),
            "replicaSet is not in this version",
            "remove it, and name one standalone server",
        ),
        (
            // A SRV string switches TLS on by itself, which is no mistake of its own.
            matches!(parsed.tls, Some(Tls::Enabled(_))) && !matches!(parsed.host_info, HostInfo::DnsRecord(_)),
            "TLS to the upstream is not in this version",
            "remove tls and ssl options, and connect over the same host or a trusted network",
        ),
        (
            parsed.load_balanced == Some(true),
            "loadBalanced is not in this version",
            "remove it, and name one standalone server",
        ),
    ];
    let found = checks.into_iter().filter(|(applies, ..)| *applies);
    found.map(|(_, problem, remedy)| (problem, remedy)).collect()
}

/// What `TcpStream::connect` takes. `None` for a Unix socket.
fn dial_address(address: &ServerAddress) -> Option<String> {
    let ServerAddress::Tcp { host, port } = address else {
        return None;
    };
    let port = port.unwrap_or(DEFAULT_PORT);
    // The driver keeps an IPv6 address without its brackets.
    Some(match host.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]:{port}"),
        Err(_) => format!("{host}:{port}"),
    })
}
