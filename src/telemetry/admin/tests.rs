use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::*;

struct Answer(Result<(), &'static str>);

impl Readiness for Answer {
    async fn check(&self) -> Result<(), String> {
        self.0.map_err(str::to_owned)
    }
}

async fn start(readiness: impl Readiness) -> (SocketAddr, CancellationToken, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let admin = Admin::new(Telemetry::new().unwrap(), readiness);
    let served = tokio::spawn(admin.serve(listener, stop.clone()));
    (address, stop, served)
}

/// The whole answer to one raw request.
async fn ask(address: SocketAddr, head: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{head} HTTP/1.1\r\nHost: admin\r\n\r\n");
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
    check(address, "POST /metrics", ("405", "only GET\n")).await;
    let missing = "not found: /metrics, /livez and /readyz are here\n";
    check(address, "GET /", ("404", missing)).await;
    let metrics = ask(address, "GET /metrics").await;
    assert!(metrics.contains("content-type: text/plain; version=0.0.4"), "{metrics}");
    assert!(metrics.contains("mongoshape_build_info{version="), "{metrics}");
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
async fn what_is_no_http_is_refused_and_the_next_client_served() {
    let (address, _stop, _served) = start(Answer(Ok(()))).await;
    assert!(ask(address, "\x01\x02\x03").await.starts_with("HTTP/1.1 400 "));
    check(address, "GET /livez", ("200", "alive\n")).await;
}

#[tokio::test]
async fn silent_clients_wait_for_a_place_and_do_not_hold_up_the_end() {
    let (address, stop, served) = start(Answer(Ok(()))).await;
    let mut silent = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut waiting = tokio::spawn(async move { ask(address, "GET /livez").await });
    assert!(
        timeout(ACCEPT_PAUSE, &mut waiting).await.is_err(),
        "there is no place left"
    );
    drop(silent);
    assert!(waiting.await.unwrap().starts_with("HTTP/1.1 200 "));
    let _silent = TcpStream::connect(address).await.unwrap();
    check(address, "GET /livez", ("200", "alive\n")).await;
    stop.cancel();
    timeout(HEAD_TIMEOUT / 2, served).await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}
