//! Values that several tables share: timeouts and addresses.

use std::net::SocketAddr;
use std::time::Duration;

use super::options::{ConfigOption, Number};
use super::section::Section;

/// A timeout in milliseconds.
pub(super) fn milliseconds(section: &mut Section<'_>, option: &ConfigOption<Number>) -> Duration {
    let Number { least, most, default } = option.value;
    let value = section.integer(option).unwrap_or(default);
    if !(least..=most).contains(&value) {
        let remedy = format!("write milliseconds from {least} to {most}");
        section.fault(option.name, &format!("{value} is out of range"), &remedy);
    }
    Duration::from_millis(value as u64)
}

pub(super) fn socket_address(section: &mut Section<'_>, text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| {
        let problem = format!("\"{text}\" is not an IP address and port");
        section.refuse(
            "address",
            &problem,
            "write one such as \"127.0.0.1:27018\" or \"[::1]:27018\"",
        )
    })
}

/// Whether two listeners cannot both be bound. Port 0 is a different free port each time.
pub(super) fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && (any || one.ip() == other.ip())
}
