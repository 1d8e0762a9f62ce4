//! Which clients are accepted: by certificate, and by TLS or plain.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use proto_tests::frame;
use proto_tests::raw::Connection;
use proto_tests::{Certificates, Identity, Level, Proxy, ProxyOptions, mongod};

use super::{FAILED, SHAPE, answers, lines, ping, works};

fn options() -> ProxyOptions {
    ProxyOptions::new(&mongod::shared().uri()).config(SHAPE)
}

#[tokio::test]
async fn a_certificate_and_its_key_may_be_two_files_or_one() -> Result<()> {
    let certificates = Certificates::new()?;
    let one = format!("tls = {{ cert = \"{}\" }}", certificates.server_and_key().display());
    for options in [options().tls(&certificates), options().listen(&one)] {
        let proxy = Proxy::start(&options)?;
        let authority = certificates.ca();
        let tls = format!("tls=true&tlsCAFile={}", authority.display());
        works(&format!("mongodb://{}/?{tls}", proxy.address())).await?;
        // The proxy requests no certificate, so a client may have any.
        for identity in [Identity::Nobody, Identity::Client, Identity::Stranger] {
            ensure!(answers(&proxy, &certificates, identity)?, "{identity:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn configured_client_ca_accepts_only_its_clients() -> Result<()> {
    let certificates = Certificates::new()?;
    let proxy = Proxy::start(&options().mutual_tls(&certificates))?;
    proxy.expect_log(Level::Warn, FAILED);
    works(&proxy.uri()).await?;
    let refused = [
        (Identity::Nobody, "peer sent no certificates"),
        (Identity::Stranger, "UnknownIssuer"),
    ];
    for (number, (identity, reason)) in (1..).zip(refused) {
        ensure!(!answers(&proxy, &certificates, identity)?, "{identity:?}");
        proxy.wait_for_log(reason)?;
        ensure!(lines(&proxy, FAILED) == number, "{identity:?}: {:?}", proxy.log());
    }
    ensure!(answers(&proxy, &certificates, Identity::Client)?, "its own client");
    Ok(())
}

#[test]
fn client_that_rejects_the_proxy_certificate_is_logged_in_one_line() -> Result<()> {
    let proxy = Proxy::start(&options().tls(&Certificates::new()?))?;
    proxy.expect_log(Level::Warn, FAILED);
    ensure!(
        !answers(&proxy, &Certificates::new()?, Identity::Nobody)?,
        "another authority's client"
    );
    proxy.wait_for_log(FAILED)?;
    nothing_else(&proxy, FAILED)
}

/// One line about `part`, and no command or limit counted.
fn nothing_else(proxy: &Proxy, part: &str) -> Result<()> {
    ensure!(lines(proxy, part) == 1, "{:?}", proxy.log());
    let warnings = proxy.log().iter().filter(|line| line.level != Level::Info).count();
    ensure!(warnings == 1, "{:?}", proxy.log());
    let metrics = proxy.admin_get("/metrics")?.body;
    let counted: Vec<_> = metrics
        .lines()
        .filter(|line| {
            ["mongoshape_limits_hit_total", "mongoshape_commands_total"]
                .iter()
                .any(|name| line.starts_with(name))
        })
        .filter(|line| !line.ends_with(" 0"))
        .collect();
    ensure!(counted.is_empty(), "{counted:?}");
    Ok(())
}

#[test]
fn tls_and_plain_mismatch_is_logged_in_one_line() -> Result<()> {
    let certificates = Certificates::new()?;
    let proxy = Proxy::start(&options().tls(&certificates))?;
    proxy.expect_log(Level::Warn, "listen.tls");
    let mut plain = Connection::open(proxy.address())?;
    plain.send(&frame::command(1, 0, &ping())?)?;
    ensure!(plain.is_closed()?, "a plain client is in");
    proxy.wait_for_log("connect with tls=true")?;
    nothing_else(&proxy, "listen.tls")?;
    ensure!(answers(&proxy, &certificates, Identity::Nobody)?, "a client with TLS");

    let proxy = Proxy::start(&options())?;
    proxy.expect_log(Level::Warn, "listen.tls");
    ensure!(
        !answers(&proxy, &certificates, Identity::Nobody)?,
        "TLS where there is none"
    );
    proxy.wait_for_log("the client uses TLS")?;
    nothing_else(&proxy, "listen.tls")
}

#[test]
fn client_that_stalls_in_the_tls_handshake_is_disconnected() -> Result<()> {
    let certificates = Certificates::new()?;
    let options = options().tls(&certificates).listen("handshake_timeout_ms = 400");
    let proxy = Proxy::start(&options)?;
    let message = "the client sent nothing in time";
    proxy.expect_log(Level::Warn, message);
    let series = "mongoshape_limits_hit_total{limit=\"handshake_timeout\"}";
    // The beginning of a TLS record that announces 512 bytes: nothing of it, a byte, and a part.
    let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    for (stalled, bytes) in (1_u32..).zip([&hello[..0], &hello[..1], &hello[..]]) {
        let begun = Instant::now();
        let mut socket = TcpStream::connect(proxy.address())?;
        socket.write_all(bytes)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let read = std::io::Read::read(&mut socket, &mut [0; 64]);
        ensure!(
            matches!(read, Ok(0)) || read.is_err(),
            "{} bytes: {read:?}",
            bytes.len()
        );
        let waited = begun.elapsed();
        ensure!(
            (Duration::from_millis(400)..Duration::from_secs(8)).contains(&waited),
            "{waited:?}"
        );
        proxy.wait_for_log(&format!("\"peer\":\"{}\"", socket.local_addr().context("gone")?))?;
        ensure!(
            (proxy.metric(series) - f64::from(stalled)).abs() < 0.5,
            "{}",
            proxy.metric(series)
        );
        ensure!(lines(&proxy, message) == stalled as usize, "{:?}", proxy.log());
    }
    ensure!(
        answers(&proxy, &certificates, Identity::Nobody)?,
        "a client that goes on"
    );
    Ok(())
}
