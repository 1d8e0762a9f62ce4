use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::*;
use crate::telemetry::recent_warnings::RecentWarnings;

struct Answer(Result<(), &'static str>);

impl ReadinessProbe for Answer {
    async fn check(&self) -> Result<(), String> {
        self.0.map_err(str::to_owned)
    }
}

async fn start(readiness: impl ReadinessProbe) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
    start_with(Arc::default(), readiness).await
}

async fn start_with(
    access: Arc<ArcSwap<Access>>,
    readiness: impl ReadinessProbe,
) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let admin = Admin::new(
        Telemetry::new().unwrap(),
        access,
        readiness,
        OperatorPage::new(PageRows::default, RecentWarnings::default()),
    );
    let served = tokio::spawn(admin.serve(listener, stop.clone()));
    (address, stop, served)
}

/// The complete response to one request.
async fn ask(address: SocketAddr, head: &str) -> String {
    ask_raw(address, &format!("{head} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await
}

async fn ask_raw(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn check(address: SocketAddr, head: &str, (status, body): (&str, &str)) {
    let answer = ask(address, head).await;
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head}: {answer}");
    assert!(answer.ends_with(&format!("\r\n\r\n{body}")), "{head}: {answer}");
}

#[tokio::test]
async fn each_path_answers() {
    let (address, stop, served) = start(Answer(Ok(()))).await;
    check(address, "GET /livez", ("200", "alive\n")).await;
    check(address, "GET /readyz?verbose", ("200", "ready\n")).await;
    check(address, "POST /metrics", ("405", "only GET and HEAD are supported\n")).await;
    let head = ask(address, "HEAD /livez").await;
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    let missing = "not found: the paths are /, /metrics, /livez and /readyz\n";
    check(address, "GET /none", ("404", missing)).await;
    let metrics = ask(address, "GET /metrics").await;
    assert!(metrics.contains("content-type: text/plain; version=0.0.4"), "{metrics}");
    assert!(metrics.contains("mongoshape_build_info{version="), "{metrics}");
    let page = ask(address, "GET /").await;
    assert!(page.contains("content-type: text/html; charset=utf-8"), "{page}");
    assert!(page.contains("content-security-policy: default-src 'none';"), "{page}");
    assert!(page.ends_with("</html>\n"), "{page}");
    stop.cancel();
    served.await.unwrap();
}

#[tokio::test]
async fn the_reason_for_not_being_ready_is_one_line() {
    let (address, _stop, _served) = start(Answer(Err("upstream:\nrefused"))).await;
    check(address, "GET /readyz", ("503", "upstream: refused\n")).await;
    check(address, "GET /livez", ("200", "alive\n")).await;
}

#[tokio::test]
async fn non_http_request_is_refused_and_the_next_client_served() {
    let (address, _stop, _served) = start(Answer(Ok(()))).await;
    assert!(ask(address, "\x01\x02\x03").await.starts_with("HTTP/1.1 400 "));
    check(address, "GET /livez", ("200", "alive\n")).await;
}

#[tokio::test]
async fn partial_requests_block_neither_other_requests_nor_shutdown() {
    let (address, stop, served) = start(Answer(Ok(()))).await;
    let mut half = Vec::new();
    for _ in 0..600 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nHos").await.unwrap();
        half.push(stream);
    }
    let begun = std::time::Instant::now();
    check(address, "GET /livez", ("200", "alive\n")).await;
    assert!(begun.elapsed() < HEAD_TIMEOUT / 2, "{:?}", begun.elapsed());
    stop.cancel();
    timeout(HEAD_TIMEOUT / 2, served).await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

const TOKEN: &str = "0123456789abcdef";
const REFUSAL: &str =
    "the token is missing or wrong: send it as Authorization: Bearer, or as the password of Basic authentication\n";

fn with_token(token: &str) -> Access {
    Access {
        token: Some(Token::new(token).unwrap()),
        ..Access::default()
    }
}

#[tokio::test]
async fn pages_with_details_require_the_token() {
    let access = Arc::new(ArcSwap::from_pointee(with_token(TOKEN)));
    let (address, _stop, _served) = start_with(Arc::clone(&access), Answer(Ok(()))).await;
    check(address, "GET /livez", ("200", "alive\n")).await;
    check(address, "GET /readyz", ("200", "ready\n")).await;
    check(address, "GET /metrics", ("401", REFUSAL)).await;
    check(address, "GET /", ("401", REFUSAL)).await;
    let refused = ask(address, "GET /metrics").await;
    assert!(refused.contains("www-authenticate: Bearer realm="), "{refused}");
    assert!(refused.contains("www-authenticate: Basic realm="), "{refused}");
    let with = |token: &str| format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {token}\r\nX:");
    assert!(ask(address, &with(TOKEN)).await.contains("mongoshape_build_info"));
    check(address, &with("0123456789abcdeX"), ("401", REFUSAL)).await;
    // A new token applies to the next connection.
    access.store(Arc::new(with_token("another token456".replace(' ', "-").as_str())));
    check(address, &with(TOKEN), ("401", REFUSAL)).await;
    assert!(ask(address, &with("another-token456")).await.contains("build_info"));
}

#[tokio::test]
async fn on_loopback_a_name_from_elsewhere_is_refused_unless_there_is_a_token() {
    let access = Arc::new(ArcSwap::default());
    let (address, _stop, _served) = start_with(Arc::clone(&access), Answer(Ok(()))).await;
    let by_name = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: rebound.example.com\r\n\r\n");
    for path in ["/", "/metrics"] {
        let answer = ask_raw(address, &by_name(path)).await;
        assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
        assert!(answer.contains("use this machine's IP address"), "{answer}");
    }
    assert!(ask_raw(address, &by_name("/livez")).await.ends_with("alive\n"));
    access.store(Arc::new(with_token(TOKEN)));
    let with = format!("GET /metrics HTTP/1.1\r\nHost: a.name\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    assert!(ask_raw(address, &with).await.contains("mongoshape_build_info"));
}

/// A listener's configuration with a new certificate, and a client's that trusts it.
fn tls() -> (Arc<rustls::ServerConfig>, Arc<rustls::ClientConfig>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let made = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = made.self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let private = rustls::pki_types::PrivateKeyDer::try_from(key.serialized_der().to_vec()).unwrap();
    let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

async fn ask_encrypted(address: SocketAddr, client: &Arc<rustls::ClientConfig>) -> std::io::Result<String> {
    let stream = TcpStream::connect(address).await?;
    let name = rustls::pki_types::ServerName::from(address.ip());
    let mut stream = tokio_rustls::TlsConnector::from(Arc::clone(client))
        .connect(name, stream)
        .await?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: admin\r\n\r\n").await?;
    let mut answer = String::new();
    // Some connections end without `close_notify`.
    let _ = stream.read_to_string(&mut answer).await;
    Ok(answer)
}

#[tokio::test]
async fn admin_tls_covers_every_path_and_can_be_reloaded() {
    let (certified, client) = tls();
    let encrypted = |server| Access {
        tls: Some(server),
        token: None,
    };
    let access = Arc::new(ArcSwap::from_pointee(encrypted(certified)));
    let (address, stop, served) = start_with(Arc::clone(&access), Answer(Ok(()))).await;
    let answer = ask_encrypted(address, &client).await.unwrap();
    assert!(answer.ends_with("\r\n\r\nalive\n"), "{answer}");
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET /livez HTTP/1.1\r\n\r\n").await.unwrap();
    let mut received = Vec::new();
    let _ = plain.read_to_end(&mut received).await;
    assert!(!received.windows(5).any(|part| part == b"alive"), "{received:?}");
    let (renewed, its_client) = tls();
    access.store(Arc::new(encrypted(renewed)));
    assert!(
        ask_encrypted(address, &client).await.is_err(),
        "the old certificate is gone"
    );
    assert!(ask_encrypted(address, &its_client).await.unwrap().ends_with("alive\n"));
    stop.cancel();
    served.await.unwrap();
}
