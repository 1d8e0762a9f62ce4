//! Exports traces to an OpenTelemetry collector, by OTLP over HTTP.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry::global::BoxedTracer;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response, ResponseExt};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tokio::runtime::Handle;
use tracing::{info, warn};

/// The time that the collector may take to receive a batch of spans.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// The path of the collector that receives spans.
const PATH: &str = "/v1/traces";

/// Where traces are exported to.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceExport {
    /// The address of the collector, without a path: `http://host:port`.
    pub endpoint: String,
    /// The share of commands that are traced, unless a command names its parent.
    pub sampled: f64,
    /// The name of the service.
    pub service_name: String,
}

/// The export of traces.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Starts a thread that exports spans in batches. Spans are dropped if its queue is full. Must be called
    /// in a runtime, which the requests use.
    ///
    /// # Errors
    /// If the endpoint is invalid.
    pub fn start(export: &TraceExport) -> Result<Self, ExporterBuildError> {
        let collector = Collector {
            client: HyperClient::with_default_connector(EXPORT_TIMEOUT, None),
            runtime: Handle::current(),
            is_failing: AtomicBool::new(false),
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .with_endpoint(format!("{}{PATH}", export.endpoint.trim_end_matches('/')))
            .with_timeout(EXPORT_TIMEOUT)
            .build()?;
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(export.sampled)));
        let resource = Resource::builder()
            .with_service_name(export.service_name.clone())
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(sampler)
            .with_resource(resource.build());
        Ok(Self(provider.build()))
    }

    /// The tracer of this program.
    #[must_use]
    pub fn tracer(&self) -> BoxedTracer {
        let scope = InstrumentationScope::builder("mongoshape").with_version(env!("CARGO_PKG_VERSION"));
        BoxedTracer::new(Box::new(self.0.tracer_with_scope(scope.build())))
    }

    /// Exports the spans that are queued. Must not be called on a thread of the runtime.
    pub fn stop(self) {
        if let Err(error) = self.0.shutdown_with_timeout(EXPORT_TIMEOUT) {
            warn!(%error, "the last spans were not exported");
        }
    }
}

/// The collector. The exporter's thread has no runtime, which hyper needs.
#[derive(Debug)]
struct Collector {
    client: HyperClient,
    runtime: Handle,
    /// Whether the last request failed. Only the first failure is logged.
    is_failing: AtomicBool,
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move { client.send_bytes(request).await });
        let response = sent.await?.and_then(ResponseExt::error_for_status);
        let was_failing = self.is_failing.swap(response.is_err(), Ordering::Relaxed);
        match &response {
            Err(error) if !was_failing => {
                warn!(%error, "traces cannot be exported: spans are dropped until the collector accepts them");
            }
            Ok(_) if was_failing => info!("traces are exported again"),
            _ => {}
        }
        response
    }
}
