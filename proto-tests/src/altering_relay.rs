//! A relay to a server that changes replies: what a program does with them is then visible.

use std::io::{self, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use anyhow::Result;
use bson::Document;

use crate::frame::{self, header_field};
use crate::raw;

/// Changes a reply. `false`: it is passed on as it is.
type Alter = fn(&mut Document) -> bool;

/// A relay to a server. Its threads end with the process.
pub struct AlteringRelay {
    address: SocketAddr,
}

impl AlteringRelay {
    /// Starts the relay.
    pub fn to(server: SocketAddr, alter: Alter) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                thread::spawn(move || carry(&client, server, alter));
            }
        });
        Ok(Self { address })
    }

    /// A connection string through this relay.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("mongodb://{}/?directConnection=true", self.address)
    }
}

/// Carries one connection until either end closes.
fn carry(client: &TcpStream, server: SocketAddr, alter: Alter) {
    let Ok(server) = TcpStream::connect(server) else {
        return close(client);
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = replies(&server, client, alter);
            close(client);
            close(&server);
        });
        let _ = io::copy(&mut &*client, &mut &server);
        close(client);
        close(&server);
    });
}

fn replies(mut server: &TcpStream, mut client: &TcpStream, alter: Alter) -> io::Result<()> {
    loop {
        let frame = frame::read(&mut server)?;
        client.write_all(&altered(&frame, alter).unwrap_or(frame))?;
    }
}

/// The changed reply. `None`: it is passed on as it is.
fn altered(frame: &[u8], alter: Alter) -> Option<Vec<u8>> {
    let mut reply = raw::document(frame).ok()?;
    if !alter(&mut reply) {
        return None;
    }
    let mut altered = frame::command(header_field(frame, 1), 0, &reply).ok()?;
    altered[8..12].copy_from_slice(&header_field(frame, 2).to_le_bytes());
    Some(altered)
}

fn close(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}
