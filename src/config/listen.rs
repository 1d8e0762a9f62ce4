//! The section `listen`.

use std::net::SocketAddr;
use std::time::Duration;

use super::model::{ListenConfig, Listeners, MemberConfig};
use super::options::{ConfigOption, Number, listen as options};
use super::section::Section;
use super::tls;
use super::values::{collide, milliseconds, socket_address};
use crate::server::tls::TlsTable;

/// `None` only if a mistake was recorded.
pub(super) fn resolve(section: &mut Section<'_>) -> Option<ListenConfig> {
    let listeners = listeners(section);
    let max_connections = within(section, &options::MAX_CONNECTIONS);
    let max_message_bytes = within(section, &options::MAX_MESSAGE_BYTES_OF_CLIENTS);
    let memory_mib = within(section, &options::MEMORY_MIB);
    let workers = within(section, &options::WORKERS);
    Some(ListenConfig {
        tls: tls::resolve(section, &options::TLS, TlsTable::Listen),
        max_connections,
        max_message_bytes,
        memory_mib,
        workers: (workers > 0).then_some(workers),
        handshake_timeout: milliseconds(section, &options::HANDSHAKE_TIMEOUT_MS),
        frame_timeout: milliseconds(section, &options::FRAME_TIMEOUT_MS),
        send_timeout: milliseconds(section, &options::SEND_TIMEOUT_MS),
        idle_timeout: idle_timeout(section),
        drain_timeout: milliseconds(section, &options::DRAIN_TIMEOUT_MS),
        listeners: listeners?,
    })
}

/// One listener, or one for each member.
fn listeners(section: &mut Section<'_>) -> Option<Listeners> {
    let members = section.tables(&options::member::TABLE);
    let present_as = section.choice(&options::PRESENT_AS);
    let advertise = section.string(&options::ADVERTISE);
    if members.is_empty() {
        let address = section.required_string(&options::ADDRESS);
        let address = address.and_then(|text| socket_address(section, &text))?;
        return Some(Listeners::One {
            address,
            present_as: present_as.unwrap_or_default(),
            advertise: advertise.and_then(|host| host_and_port(section, "advertise", &host)),
        });
    }
    let address = section.string_if_given(&options::ADDRESS).map(|_| "address");
    let others = [
        address,
        present_as.map(|_| "present_as"),
        advertise.map(|_| "advertise"),
    ];
    for name in others.into_iter().flatten() {
        let remedy = "remove it, or remove the [[listen.member]] tables";
        section.fault(
            name,
            "there are [[listen.member]] tables, which have their own addresses",
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
    let address = table.required_string(&options::member::ADDRESS);
    let address = address.and_then(|text| socket_address(table, &text));
    let upstream = table.required_string(&options::member::UPSTREAM);
    let upstream = upstream.and_then(|host| host_and_port(table, "upstream", &host));
    let advertise = table.string(&options::member::ADVERTISE);
    let advertise = advertise.and_then(|host| host_and_port(table, "advertise", &host));
    let (address, upstream) = (address?, upstream?);
    if others.iter().any(|other| collide(other.address, address)) {
        table.fault(
            "address",
            &format!("another member has the address {address}"),
            "choose another port",
        );
    }
    if others.iter().any(|other| other.upstream == upstream) {
        let remedy = "name each member once";
        table.fault("upstream", &format!("{upstream} already has a listener"), remedy);
    }
    if advertise.is_none() && address.ip().is_unspecified() {
        let remedy = "add advertise = \"host:port\" with the address at which clients reach this listener";
        table.fault("address", "clients cannot connect to this address", remedy);
    }
    Some(MemberConfig {
        address,
        upstream,
        advertise,
    })
}

/// A host and a port, in lower case, in which drivers compare them.
fn host_and_port(section: &mut Section<'_>, name: &'static str, text: &str) -> Option<String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    if port.is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port != 0)) {
        return Some(text.to_lowercase());
    }
    let problem = format!("\"{text}\" is not a host and port");
    section.refuse(
        name,
        &problem,
        "write a host and port such as \"db1.example.com:27017\"",
    )
}

fn within(section: &mut Section<'_>, option: &ConfigOption<Number>) -> usize {
    let Number { least, most, default } = option.value;
    let value = section.integer(option).unwrap_or(default);
    if !(least..=most).contains(&value) {
        let remedy = format!("write a number from {least} to {most}");
        section.fault(option.name, &format!("{value} is out of range"), &remedy);
    }
    value
}

/// 0 means no limit, because drivers keep idle connections.
fn idle_timeout(section: &mut Section<'_>) -> Option<Duration> {
    let option = &options::IDLE_TIMEOUT_MS;
    let Number { most, default, .. } = option.value;
    let value = section.integer(option).unwrap_or(default);
    if value > most {
        let remedy = format!("write milliseconds up to {most}, or 0 for no limit");
        section.fault(option.name, &format!("{value} is out of range"), &remedy);
    }
    (value > 0).then_some(Duration::from_millis(value as u64))
}

impl ListenConfig {
    /// The addresses of all listeners.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        match &self.listeners {
            Listeners::One { address, .. } => vec![*address],
            Listeners::Members(members) => members.iter().map(|member| member.address).collect(),
        }
    }
}
