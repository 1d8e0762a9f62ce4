//! An application that writes while primaries step down and are killed, and while the proxy itself is killed.
//!
//! What was acknowledged must be stored, nothing may be applied twice, and the application may see no error that it would
//! not have seen without the proxy: therefore the same runs on the set itself.
//!
//! A run of the ordinary tests is short: two stepdowns and a kill, or two kills of the proxy. The whole measure, ten
//! stepdowns and three kills, or ten kills of the proxy, takes some minutes and shows what each run saw:
//!
//! ```sh
//! MONGOSHAPE_FAILOVER=full cargo test -p proto-tests --test failover -- --nocapture --test-threads=1
//! ```

mod disturbances;
mod ledger;
mod writers;

use anyhow::{Result, ensure};
use proto_tests::{Level, Mongod, Proxy, ProxyOptions};

use disturbances::Measure;
use writers::Writers;

/// What the proxy is shown as, and how the application names it.
#[derive(Debug, Clone, Copy)]
enum Shown {
    Mongos,
    SetOfOne,
    Members,
}

impl Shown {
    fn options(self, set: &Mongod) -> ProxyOptions {
        let options = ProxyOptions::new(&set.uri());
        match self {
            Self::Mongos => options.listen("present_as = \"mongos\""),
            Self::SetOfOne => options.listen("present_as = \"replica-set\""),
            Self::Members => options.listen("present_as = \"replica-set\"").members(&set.addresses()),
        }
    }

    fn uri(self, proxy: &Proxy) -> String {
        match self {
            Self::Mongos | Self::Members => proxy.discovery_uri(),
            Self::SetOfOne => format!("{}?replicaSet=rs0", proxy.discovery_uri()),
        }
    }

    /// A proxy before the set, which may say that it lost its upstream.
    fn start(self, set: &Mongod) -> Result<Proxy> {
        let proxy = Proxy::start(&self.options(set))?;
        for expected in [
            "the upstream's primary is none any more",
            "the upstream is gone",
            "the upstream has no primary",
        ] {
            proxy.expect_log(Level::Warn, expected);
        }
        Ok(proxy)
    }
}

/// Writes through `uri` while `disturb` goes on, and judges what the set holds afterwards.
fn run(
    name: &str,
    set: &mut Mongod,
    uri: &str,
    disturb: impl FnOnce(&mut Mongod, &Writers) -> Result<()>,
) -> Result<()> {
    let writers = Writers::start(uri)?;
    let disturbed = writers.wait_for_progress().and_then(|()| disturb(set, &writers));
    let ledger = writers.stop()?;
    ledger.show(name);
    disturbed?;
    let wrong = ledger.compare(set)?;
    ensure!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
    ensure!(
        ledger.errors().is_empty(),
        "{name}: the application saw {:?}",
        ledger.errors()
    );
    Ok(())
}

fn primaries_change_behind_the_proxy(shown: Shown) -> Result<()> {
    let mut set = Mongod::replica_set(3)?;
    let proxy = shown.start(&set)?;
    let name = format!("primaries change, {shown:?}");
    run(&name, &mut set, &shown.uri(&proxy), |set, writers| {
        disturbances::primaries(set, writers, Measure::chosen())
    })
}

fn the_proxy_is_killed(shown: Shown) -> Result<()> {
    let mut set = Mongod::replica_set(3)?;
    let mut proxy = shown.start(&set)?;
    let name = format!("the proxy is killed, {shown:?}");
    let uri = shown.uri(&proxy);
    run(&name, &mut set, &uri, |_, writers| {
        disturbances::proxy(&mut proxy, writers, Measure::chosen())
    })
}

/// What an application sees without a proxy: nothing.
#[test]
fn primaries_change_under_a_direct_application() -> Result<()> {
    let mut set = Mongod::replica_set(3)?;
    let uri = set.uri();
    run("primaries change, direct", &mut set, &uri, |set, writers| {
        disturbances::primaries(set, writers, Measure::chosen())
    })
}

#[test]
fn primaries_change_behind_a_mongos() -> Result<()> {
    primaries_change_behind_the_proxy(Shown::Mongos)
}

#[test]
fn primaries_change_behind_a_set_of_one() -> Result<()> {
    primaries_change_behind_the_proxy(Shown::SetOfOne)
}

#[test]
fn primaries_change_behind_a_listener_for_each_member() -> Result<()> {
    primaries_change_behind_the_proxy(Shown::Members)
}

#[test]
fn the_proxy_shown_as_a_mongos_is_killed() -> Result<()> {
    the_proxy_is_killed(Shown::Mongos)
}

#[test]
fn the_proxy_shown_as_a_set_of_one_is_killed() -> Result<()> {
    the_proxy_is_killed(Shown::SetOfOne)
}

#[test]
fn the_proxy_with_a_listener_for_each_member_is_killed() -> Result<()> {
    the_proxy_is_killed(Shown::Members)
}
