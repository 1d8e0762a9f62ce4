//! A TCP load balancer: one address for several servers. Tests can cut its connections.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::Result;

/// A balancer. Its threads end with the process.
#[derive(Debug)]
pub struct Balancer {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Balancer {
    /// Gives each connection to the next of the servers, or where that takes none to the one behind it.
    pub fn before(servers: Vec<SocketAddr>) -> Result<Self> {
        Self::at("127.0.0.1", servers)
    }

    /// The same on another of this machine's own addresses.
    pub fn at(address: &str, servers: Vec<SocketAddr>) -> Result<Self> {
        let listener = TcpListener::bind((address, 0))?;
        let address = listener.local_addr()?;
        let open = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&open);
        thread::spawn(move || {
            let turn = AtomicUsize::new(0);
            for client in listener.incoming().flatten() {
                let first = turn.fetch_add(1, Ordering::Relaxed);
                let candidates = (0..servers.len()).map(|number| servers[(first + number) % servers.len()]);
                let server = candidates
                    .into_iter()
                    .find_map(|server| TcpStream::connect(server).ok());
                // Dropped, and so closed, where none takes it.
                if let Some(server) = server
                    && let Ok(copy) = client.try_clone()
                {
                    lock(&shared).push(copy);
                    thread::spawn(move || carry(&client, &server));
                }
            }
        });
        Ok(Self { address, open })
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts a connection, wherever it is: the one that `choose` points at among so many that were opened
    /// lately.
    pub fn cut(&self, choose: impl FnOnce(usize) -> usize) {
        let mut open = lock(&self.open);
        open.retain(|client| client.peer_addr().is_ok());
        let number = open.len();
        if number > 0
            && let Some(client) = open.get(choose(number) % number)
        {
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

fn lock(open: &Mutex<Vec<TcpStream>>) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

fn carry(client: &TcpStream, server: &TcpStream) {
    let copy = |mut from: &TcpStream, mut to: &TcpStream| {
        let _ = io::copy(&mut from, &mut to);
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    thread::scope(|scope| {
        scope.spawn(|| copy(server, client));
        copy(client, server);
    });
}
