//! The harness's checks of a proxy, on a stand-in that misbehaves on request.

use std::panic::catch_unwind;
use std::path::Path;

use anyhow::Result;
use proto_tests::{Level, Proxy, ProxyOptions};

fn stand_in(behaviour: &str) -> Result<Proxy> {
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/fake_proxy.py");
    Proxy::start(
        &ProxyOptions::new("mongodb://unused")
            .config(&format!("# behaviour: {behaviour}"))
            .binary(&binary),
    )
}

/// The panic message of a drop, or `None`.
fn complaint(proxy: Proxy) -> Option<String> {
    catch_unwind(std::panic::AssertUnwindSafe(|| drop(proxy)))
        .err()
        .map(|panic| *panic.downcast().unwrap())
}

#[test]
fn a_quiet_proxy_passes_and_its_admin_address_is_read() -> Result<()> {
    let proxy = stand_in("quiet")?;
    assert!((proxy.metric("fake_total{a=\"b\"}") - 7.0).abs() < f64::EPSILON);
    proxy.wait_for_log("listening")?;
    assert_eq!(complaint(proxy), None);
    Ok(())
}

#[test]
fn unlisted_warnings_and_errors_fail_the_test() -> Result<()> {
    for level in ["WARN", "ERROR"] {
        let complained = complaint(stand_in(level)?).unwrap();
        assert!(
            complained.contains("did not list") && complained.contains("something odd"),
            "{complained}"
        );
    }
    Ok(())
}

#[test]
fn a_listed_warning_passes_at_its_level_only() -> Result<()> {
    let listed = stand_in("WARN")?;
    listed.expect_log(Level::Warn, "something odd");
    assert_eq!(complaint(listed), None);
    let at_another_level = stand_in("WARN")?;
    at_another_level.expect_log(Level::Error, "something odd");
    assert!(complaint(at_another_level).is_some());
    Ok(())
}

#[test]
fn an_exit_other_than_0_fails_the_test() -> Result<()> {
    let complained = complaint(stand_in("exits with 3")?).unwrap();
    assert!(complained.contains("exit status: 3"), "{complained}");
    Ok(())
}

#[test]
fn a_kill_is_no_failure() -> Result<()> {
    let mut proxy = stand_in("quiet")?;
    proxy.kill()?;
    assert_eq!(complaint(proxy), None);
    Ok(())
}

#[test]
fn a_restarted_proxy_has_its_ports_and_both_lives_are_judged() -> Result<()> {
    let mut proxy = stand_in("WARN")?;
    let addresses = (proxy.address(), proxy.admin_address(), proxy.config_file());
    assert!(proxy.restart().is_err(), "it still runs");
    proxy.kill()?;
    proxy.restart()?;
    proxy.stop()?;
    proxy.restart()?;
    assert_eq!(addresses, (proxy.address(), proxy.admin_address(), proxy.config_file()));
    let odd = proxy.log().into_iter().filter(|line| line.level == Level::Warn);
    assert_eq!(odd.count(), 3);
    let complained = complaint(proxy).unwrap();
    assert_eq!(complained.matches("something odd").count(), 3, "{complained}");
    Ok(())
}

#[test]
fn proxy_that_does_not_start_reports_the_reason() {
    let error = stand_in("refuses to start").unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("exit status: 1") && error.contains("bad configuration"),
        "{error}"
    );
}
