//! The admin endpoints: `/metrics`, `/livez`, `/readyz`, and the operator's page at `/`. Readiness is
//! determined by a probe.
//!
//! If there is a token, `/livez` and `/readyz` do not require it, because probes have no secrets and
//! get only a short text. TLS applies to all endpoints.

mod access;
mod host;
mod page;
mod pending_requests;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

pub use self::access::{Access, Token, TokenError, TokenFileError};
pub use self::page::{
    ConversionFiguresRow, ConversionRow, OperatorPage, PageRows, RefusalRow, ServerRow, ShapeRow, UniqueIndexRow,
    UpstreamRow,
};
use self::pending_requests::{PendingRequest, Unasked};
use super::metrics::Telemetry;

type Body = http_body_util::Full<bytes::Bytes>;

/// Maximum number of connections. Further ones wait in the system's queue.
const MAX_CONNECTIONS: usize = 256;
/// Maximum time for the TLS handshake and the request's header.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum duration of a connection. It serves one request.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(15);
/// The pause after a failed accept, which usually means that the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Determines whether the proxy can serve clients. Called for every `/readyz`, and must return
/// within a few seconds.
pub trait ReadinessProbe: Send + Sync + 'static {
    /// `Ok` if it can, else the reason in one line, without secrets.
    fn check(&self) -> impl Future<Output = Result<(), String>> + Send;
}

/// The admin endpoints before they are served.
#[derive(Debug)]
pub struct Admin<R> {
    telemetry: Telemetry,
    access: Arc<ArcSwap<Access>>,
    readiness: R,
    page: OperatorPage,
    /// Whether they are reachable only from this machine.
    is_loopback: bool,
}

impl<R: ReadinessProbe> Admin<R> {
    /// Endpoints for these metrics and this probe. `access` can be exchanged while they are served,
    /// and applies to new connections.
    pub fn new(telemetry: Telemetry, access: Arc<ArcSwap<Access>>, readiness: R, page: OperatorPage) -> Self {
        Self {
            telemetry,
            access,
            readiness,
            page,
            is_loopback: false,
        }
    }

    /// Serves until `stop` is cancelled, then waits for open connections, at most 15 s.
    pub async fn serve(mut self, listener: TcpListener, stop: CancellationToken) {
        let address = listener.local_addr();
        self.is_loopback = address.is_ok_and(|address| address.ip().to_canonical().is_loopback());
        let admin = Arc::new(self);
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let unasked = Arc::new(Unasked::default());
        let connections = TaskTracker::new();
        connections.spawn(Arc::clone(&admin).remember(stop.clone()));
        while let Some(accepted) = stop.run_until_cancelled(accept(&listener, &places)).await {
            if let Some((stream, place)) = accepted {
                let turn = Unasked::begin(&unasked);
                let served = Arc::clone(&admin).connection(stream, stop.clone(), turn.clone());
                connections.spawn(async move {
                    let _place = place;
                    if turn.unless_displaced(served).await.is_none() {
                        debug!("admin connection closed: no request was received in time");
                    }
                });
            }
        }
        drop(listener);
        unasked.displace_all();
        connections.close();
        connections.wait().await;
    }

    async fn remember(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = interval(page::INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            self.page.remember(&self.telemetry.registry);
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, stop: CancellationToken, turn: PendingRequest) {
        let access = self.access.load_full();
        let Some(config) = &access.tls else {
            return self.exchange(stream, access, turn, stop).await;
        };
        let handshake = timeout(HEAD_TIMEOUT, TlsAcceptor::from(Arc::clone(config)).accept(stream));
        match stop.run_until_cancelled(handshake).await {
            Some(Ok(Ok(stream))) => self.exchange(stream, access, turn, stop).await,
            Some(Ok(Err(error))) => debug!(%error, "admin connection refused: the TLS handshake failed"),
            Some(Err(_)) => debug!("admin connection refused: the TLS handshake took too long"),
            None => {}
        }
    }

    async fn exchange<S>(self: Arc<Self>, stream: S, access: Arc<Access>, turn: PendingRequest, stop: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let service = service_fn(move |request| {
            turn.asked();
            let (admin, access) = (Arc::clone(&self), Arc::clone(&access));
            async move { Ok::<_, Infallible>(admin.respond(&request, &access).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            // One request for each connection, so that idle clients hold no connection.
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let exchange = async {
            if let Some(done) = stop.run_until_cancelled(connection.as_mut()).await {
                return done;
            }
            connection.as_mut().graceful_shutdown();
            connection.await
        };
        match timeout(EXCHANGE_TIMEOUT, exchange).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "admin connection ended"),
            Err(_) => debug!("admin connection took too long"),
        }
    }

    async fn respond(&self, request: &Request<Incoming>, access: &Access) -> Response<Body> {
        let path = request.uri().path();
        if !["/", "/metrics", "/livez", "/readyz"].contains(&path) {
            return reply(
                StatusCode::NOT_FOUND,
                "not found: the paths are /, /metrics, /livez and /readyz\n",
            );
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut refusal = reply(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported\n");
            refusal
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refusal;
        }
        match path {
            "/readyz" => self.ready().await,
            "/livez" => reply(StatusCode::OK, "alive\n"),
            _ if !access.is_granted(request.headers()) => unauthorized(),
            _ if self.is_loopback && access.is_open() && !host::is_local(request.headers()) => misdirected(),
            "/metrics" => self.metrics(),
            _ => self.page().await,
        }
    }

    async fn page(&self) -> Response<Body> {
        let ready = self.readiness.check().await;
        let (html, policy) = self.page.render(&self.telemetry.registry, ready);
        let mut response = reply(StatusCode::OK, html);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HTML);
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        // Contains only constants and base64, so it is a valid header.
        if let Ok(policy) = HeaderValue::from_str(&policy) {
            headers.insert(CONTENT_SECURITY_POLICY, policy);
        }
        response
    }

    fn metrics(&self) -> Response<Body> {
        match self.telemetry.render() {
            Ok(text) => {
                let mut response = reply(StatusCode::OK, text);
                response.headers_mut().insert(CONTENT_TYPE, METRICS);
                response
            }
            Err(error) => {
                warn!(%error, "metrics cannot be rendered");
                reply(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be rendered\n")
            }
        }
    }

    async fn ready(&self) -> Response<Body> {
        match self.readiness.check().await {
            Ok(()) => reply(StatusCode::OK, "ready\n"),
            Err(reason) => reply(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{}\n", reason.replace('\n', " ")),
            ),
        }
    }
}

/// Accepts the next connection when one is permitted. `None`: the accept failed. Cancel safe.
async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            warn!(%error, "admin connection cannot be accepted");
            sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

fn unauthorized() -> Response<Body> {
    let text =
        "the token is missing or wrong: send it as Authorization: Bearer, or as the password of Basic authentication\n";
    let mut refusal = reply(StatusCode::UNAUTHORIZED, text);
    for scheme in [
        "Bearer realm=\"mongoshape\"",
        "Basic realm=\"mongoshape\", charset=\"UTF-8\"",
    ] {
        refusal
            .headers_mut()
            .append(WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
    }
    refusal
}

fn misdirected() -> Response<Body> {
    let text = "use this machine's IP address or localhost as the host: without a token or TLS, other host names are refused, because a \
                web page of another site could use them\n";
    reply(StatusCode::MISDIRECTED_REQUEST, text)
}

fn reply(status: StatusCode, text: impl Into<bytes::Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, TEXT);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests;
