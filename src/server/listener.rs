//! Accepts connections on one address.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::{Admission, AdmissionLimits};
use super::workers::Workers;
use crate::session::Shared;
use crate::session::connection::{self, Client};
use crate::session::handshake::{AddressMap, Presentation};
use crate::session::upstream::Upstreams;

/// Pause after a failed accept, for example without free file descriptors: an immediate attempt
/// would fail again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The form in which a listener presents a member of a replica set to its clients.
#[derive(Clone, Debug)]
pub enum ListenerPresentation {
    /// As a mongos.
    Mongos,
    /// As a replica set with one member, at this `host:port`. `None`: at the address to which the
    /// client has connected.
    ReplicaSet(Option<Arc<str>>),
    /// As itself, with the addresses of all members replaced by those of their listeners.
    Member(Arc<AddressMap>),
}

impl ListenerPresentation {
    fn to(&self, client: &TcpStream) -> std::io::Result<Presentation> {
        Ok(match self {
            Self::Mongos => Presentation::Mongos,
            Self::ReplicaSet(Some(address)) => Presentation::ReplicaSet(Arc::clone(address)),
            Self::ReplicaSet(None) => Presentation::ReplicaSet(client.local_addr()?.to_string().into()),
            Self::Member(map) => Presentation::Member(Arc::clone(map)),
        })
    }
}

/// A listener for clients.
#[derive(Debug)]
pub struct Listener {
    /// The bound socket.
    pub socket: TcpListener,
    /// The presentation of the upstream.
    pub present_as: ListenerPresentation,
    /// The servers for the clients' commands.
    pub upstreams: Upstreams,
    /// The admission control of this listener alone. `None`: that of the server.
    pub admission: Option<Arc<Admission>>,
    /// A text that the first message of every client must contain. `None`: any client may connect.
    pub secret: Option<Arc<str>>,
}

impl Listener {
    /// A listener for the program's own tasks: on a port of 127.0.0.1 that the system chooses, without TLS.
    /// It closes connections of other programs, which do not know the secret.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn internal(upstreams: &Upstreams, limits: AdmissionLimits, secret: &str) -> std::io::Result<Self> {
        let failed = |error: std::io::Error| {
            let text = format!("cannot listen on 127.0.0.1 for the program's own tasks: {error}");
            std::io::Error::new(error.kind(), text)
        };
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        Ok(Self {
            socket: socket.map_err(failed)?,
            present_as: ListenerPresentation::Mongos,
            upstreams: upstreams.clone(),
            admission: Some(Arc::new(Admission::new(AdmissionLimits { tls: None, ..limits }))),
            secret: Some(Arc::from(secret)),
        })
    }
}

/// The state that a listener shares with its connections.
pub(super) struct ListenerContext {
    pub(super) admission: Arc<Admission>,
    pub(super) shared: Arc<Shared>,
    pub(super) workers: Arc<Workers>,
    pub(super) sessions: TaskTracker,
    pub(super) stop: CancellationToken,
}

impl Listener {
    /// Accepts connections until `stop` is cancelled, and closes the socket.
    pub(super) async fn accept(self, door: ListenerContext) {
        loop {
            let accepted = tokio::select! {
                () = door.stop.cancelled() => return,
                accepted = self.socket.accept() => accepted,
            };
            let begun = accepted.and_then(|(socket, peer)| self.begin(&door, socket, peer));
            if let Err(error) = begun {
                tracing::error!(%error, "cannot accept connections");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }

    fn begin(&self, door: &ListenerContext, socket: TcpStream, peer: SocketAddr) -> std::io::Result<()> {
        let metrics = door.shared.metrics();
        let Some(place) = door.admission.place(peer, metrics) else {
            return Ok(());
        };
        let Ok(presentation) = self.present_as.to(&socket) else {
            // The client has disconnected.
            return Ok(());
        };
        // Converted, because the worker's runtime polls the socket from now on.
        let socket = socket.into_std()?;
        let (admission, shared) = (Arc::clone(&door.admission), Arc::clone(&door.shared));
        let (upstreams, stop) = (self.upstreams.clone(), door.stop.clone());
        let secret = self.secret.clone();
        let session = async move {
            let socket = admission.admit(socket, peer, shared.metrics(), &stop).await;
            if let Some(socket) = socket {
                let client = Client {
                    socket,
                    peer,
                    presentation,
                    secret,
                };
                connection::serve(client, &upstreams, &shared, &stop).await;
            }
            drop(place);
        };
        door.workers.spawn(door.sessions.track_future(session));
        Ok(())
    }
}
