//! What the sections `listen`, `admin` and `log` mean, and what must hold between sections.

use std::net::SocketAddr;
use std::time::Duration;

use toml::de::DeTable;
use tracing_subscriber::EnvFilter;

use super::section::Section;
use super::source::Source;
use super::{AdminConfig, Config, ListenConfig, LogConfig, PresentAs, UpstreamConfig, shapes, suggest, tls, upstream};
use crate::telemetry::log::LogFormat;

/// The longest wait that may be configured: an hour. Longer is a slip of the unit.
const LONGEST_WAIT_MS: u64 = 3_600_000;
const MAX_CONNECTIONS_LIMIT: usize = 1_000_000;

/// Resolves the whole file. `None` only after a mistake was noted, and not after every mistake.
pub(super) fn config<'a>(source: &'a Source<'a>, table: DeTable<'a>) -> Option<Config> {
    let mut root = Section::root(source, table);
    let mut listen_section = root.table("listen");
    let mut upstream_section = root.table("upstream");
    let mut admin_section = root.table("admin");
    let log = log(root.table("log"));
    let shapes = shapes::resolve(&mut root);
    root.finish();
    let listen = listen(&mut listen_section);
    let upstream = upstream::resolve(&mut upstream_section);
    let admin = admin(&mut admin_section);
    if let (Some(listen), Some(upstream)) = (&listen, &upstream) {
        check_no_loop(&mut upstream_section, upstream, listen.address);
    }
    if let (Some(listen), Some(admin)) = (&listen, &admin) {
        check_own_address(&mut admin_section, admin.address, listen.address);
    }
    for section in [listen_section, upstream_section, admin_section] {
        section.finish();
    }
    Some(Config {
        listen: listen?,
        upstream: upstream?,
        admin: admin?,
        log,
        shapes,
    })
}

fn listen(section: &mut Section<'_>) -> Option<ListenConfig> {
    let address = section.required_string("address", "\"127.0.0.1:27018\"");
    let address = address.and_then(|text| socket_address(section, &text));
    let max_connections = section.integer("max_connections").unwrap_or(10_000);
    if !(1..=MAX_CONNECTIONS_LIMIT).contains(&max_connections) {
        let remedy = format!("write a number from 1 to {MAX_CONNECTIONS_LIMIT}");
        section.fault(
            "max_connections",
            &format!("{max_connections} is out of range"),
            &remedy,
        );
    }
    let tls = tls::resolve(section);
    let member_remedy = "remove it, and put the proxy before a standalone server";
    section.unsupported("member", &["_0_ADDRESS", "_0_UPSTREAM"], member_remedy);
    let present_as = present_as(section);
    let frame_timeout = milliseconds(section, "frame_timeout_ms", 30_000);
    let drain_timeout = milliseconds(section, "drain_timeout_ms", 10_000);
    Some(ListenConfig {
        address: address?,
        max_connections,
        present_as,
        tls,
        frame_timeout,
        drain_timeout,
    })
}

fn present_as(section: &mut Section<'_>) -> PresentAs {
    let choices = [
        ("auto", PresentAs::Auto),
        ("mongos", PresentAs::Mongos),
        ("replica-set", PresentAs::ReplicaSet),
    ];
    let chosen = section.choice("present_as", &choices).unwrap_or_default();
    if chosen == PresentAs::Auto {
        return chosen;
    }
    let problem = "posing as a mongos or a replica set is not in this version";
    section.fault("present_as", problem, "write \"auto\"");
    PresentAs::Auto
}

fn admin(section: &mut Section<'_>) -> Option<AdminConfig> {
    let text = section.string("address");
    if section.is_faulty("address") {
        return None;
    }
    let address = socket_address(section, text.as_deref().unwrap_or("127.0.0.1:9216"))?;
    Some(AdminConfig { address })
}

fn log(mut section: Section<'_>) -> LogConfig {
    let filter = section.string("filter").unwrap_or_else(|| "info".to_owned());
    if let Some(problem) = filter_problem(&filter) {
        let remedy = "write a level (error, warn, info, debug, trace, off) or module=level, separated by commas";
        section.fault("filter", &problem, remedy);
    }
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let format = section.choice("format", &formats).unwrap_or_default();
    section.finish();
    LogConfig { filter, format }
}

/// A bare word that is no level is a module to `EnvFilter`, so that `inof` would log nothing and say nothing.
fn filter_problem(filter: &str) -> Option<String> {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    if let Err(error) = EnvFilter::try_new(filter) {
        return Some(format!("`{filter}` is no filter: {error}"));
    }
    filter.split(',').map(str::trim).find_map(|part| {
        let bare = !part.contains(['=', '[', ':', '_']) && !LEVELS.contains(&part.to_lowercase().as_str());
        let level = suggest::nearest(part, LEVELS).filter(|_| bare)?;
        Some(format!("`{part}` is no level (`{level}` is)"))
    })
}

/// A wait in milliseconds.
pub(super) fn milliseconds(section: &mut Section<'_>, name: &'static str, default: u64) -> Duration {
    let value = section.integer(name).unwrap_or(default);
    if !(1..=LONGEST_WAIT_MS).contains(&value) {
        let remedy = format!("write milliseconds from 1 to {LONGEST_WAIT_MS}");
        section.fault(name, &format!("{value} is out of range"), &remedy);
    }
    Duration::from_millis(value)
}

fn socket_address(section: &mut Section<'_>, text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| {
        let problem = format!("\"{text}\" is not an IP address and port");
        section.refuse(
            "address",
            &problem,
            "write one such as \"127.0.0.1:27018\" or \"[::1]:27018\"",
        )
    })
}

/// Whether two listeners cannot both be bound. Port 0 is another free port each time.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && (any || one.ip() == other.ip())
}

fn check_own_address(section: &mut Section<'_>, admin: SocketAddr, listen: SocketAddr) {
    if collide(admin, listen) {
        let problem = format!("{admin} is taken by `listen.address`, {listen}");
        section.fault("address", &problem, "choose another port");
    }
}

/// A proxy that is its own upstream opens connections to itself until none are left.
fn check_no_loop(section: &mut Section<'_>, upstream: &UpstreamConfig, listen: SocketAddr) {
    let address = upstream.address.replace("localhost", "127.0.0.1");
    let Ok(address) = address.parse::<SocketAddr>() else {
        return;
    };
    let reaches_any = listen.ip().is_unspecified() && !address.ip().is_loopback();
    if collide(address, listen) && !reaches_any {
        let problem = format!("{} is the proxy itself (`listen.address`)", upstream.address);
        section.fault("uri", &problem, "write the address of the MongoDB server");
    }
}
