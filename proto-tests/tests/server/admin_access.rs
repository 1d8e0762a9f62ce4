//! Access to the admin address: by the configuration, the environment, and after SIGHUP.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Result, ensure};
use proto_tests::{Level, Proxy, ProxyOptions, mongod};
use rustix::process::Signal;

const TOKEN: &str = "the-first-token-of-all";
const NEXT: &str = "the-second-token-of-all";

fn status(proxy: &Proxy, token: Option<&str>, path: &str) -> Result<u16> {
    Ok(proxy.admin_get_as(token, path)?.status)
}

#[test]
fn a_renewed_token_file_holds_from_sighup_on_and_a_broken_one_changes_nothing() -> Result<()> {
    let mut proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).token(TOKEN))?;
    for path in ["/", "/metrics"] {
        ensure!(status(&proxy, None, path)? == 401 && status(&proxy, Some(NEXT), path)? == 401);
        ensure!(status(&proxy, Some(TOKEN), path)? == 200);
    }
    for path in ["/livez", "/readyz"] {
        ensure!(status(&proxy, None, path)? == 200);
    }
    let config = proxy.config_file();
    let file = config.with_file_name("token");
    fs::write(&file, "short\n")?;
    let line = format!("token = \"{TOKEN}\"");
    fs::write(
        &config,
        fs::read_to_string(&config)?.replace(&line, "token_file = \"token\""),
    )?;
    proxy.expect_log(
        Level::Error,
        "not reloaded, the configuration is unchanged: `admin.token_file`",
    );
    proxy.signal(Signal::HUP)?;
    proxy.wait_for_log("not reloaded")?;
    ensure!(status(&proxy, Some(TOKEN), "/metrics")? == 200);
    fs::write(&file, format!("{NEXT}\n"))?;
    proxy.signal(Signal::HUP)?;
    proxy.wait_for_log("\"reloaded\"")?;
    ensure!(status(&proxy, Some(TOKEN), "/metrics")? == 401);
    ensure!(status(&proxy, Some(NEXT), "/metrics")? == 200);
    Ok(())
}

#[test]
fn check_reports_unprotected_admin_endpoints() -> Result<()> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()))?;
    let config = proxy.config_file();
    let admin = proxy.admin_address();
    let open = fs::read_to_string(&config)?.replace(&admin.to_string(), &format!("0.0.0.0:{}", admin.port()));
    let check = |text: &str| -> Result<String> {
        fs::write(&config, text)?;
        Ok(String::from_utf8(proxy.run("check")?.stdout)?)
    };
    let printed = check(&open)?;
    ensure!(
        printed.contains("note: admin: 0.0.0.0:") && printed.contains("every client that reaches this address"),
        "{printed}"
    );
    let printed = check(&open.replace("[admin]", &format!("[admin]\ntoken = \"{TOKEN}\"")))?;
    ensure!(
        printed.contains("the token is sent unencrypted") && !printed.contains(TOKEN),
        "{printed}"
    );
    let missing = "[admin]\ntls = { cert = \"none.pem\" }";
    let printed = check(&open.replace("[admin]", missing))?;
    ensure!(printed.contains("error: admin: `admin.tls.cert`: "), "{printed}");
    Ok(())
}

#[test]
fn head_has_the_headers_of_get_and_no_body() -> Result<()> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()))?;
    for path in ["/", "/metrics", "/livez", "/readyz"] {
        let address = proxy.admin_address();
        let mut connection = TcpStream::connect(address)?;
        write!(
            connection,
            "HEAD {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        )?;
        let mut reply = String::new();
        connection.read_to_string(&mut reply)?;
        ensure!(
            reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("\r\n\r\n"),
            "{path}: {reply}"
        );
    }
    Ok(())
}
