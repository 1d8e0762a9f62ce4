//! A stand-in for a server of MongoDB 8.0, before one of 6.0. Its handshake reports wire version 25, and its
//! `buildInfo` version 8.0. It knows that `bulkWrite` exists: it refuses one without operations, as the server does.
//! Everything else is passed on. So a program that executes `bulkWrite` by other commands can be tested.

use std::io::{self, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use anyhow::Result;
use bson::{Document, doc};

use crate::frame::{self, OP_MSG, header_field};
use crate::raw;

/// The element of the handshake with the wire version, and that of MongoDB 8.0.
const WIRE_VERSION: &[u8] = b"\x10maxWireVersion\0";
const WIRE_VERSION_8_0: i32 = 25;
/// The element of `buildInfo` with the numbers of the version, up to the first of them, without the array's length.
const VERSION: &[u8] = b"\x04versionArray\0....\x100\0";
const MAJOR_VERSION: i32 = 8;
/// mongod's code for a batch without operations.
const INVALID_LENGTH: i32 = 16;

/// A relay to a server. Its threads end with the process.
pub struct NewerServer {
    address: SocketAddr,
}

impl NewerServer {
    /// Starts the stand-in.
    pub fn before(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                thread::spawn(move || carry(&client, server));
            }
        });
        Ok(Self { address })
    }

    /// The connection string.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("mongodb://{}/?directConnection=true", self.address)
    }
}

/// Carries one connection until either end closes.
fn carry(client: &TcpStream, server: SocketAddr) {
    let Ok(server) = TcpStream::connect(server) else {
        return;
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = replies(&server, client);
            close(client, &server);
        });
        let _ = requests(client, &server);
        close(client, &server);
    });
}

fn close(client: &TcpStream, server: &TcpStream) {
    for stream in [client, server] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn requests(mut client: &TcpStream, mut server: &TcpStream) -> io::Result<()> {
    loop {
        let frame = frame::read(&mut client)?;
        let command = (header_field(&frame, 3) == OP_MSG).then(|| raw::document(&frame));
        match command.and_then(Result::ok) {
            // The program waits for the reply, so no other one is on its way.
            Some(command) if is_bulk_write_without_operations(&command) => {
                let reply = doc! {
                    "ok": 0.0, "errmsg": "Write batch sizes must be between 1 and 100000. Got 0 operations.",
                    "code": INVALID_LENGTH, "codeName": "InvalidLength",
                };
                client.write_all(&reply_to(&frame, &reply).map_err(io::Error::other)?)?;
            }
            _ => server.write_all(&frame)?,
        }
    }
}

fn is_bulk_write_without_operations(command: &Document) -> bool {
    command.keys().next().is_some_and(|name| name == "bulkWrite") && command.get_array("ops").is_ok_and(Vec::is_empty)
}

fn reply_to(request: &[u8], body: &Document) -> Result<Vec<u8>> {
    let mut reply = frame::command(0, 0, body)?;
    reply[8..12].copy_from_slice(&header_field(request, 1).to_le_bytes());
    Ok(reply)
}

fn replies(mut server: &TcpStream, mut client: &TcpStream) -> io::Result<()> {
    loop {
        let mut frame = frame::read(&mut server)?;
        replace_behind(&mut frame, WIRE_VERSION, WIRE_VERSION_8_0);
        replace_behind(&mut frame, VERSION, MAJOR_VERSION);
        client.write_all(&frame)?;
    }
}

/// Replaces the number behind these bytes, if the frame contains them. A dot stands for any byte.
fn replace_behind(frame: &mut [u8], bytes: &[u8], number: i32) {
    let is_equal = |part: &[u8]| {
        part.iter()
            .zip(bytes)
            .all(|(one, other)| *other == b'.' || one == other)
    };
    let found = frame.windows(bytes.len()).position(is_equal);
    if let Some(value) = found.and_then(|position| frame.get_mut(position + bytes.len()..)?.first_chunk_mut()) {
        *value = number.to_le_bytes();
    }
}
