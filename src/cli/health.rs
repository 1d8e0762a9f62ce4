//! `health`: requests `/readyz` of a running proxy, for container images without another HTTP
//! client.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::maintenance::finding::{Finding, Findings};
use crate::server::tls::{self, TlsFiles};

/// Must exceed the maximum duration of `/readyz`, which is 2 s.
const DEADLINE: Duration = Duration::from_secs(4);
/// Maximum bytes of a response. The proxy's have a few hundred bytes.
const MAX_ANSWER: u64 = 4096;

/// The body of the response if the proxy is ready.
const READY: &str = "ready";

/// Prints the proxy's response. The exit code is 1 unless the proxy is ready. `tls`: the files of
/// the address if it has TLS.
pub(super) async fn run(address: SocketAddr, tls: Option<&TlsFiles>) -> ExitCode {
    let address = reachable(address);
    let answered = timeout(DEADLINE, ask(address, tls)).await;
    let finding = match answered {
        Ok(Ok((true, words))) => Finding::fine(address.to_string(), words),
        Ok(Ok((false, words))) => Finding::error(address.to_string(), words),
        Ok(Err(error)) => Finding::error(address.to_string(), format!("{error:#}")),
        Err(_) => Finding::error(
            address.to_string(),
            format!("no answer within {} s", DEADLINE.as_secs()),
        ),
    };
    let mut findings = Findings::default();
    findings.add(&finding);
    findings.exit_code()
}

/// The address by which a listener is reached on its own machine: for all addresses, the loopback
/// address.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// Whether the response's status is 200, and its first line.
async fn ask(address: SocketAddr, tls: Option<&TlsFiles>) -> anyhow::Result<(bool, String)> {
    let connector = tls.map(tls::own_connector).transpose()?;
    let stream = TcpStream::connect(address).await.context("cannot be reached")?;
    let Some(connector) = connector else {
        return exchange(stream, address).await;
    };
    let name = ServerName::IpAddress(address.ip().into());
    let connected = TlsConnector::from(connector).connect(name, stream).await;
    exchange(connected.context("does not speak TLS")?, address).await
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    address: SocketAddr,
) -> anyhow::Result<(bool, String)> {
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    match stream.take(MAX_ANSWER).read_to_end(&mut answer).await {
        // If the connection ends without `close_notify`, the response may still be complete.
        Err(error) if ![io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof].contains(&error.kind()) => {
            return Err(error.into());
        }
        _ => {}
    }
    verdict(&String::from_utf8_lossy(&answer))
}

fn verdict(answer: &str) -> anyhow::Result<(bool, String)> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let mut words = head.split_whitespace();
    let protocol = words.next().unwrap_or_default();
    ensure!(
        protocol.starts_with("HTTP/1."),
        "the server at this address is not a mongoshape admin address"
    );
    let status = words.next().unwrap_or_default();
    let said = body.lines().next().unwrap_or_default().trim();
    let text = if said.is_empty() {
        format!("HTTP {status}")
    } else {
        said.to_owned()
    };
    // Another HTTP server would have another text, also the port for clients.
    Ok((status == "200" && said == READY, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_address_is_probed_on_loopback() {
        let check = |address: &str, expected: &str| {
            assert_eq!(
                reachable(address.parse().unwrap()),
                expected.parse::<SocketAddr>().unwrap()
            );
        };
        check("0.0.0.0:9216", "127.0.0.1:9216");
        check("[::]:9216", "[::1]:9216");
        check("10.1.2.3:9216", "10.1.2.3:9216");
    }

    /// The files of a listener that requires client certificates.
    fn tls_files(folder: &std::path::Path) -> TlsFiles {
        let mut parameters = rcgen::CertificateParams::new(["proxy.example.com".to_owned()]).unwrap();
        parameters.is_ca = rcgen::IsCa::NoCa;
        let authority_key = rcgen::KeyPair::generate().unwrap();
        let mut of_authority = rcgen::CertificateParams::default();
        of_authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = of_authority.self_signed(&authority_key).unwrap();
        let issuer = rcgen::Issuer::new(of_authority, authority_key);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &issuer).unwrap();
        let write = |name: &str, tag: &str, der: &[u8]| {
            let path = folder.join(name);
            std::fs::write(&path, pem::encode(&pem::Pem::new(tag, der))).unwrap();
            path
        };
        TlsFiles {
            table: tls::TlsTable::Admin,
            cert: write("cert.pem", "CERTIFICATE", certificate.der()),
            key: write("key.pem", "PRIVATE KEY", &key.serialize_der()),
            client_ca: Some(write("ca.pem", "CERTIFICATE", authority.der())),
        }
    }

    #[tokio::test]
    async fn probe_uses_tls_if_the_listener_does() {
        let folder = tempfile::tempdir().unwrap();
        let files = tls_files(folder.path());
        let acceptor = tokio_rustls::TlsAcceptor::from(tls::acceptor(&files).unwrap());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = tokio::spawn(async move {
            let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
            let mut request = [0; 12];
            stream.read_exact(&mut request).await.unwrap();
            assert_eq!(&request, b"GET /readyz ");
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nready\n").await.unwrap();
            stream.flush().await.unwrap();
        });
        assert_eq!(ask(address, Some(&files)).await.unwrap(), (true, "ready".to_owned()));
        served.await.unwrap();
    }

    #[test]
    fn only_200_is_ready() {
        let check = |answer: &str, expected: (bool, &str)| {
            let (is_ready, text) = verdict(answer).unwrap();
            assert_eq!((is_ready, text.as_str()), expected, "{answer}");
        };
        check("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nready\n", (true, "ready"));
        check(
            "HTTP/1.1 503 Service Unavailable\r\n\r\nstopping\n",
            (false, "stopping"),
        );
        check("HTTP/1.1 404 Not Found\r\n\r\n", (false, "HTTP 404"));
        check("HTTP/1.0 200 OK\r\n\r\nanother server\n", (false, "another server"));
        assert!(verdict("220 mail.example.com ESMTP\r\n").is_err());
        assert!(verdict("").is_err());
    }
}
