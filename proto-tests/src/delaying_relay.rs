//! A relay between a program and a server that holds messages back. A message arrives late, or never.

use std::io::{self, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::Result;
use bson::Document;

use crate::frame::{self, OP_MSG, header_field};
use crate::raw::{self, Connection};

/// What the relay does with a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The server gets it now.
    Arrives,
    /// The connection breaks. The server gets it when [`DelayingRelay::deliver`] is called.
    IsHeld,
}

/// Decides the fate of each command. The command waits for the decision.
type Judge = Box<dyn FnMut(&Document) -> Fate + Send>;

/// A relay to a server. Its threads end with the process.
#[derive(Clone)]
pub struct DelayingRelay {
    address: SocketAddr,
    server: SocketAddr,
    held: Arc<Mutex<Vec<Vec<u8>>>>,
    judge: Arc<Mutex<Judge>>,
}

impl DelayingRelay {
    /// Starts the relay.
    pub fn to(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let relay = Self {
            address: listener.local_addr()?,
            server,
            held: Arc::default(),
            judge: Arc::new(Mutex::new(Box::new(|_: &Document| Fate::Arrives))),
        };
        let shared = relay.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let relay = shared.clone();
                thread::spawn(move || relay.carry(&client));
            }
        });
        Ok(relay)
    }

    /// Decides the fate of each command from now on.
    pub fn judge(&self, judge: impl FnMut(&Document) -> Fate + Send + 'static) {
        *lock(&self.judge) = Box::new(judge);
    }

    /// A connection string through this relay.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("mongodb://{}/?directConnection=true", self.address)
    }

    /// Commands that are held back.
    #[must_use]
    pub fn held(&self) -> usize {
        lock(&self.held).len()
    }

    /// Delivers the messages that were held back, and returns the replies.
    pub fn deliver(&self) -> Result<Vec<Document>> {
        let held = std::mem::take(&mut *lock(&self.held));
        let deliver = |frame: Vec<u8>| {
            let mut connection = Connection::open(self.server)?;
            connection.send(&frame)?;
            raw::document(&connection.receive()?)
        };
        held.into_iter().map(deliver).collect()
    }

    /// Carries one connection until either end closes, or it breaks.
    fn carry(&self, client: &TcpStream) {
        let Ok(server) = TcpStream::connect(self.server) else {
            return close(client);
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let _ = io::copy(&mut &server, &mut &*client);
                close(client);
                close(&server);
            });
            let _ = self.requests(client, &server);
            close(client);
            close(&server);
        });
    }

    fn requests(&self, mut client: &TcpStream, mut server: &TcpStream) -> io::Result<()> {
        loop {
            let frame = frame::read(&mut client)?;
            if header_field(&frame, 3) == OP_MSG
                && let Ok(command) = raw::document(&frame)
                && (*lock(&self.judge))(&command) == Fate::IsHeld
            {
                lock(&self.held).push(frame);
                return Ok(());
            }
            server.write_all(&frame)?;
        }
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn close(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}
