//! TLS with mongod: the proxy's certificate, and the check of mongod's.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use proto_tests::balancer::Balancer;
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::{Certificates, Identity, Level, Mongod, Proxy, ProxyOptions};

use super::{SHAPE, answers, ping, works};

const GONE: &str = "the upstream is not available";
const REFUSED: &str = "the TLS handshake failed: the upstream's certificate or the proxy's was rejected";

#[tokio::test]
async fn mongod_may_require_tls_and_a_client_certificate() -> Result<()> {
    let certificates = Certificates::new()?;
    let servers = [
        Options::default().tls(&certificates),
        Options::default().mutual_tls(&certificates),
    ];
    for server in servers {
        let mongod = server.standalone()?;
        let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(SHAPE))?;
        works(&proxy.uri()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_set_with_tls_is_shown_with_tls_as_a_mongos_and_member_by_member() -> Result<()> {
    let certificates = Certificates::new()?;
    let set = Options::default().mutual_tls(&certificates).replica_set(2)?;
    let options = ProxyOptions::new(&set.uri()).config(SHAPE);
    for options in [options.clone(), options.members(&set.addresses())] {
        // Plain in front, then TLS on both sides, then certificates on both sides.
        for options in [
            options.clone(),
            options.clone().tls(&certificates),
            options.mutual_tls(&certificates),
        ] {
            let proxy = Proxy::start(&options)?;
            works(&proxy.discovery_uri()).await?;
        }
    }
    Ok(())
}

/// A proxy that cannot use its upstream: a client is closed, and these lines say why.
fn check_closed(tls: &str, address: SocketAddr, certificates: &Certificates, expected: &[(&str, &str)]) -> Result<()> {
    let uri = format!("mongodb://{address}/?directConnection=true&tls=true&{tls}");
    let proxy = Proxy::start_unready(&ProxyOptions::new(&uri).tls(certificates))?;
    ensure!(!answers(&proxy, certificates, Identity::Nobody)?, "{tls}: an answer");
    for (part, reason) in expected {
        proxy.expect_log(Level::Warn, part);
        let line = proxy.wait_for_log(part)?;
        ensure!(line.text.contains(reason), "{tls}: {}", line.text);
    }
    let ready = proxy.admin_get("/readyz")?;
    ensure!(ready.status == 503, "{tls}: {ready:?}");
    Ok(())
}

#[test]
fn tls_trust_failure_with_mongod_is_logged() -> Result<()> {
    let certificates = Certificates::new()?;
    let mongod = Options::default().mutual_tls(&certificates).standalone()?;
    let address = mongod.address();
    let text = |path: std::path::PathBuf| path.display().to_string();
    let ca = format!("tlsCAFile={}", text(certificates.ca()));
    let with = |ca: &str, client: std::path::PathBuf| format!("{ca}&tlsCertificateKeyFile={}", text(client));

    let other = format!("tlsCAFile={}", text(certificates.other_ca()));
    let expected = [(GONE, "UnknownIssuer"), (REFUSED, "UnknownIssuer")];
    check_closed(&with(&other, certificates.client()), address, &certificates, &expected)?;
    // Under an address that its certificate does not name.
    let elsewhere = Balancer::at("127.0.0.2", vec![address])?;
    let expected = [(GONE, "not valid for name"), (REFUSED, "not valid for name")];
    check_closed(
        &with(&ca, certificates.client()),
        elsewhere.address(),
        &certificates,
        &expected,
    )?;
    // mongod closes without an error. The reason is only in its log.
    for tls in [ca.clone(), with(&ca, certificates.stranger())] {
        check_closed(&tls, address, &certificates, &[(GONE, "tlsCertificateKeyFile")])?;
    }
    Ok(())
}

#[test]
fn tls_trust_failure_with_a_replica_set_is_logged() -> Result<()> {
    let certificates = Certificates::new()?;
    let set = Options::default().tls(&certificates).replica_set(1)?;
    let other = certificates.other_ca();
    let uri = format!(
        "mongodb://{}/?replicaSet=rs0&tls=true&tlsCAFile={}",
        set.address(),
        other.display()
    );
    let proxy = Proxy::start_unready(&ProxyOptions::new(&uri).tls(&certificates))?;
    proxy.expect_log(Level::Warn, REFUSED);
    let line = proxy.wait_for_log(REFUSED)?;
    ensure!(line.text.contains("UnknownIssuer"), "{}", line.text);
    Ok(())
}

#[test]
fn mongod_with_tls_closes_a_plain_connection() -> Result<()> {
    let mongod: Mongod = Options::default().tls(&Certificates::new()?).standalone()?;
    let uri = format!("mongodb://{}/?directConnection=true", mongod.address());
    let proxy = Proxy::start_unready(&ProxyOptions::new(&uri))?;
    proxy.expect_log(Level::Warn, GONE);
    ensure!(
        Connection::open(proxy.address())?.command(&ping()).is_err(),
        "an answer"
    );
    proxy.wait_for_log(GONE)?;
    Ok(())
}
