//! Accepting connections on one address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::Admission;
use super::workers::Workers;
use crate::session::Shared;
use crate::session::connection::{self, Client};
use crate::session::handshake::{AddressMap, Presentation};
use crate::session::upstream::Upstreams;

/// Pause after the system refused to accept, as when file descriptors ran out: trying at once would only
/// spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What clients of a listener see a member of a replica set as.
#[derive(Clone, Debug)]
pub enum ListenerPresentation {
    /// A mongos.
    Mongos,
    /// A replica set of one, at this `host:port`; `None`: at the address that the client has connected to.
    ReplicaSet(Option<Arc<str>>),
    /// Itself, among the other members' listeners.
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

/// One address that clients connect to.
#[derive(Debug)]
pub struct Listener {
    /// The bound socket.
    pub socket: TcpListener,
    /// What the upstream is shown as.
    pub present_as: ListenerPresentation,
    /// Where its clients' commands go.
    pub upstreams: Upstreams,
}

/// What lies behind a listener.
pub(super) struct ListenerContext {
    pub(super) admission: Arc<Admission>,
    pub(super) shared: Arc<Shared>,
    pub(super) workers: Arc<Workers>,
    pub(super) sessions: TaskTracker,
    pub(super) stop: CancellationToken,
}

impl Listener {
    /// Accepts until told to stop; the socket is closed then.
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
            // The client is gone already.
            return Ok(());
        };
        // Its worker waits for it from now on.
        let socket = socket.into_std()?;
        let (admission, shared) = (Arc::clone(&door.admission), Arc::clone(&door.shared));
        let (upstreams, stop) = (self.upstreams.clone(), door.stop.clone());
        let session = async move {
            let socket = admission.admit(socket, peer, shared.metrics(), &stop).await;
            if let Some(socket) = socket {
                let client = Client {
                    socket,
                    peer,
                    presentation,
                };
                connection::serve(client, &upstreams, &shared, &stop).await;
            }
            drop(place);
        };
        door.workers.spawn(door.sessions.track_future(session));
        Ok(())
    }
}
