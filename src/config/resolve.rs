//! The sections `admin` and `log`, and rules between sections.

use std::net::SocketAddr;
use std::time::Duration;

use toml::de::DeTable;
use tracing_subscriber::EnvFilter;

use super::model::{Config, ListenConfig, LogConfig, UpstreamConfig};
use super::options::{self, Number};
use super::section::Section;
use super::source::ConfigSource;
use super::values::collide;
use super::{admin, listen, shapes, suggest, traces, upstream};

/// Resolves the whole file. `None` only if a mistake was recorded, but not for every mistake.
pub(super) fn config<'a>(source: &'a ConfigSource<'a>, table: DeTable<'a>) -> Option<Config> {
    let mut root = Section::root(source, table);
    let mut listen_section = root.table(&options::listen::TABLE);
    let mut upstream_section = root.table(&options::upstream::TABLE);
    let mut admin_section = root.table(&options::admin::TABLE);
    let log = log(root.table(&options::log::TABLE));
    let traces = traces::resolve(root.table(&options::traces::TABLE));
    let shapes = shapes::resolve(&mut root);
    root.finish();
    let listen = listen::resolve(&mut listen_section);
    let upstream = upstream::resolve(&mut upstream_section);
    let admin = admin::resolve(&mut admin_section);
    let own = listen.iter().flat_map(ListenConfig::addresses).collect::<Vec<_>>();
    if let Some(upstream) = &upstream {
        check_no_loop(&mut upstream_section, upstream, &own);
    }
    if let Some(admin) = &admin {
        check_own_address(&mut admin_section, admin.address, &own);
    }
    for section in [listen_section, upstream_section, admin_section] {
        section.finish();
    }
    Some(Config {
        listen: listen?,
        upstream: upstream?,
        admin: admin?,
        log,
        traces,
        shapes,
    })
}

fn log(mut section: Section<'_>) -> LogConfig {
    let filter = section.text(&options::log::FILTER);
    if let Some(problem) = filter_problem(&filter) {
        let remedy = "write a level (error, warn, info, debug, trace, off) or module=level, separated by commas";
        section.fault("filter", &problem, remedy);
    }
    let format = section.choice(&options::log::FORMAT).unwrap_or_default();
    let Number { most, default, .. } = options::log::SLOW_COMMAND_MS.value;
    let slow = section.integer(&options::log::SLOW_COMMAND_MS).unwrap_or(default);
    if slow > most {
        let remedy = format!("write milliseconds up to {most}, or 0 to log none");
        section.fault("slow_command_ms", &format!("{slow} is out of range"), &remedy);
    }
    section.finish();
    LogConfig {
        filter,
        format,
        slow_command: (slow > 0).then(|| Duration::from_millis(slow as u64)),
    }
}

/// `EnvFilter` treats a bare word that is not a level as a module. So `inof` would silently log
/// nothing.
fn filter_problem(filter: &str) -> Option<String> {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    if let Err(error) = EnvFilter::try_new(filter) {
        return Some(format!("`{filter}` is not a filter: {error}"));
    }
    filter.split(',').map(str::trim).find_map(|part| {
        let bare = !part.contains(['=', '[', ':', '_']) && !LEVELS.contains(&part.to_lowercase().as_str());
        let level = suggest::nearest(part, LEVELS).filter(|_| bare)?;
        Some(format!("`{part}` is not a level (did you mean `{level}`?)"))
    })
}

fn check_own_address(section: &mut Section<'_>, admin: SocketAddr, own: &[SocketAddr]) {
    if let Some(listen) = own.iter().find(|listen| collide(admin, **listen)) {
        let problem = format!("`listen.address` already uses {admin} ({listen})");
        section.fault("address", &problem, "choose another port");
    }
}

/// A proxy that is its own upstream would open connections to itself until none are left.
fn check_no_loop(section: &mut Section<'_>, upstream: &UpstreamConfig, own: &[SocketAddr]) {
    let is_own = |host: &String| {
        let Ok(address) = host.replace("localhost", "127.0.0.1").parse::<SocketAddr>() else {
            return false;
        };
        own.iter().any(|listen| {
            let reaches_any = listen.ip().is_unspecified() && !address.ip().is_loopback();
            collide(address, *listen) && !reaches_any
        })
    };
    if let Some(host) = upstream.hosts.iter().find(|host| is_own(host)) {
        let problem = format!("{host} is the address of the proxy itself (`listen.address`)");
        section.fault("uri", &problem, "write the address of the MongoDB server");
    }
}
