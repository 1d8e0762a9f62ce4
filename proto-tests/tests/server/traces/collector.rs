//! Receives spans by OTLP over HTTP. With `MONGOSHAPE_COLLECTOR`, the path of an `OpenTelemetry` collector
//! (`proto-tests/collector/builder.yaml`), the proxy sends them to that one, which sends them on.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use proto_tests::guarded::Guarded;
use proto_tests::ports;
use tempfile::TempDir;

const LOG: &str = "collector.log";
/// The time in which a collector starts.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Receives spans until the test ends.
pub(super) struct Collector {
    /// The address to which the proxy sends spans.
    address: SocketAddr,
    /// The bodies of the requests.
    requests: Receiver<Vec<u8>>,
    _between: Option<Between>,
}

impl Collector {
    pub(super) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let receiver = listener.local_addr()?;
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let sender = sender.clone();
                std::thread::spawn(move || receive(&client, &sender));
            }
        });
        let between =
            std::env::var_os("MONGOSHAPE_COLLECTOR").map(|program| Between::start(Command::new(program), receiver));
        let between = between.transpose()?;
        Ok(Self {
            address: between.as_ref().map_or(receiver, |between| between.address),
            requests,
            _between: between,
        })
    }

    /// The section of a configuration that exports all commands to it.
    pub(super) fn section(&self) -> String {
        let address = self.address;
        format!("[traces]\nendpoint = \"http://{address}\"\nsampled_percent = 100")
    }

    /// The spans of the requests so far.
    pub(super) fn spans(&self) -> Result<Vec<Span>> {
        let mut spans = Vec::new();
        while let Ok(body) = self.requests.recv_timeout(Duration::from_millis(100)) {
            let request = ExportTraceServiceRequest::decode(&body[..])?;
            let scopes = request
                .resource_spans
                .into_iter()
                .flat_map(|resource| resource.scope_spans);
            spans.extend(scopes.flat_map(|scope| scope.spans));
        }
        Ok(spans)
    }
}

/// Sends the bodies of a connection's requests to the test.
fn receive(mut client: &TcpStream, bodies: &Sender<Vec<u8>>) -> Option<()> {
    let mut reader = BufReader::new(client);
    loop {
        let mut length = 0;
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let is_for_traces = line.starts_with("POST /v1/traces ");
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let header = line.to_ascii_lowercase();
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        if is_for_traces {
            bodies.send(body).ok()?;
        }
        client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

/// A collector between the proxy and the receiver.
struct Between {
    address: SocketAddr,
    _process: Guarded,
}

impl Between {
    fn start(mut collector: Command, receiver: SocketAddr) -> Result<Self> {
        let folder = TempDir::with_prefix("mongoshape-collector-")?;
        let address = ports::free_address()?;
        let file = folder.path().join("collector.yaml");
        // Without a queue, a request of the proxy ends after the receiver has the spans.
        let config = format!(
            "receivers: {{ otlp: {{ protocols: {{ http: {{ endpoint: \"{address}\" }} }} }} }}\n\
             exporters: {{ otlp_http: {{ endpoint: \"http://{receiver}\", compression: none, sending_queue: {{ enabled: false }} }} }}\n\
             service:\n  telemetry: {{ metrics: {{ level: none }} }}\n  \
             pipelines: {{ traces: {{ receivers: [otlp], exporters: [otlp_http] }} }}\n"
        );
        fs::write(&file, config)?;
        collector.arg("--config").arg(file);
        let log = File::create(folder.path().join(LOG))?;
        let mut process = Guarded::start(&collector, folder, Stdio::from(log))?;
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(address).is_err() {
            if process.exited()?.is_some() || Instant::now() > deadline {
                bail!("the collector does not run:\n{}", process.read(LOG));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self {
            address,
            _process: process,
        })
    }
}
