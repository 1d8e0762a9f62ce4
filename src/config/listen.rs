//! What the section `listen` means.

use std::net::SocketAddr;
use std::time::Duration;

use super::resolve::{collide, milliseconds, socket_address};
use super::section::Section;
use super::{ListenConfig, Listeners, MemberConfig, PresentAs, tls};
use crate::server::tls::TlsTable;
use crate::wire::limits::MAX_MESSAGE_BYTES;

const MAX_CONNECTIONS_LIMIT: usize = 1_000_000;
const MAX_WORKERS: usize = 1024;
/// The shortest limit of messages, in bytes: below it not even a driver's handshake fits.
const MIN_MESSAGE_BYTES: usize = 64 * 1024;

/// `None` only after a mistake was noted.
pub(super) fn resolve(section: &mut Section<'_>) -> Option<ListenConfig> {
    let listeners = listeners(section);
    let max_connections = within(section, "max_connections", (1, MAX_CONNECTIONS_LIMIT), 10_000);
    let max_message_bytes = (MIN_MESSAGE_BYTES, MAX_MESSAGE_BYTES);
    let max_message_bytes = within(section, "max_message_bytes", max_message_bytes, MAX_MESSAGE_BYTES);
    let workers = within(section, "workers", (0, MAX_WORKERS), 0);
    Some(ListenConfig {
        tls: tls::resolve(section, TlsTable::Listen),
        max_connections,
        max_message_bytes,
        workers: (workers > 0).then_some(workers),
        handshake_timeout: milliseconds(section, "handshake_timeout_ms", 30_000),
        frame_timeout: milliseconds(section, "frame_timeout_ms", 30_000),
        send_timeout: milliseconds(section, "send_timeout_ms", 600_000),
        idle_timeout: idle_timeout(section),
        drain_timeout: milliseconds(section, "drain_timeout_ms", 10_000),
        listeners: listeners?,
    })
}

/// One address, or one for each member.
fn listeners(section: &mut Section<'_>) -> Option<Listeners> {
    let members = section.tables("member", "address");
    let choices = [
        ("auto", PresentAs::Mongos),
        ("mongos", PresentAs::Mongos),
        ("replica-set", PresentAs::ReplicaSet),
    ];
    let present_as = section.choice("present_as", &choices);
    let advertise = section.string("advertise");
    if members.is_empty() {
        let address = section.required_string("address", "\"127.0.0.1:27018\"");
        let address = address.and_then(|text| socket_address(section, &text))?;
        return Some(Listeners::One {
            address,
            present_as: present_as.unwrap_or_default(),
            advertise: advertise.and_then(|host| host_and_port(section, "advertise", &host)),
        });
    }
    let address = section.string("address").map(|_| "address");
    let others = [
        address,
        present_as.map(|_| "present_as"),
        advertise.map(|_| "advertise"),
    ];
    for name in others.into_iter().flatten() {
        let remedy = "remove it, or the [[listen.member]] tables";
        section.fault(
            name,
            "there are [[listen.member]] tables, each with an address of its own",
            remedy,
        );
    }
    members_of(members).map(Listeners::Members)
}

fn members_of(tables: Vec<Section<'_>>) -> Option<Vec<MemberConfig>> {
    let mut members: Vec<MemberConfig> = Vec::new();
    let mut complete = true;
    for mut table in tables {
        match member(&mut table, &members) {
            Some(member) => members.push(member),
            None => complete = false,
        }
        table.finish();
    }
    complete.then_some(members)
}

fn member(table: &mut Section<'_>, others: &[MemberConfig]) -> Option<MemberConfig> {
    let address = table.required_string("address", "\"127.0.0.1:27018\"");
    let address = address.and_then(|text| socket_address(table, &text));
    let upstream = table.required_string("upstream", "\"db1:27017\"");
    let upstream = upstream.and_then(|host| host_and_port(table, "upstream", &host));
    let advertise = table.string("advertise");
    let advertise = advertise.and_then(|host| host_and_port(table, "advertise", &host));
    let (address, upstream) = (address?, upstream?);
    if others.iter().any(|other| collide(other.address, address)) {
        table.fault(
            "address",
            &format!("{address} is another member's"),
            "choose another port",
        );
    }
    if others.iter().any(|other| other.upstream == upstream) {
        let remedy = "name each member once";
        table.fault("upstream", &format!("{upstream} has a listener already"), remedy);
    }
    if advertise.is_none() && address.ip().is_unspecified() {
        let remedy = "add advertise = \"host:port\", as clients are to reach this listener";
        table.fault("address", "clients cannot be told to connect to it", remedy);
    }
    Some(MemberConfig {
        address,
        upstream,
        advertise,
    })
}

/// A name or an address, and a port, in the small letters that drivers compare.
fn host_and_port(section: &mut Section<'_>, name: &'static str, text: &str) -> Option<String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    if port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port != 0)) {
        return Some(text.to_lowercase());
    }
    let problem = format!("\"{text}\" is not a host and port");
    section.refuse(name, &problem, "write one such as \"db1.example.com:27017\"")
}

fn within(section: &mut Section<'_>, name: &'static str, (least, most): (usize, usize), default: usize) -> usize {
    let value = section.integer(name).unwrap_or(default);
    if !(least..=most).contains(&value) {
        let remedy = format!("write a number from {least} to {most}");
        section.fault(name, &format!("{value} is out of range"), &remedy);
    }
    value
}

/// 0 is no limit: drivers keep connections for later.
fn idle_timeout(section: &mut Section<'_>) -> Option<Duration> {
    const NAME: &str = "idle_timeout_ms";
    let value = section.integer(NAME).unwrap_or(0_u64);
    let longest = Duration::from_hours(24 * 7);
    let value = Duration::from_millis(value);
    if value > longest {
        let remedy = format!("write milliseconds up to {}, or 0 for none", longest.as_millis());
        section.fault(NAME, &format!("{} is out of range", value.as_millis()), &remedy);
    }
    (!value.is_zero()).then_some(value)
}

impl ListenConfig {
    /// Every address that is listened on.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        match &self.listeners {
            Listeners::One { address, .. } => vec![*address],
            Listeners::Members(members) => members.iter().map(|member| member.address).collect(),
        }
    }
}
