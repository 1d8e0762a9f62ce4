//! An application that writes while primaries step down and are killed, and while the proxy itself is killed.
//!
//! What was acknowledged must be stored, nothing may be applied twice, and the application may see no error
//! that it would not have seen without the proxy: therefore the same runs on the set itself.
//!
//! A run of the ordinary tests is short: a stepdown and a kill, or a kill of the proxy.
//! `MONGOSHAPE_CRASHES=full` doubles the stepdowns and the kills of the proxy. The whole measure, ten
//! stepdowns and three kills, or ten kills of the proxy, takes some minutes and shows what each run saw:
//!
//! ```sh
//! MONGOSHAPE_FAILOVER=full cargo test -p proto-tests --test server failover -- --nocapture --test-threads=1
//! ```

mod attempts;
mod disturbances;
mod ledger;
mod workload;
mod writers;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::{Result, ensure};
use proto_tests::{Level, Mongod, Proxy, ProxyOptions};

use attempts::Attempts;
use disturbances::Measure;
use ledger::Ledger;
use workload::Workload;
use writers::Writers;

/// What the proxy is shown as, and how the application names it.
#[derive(Debug, Clone, Copy)]
enum Shown {
    Mongos,
    SetOfOne,
    Members,
}

impl Shown {
    fn options(self, set: &Mongod, workload: Workload) -> ProxyOptions {
        let options = ProxyOptions::new(&set.uri()).config(&workload.config());
        match self {
            Self::Mongos => options.listen("present_as = \"mongos\""),
            Self::SetOfOne => options.listen("present_as = \"replica-set\""),
            Self::Members => options.members(&set.addresses()),
        }
    }

    fn uri(self, proxy: &Proxy) -> String {
        match self {
            Self::Mongos | Self::Members => proxy.discovery_uri(),
            Self::SetOfOne => format!("{}?replicaSet=rs0", proxy.discovery_uri()),
        }
    }

    /// A proxy before the set, which may say that it lost its upstream.
    fn start(self, set: &Mongod, workload: Workload) -> Result<Proxy> {
        let proxy = Proxy::start(&self.options(set, workload))?;
        for expected in [
            "the upstream's primary has stepped down",
            "the upstream is not available",
            "the upstream has no primary",
        ] {
            proxy.expect_log(Level::Warn, expected);
        }
        Ok(proxy)
    }
}

/// What a run is called, how it connects, and the servers that it may find there.
struct Application {
    name: String,
    workload: Workload,
    uri: String,
    servers: Vec<SocketAddr>,
}

impl Application {
    fn behind(proxy: &Proxy, shown: Shown, workload: Workload) -> Self {
        let members = proxy.member_addresses();
        let servers = if members.is_empty() {
            vec![proxy.address()]
        } else {
            members.to_vec()
        };
        Self {
            name: format!("{workload:?}, {shown:?}"),
            workload,
            uri: shown.uri(proxy),
            servers,
        }
    }
}

/// Writes while `disturb` runs, and checks the stored documents afterwards.
fn run(
    application: &Application,
    set: &mut Mongod,
    disturb: impl FnOnce(&mut Mongod, &Writers) -> Result<()>,
) -> Result<()> {
    let name = &application.name;
    let writers = Writers::start(&application.uri, application.workload)?;
    let disturbed = writers.wait_for_progress().and_then(|()| disturb(set, &writers));
    let attempts = writers.attempts().clone();
    let ledger = writers.stop()?;
    show(name, &ledger, &attempts);
    disturbed?;
    let wrong = ledger.compare(set, application.workload)?;
    ensure!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
    let seen: Vec<_> = ledger.errors().keys().collect();
    ensure!(seen.is_empty(), "{name}: the application saw {seen:?}");
    // A driver that got the members' addresses would bypass the proxy.
    let found = attempts.servers();
    let named: BTreeSet<_> = application.servers.iter().map(ToString::to_string).collect();
    ensure!(found.is_subset(&named), "{name}: the driver connected to {found:?}");
    ensure!(attempts.failed() > 0, "{name}: no write was disturbed");
    Ok(())
}

/// Prints one line for a manual run. The test runner hides it otherwise.
#[expect(
    clippy::print_stdout,
    reason = "the test's own output, which the test runner captures"
)]
fn show(name: &str, ledger: &Ledger, attempts: &Attempts) {
    let (documents, increments) = ledger.acknowledged();
    println!(
        "{name}: {documents} documents and {increments} increments acknowledged; {} commands failed below the driver, {} \
         were answered again; errors: {:?}",
        attempts.failed(),
        attempts.answered_again(),
        ledger.errors()
    );
}

fn primaries_change_behind_the_proxy(shown: Shown, workload: Workload) -> Result<()> {
    let mut set = Mongod::replica_set(3)?;
    let proxy = shown.start(&set, workload)?;
    run(
        &Application::behind(&proxy, shown, workload),
        &mut set,
        |set, writers| disturbances::primaries(set, writers, Measure::chosen()),
    )
}

fn the_proxy_is_killed(shown: Shown, workload: Workload) -> Result<()> {
    let mut set = Mongod::replica_set(3)?;
    let mut proxy = shown.start(&set, workload)?;
    let application = Application::behind(&proxy, shown, workload);
    run(&application, &mut set, |_, writers| {
        disturbances::proxy(&mut proxy, writers, Measure::chosen())
    })
}

/// What an application sees without a proxy: nothing.
#[test]
fn primaries_change_under_a_direct_application() -> Result<()> {
    let mut set = Mongod::replica_set(3)?;
    let application = Application {
        name: "Plain, direct".to_owned(),
        workload: Workload::Plain,
        uri: set.uri(),
        servers: set.addresses(),
    };
    run(&application, &mut set, |set, writers| {
        disturbances::primaries(set, writers, Measure::chosen())
    })
}

#[test]
fn primaries_change_behind_a_mongos() -> Result<()> {
    primaries_change_behind_the_proxy(Shown::Mongos, Workload::Plain)
}

#[test]
fn primaries_change_behind_a_set_of_one() -> Result<()> {
    primaries_change_behind_the_proxy(Shown::SetOfOne, Workload::Plain)
}

#[test]
fn primaries_change_behind_a_listener_for_each_member() -> Result<()> {
    primaries_change_behind_the_proxy(Shown::Members, Workload::Plain)
}

#[test]
fn primaries_change_under_a_shaped_collection() -> Result<()> {
    primaries_change_behind_the_proxy(Shown::Mongos, Workload::Shaped)
}

#[test]
fn the_proxy_shown_as_a_mongos_is_killed() -> Result<()> {
    the_proxy_is_killed(Shown::Mongos, Workload::Plain)
}

#[test]
fn the_proxy_shown_as_a_set_of_one_is_killed() -> Result<()> {
    the_proxy_is_killed(Shown::SetOfOne, Workload::Plain)
}

#[test]
fn the_proxy_with_a_listener_for_each_member_is_killed() -> Result<()> {
    the_proxy_is_killed(Shown::Members, Workload::Plain)
}

#[test]
fn the_proxy_before_a_shaped_collection_is_killed() -> Result<()> {
    the_proxy_is_killed(Shown::Mongos, Workload::Shaped)
}
