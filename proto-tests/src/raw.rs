//! A blocking connection with a minimal `OP_MSG`: to wait for servers, to measure, and to send messages that
//! no driver sends.

mod stream;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bson::raw::RawDocumentBuf;
use bson::{Document, doc};
use rustls::ClientConfig;

use stream::Stream;

use crate::replies::{succeeded, with_later_name};

const OP_MSG: i32 = 2013;
const HEADER_LENGTH: usize = 16;
/// Before the document of a one-section message: header, flag bits, the section's kind.
const BODY_OFFSET: usize = HEADER_LENGTH + 4 + 1;
/// The server's own limit, 48,000,000, with room to see a proxy break it.
const MAX_FRAME_LENGTH: usize = 64 << 20;

/// A connection; every wait on the server ends after [`COMMAND_LIMIT`], unless set otherwise on
/// [`Connection::stream`].
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    next_request_id: i32,
}

impl Connection {
    /// Connects; nothing is sent yet.
    pub fn open(address: SocketAddr) -> Result<Self> {
        Ok(Self::on(Stream::Plain(connect(address)?)))
    }

    /// Connects and does the TLS handshake, with what
    /// [`Certificates::client_config`](crate::Certificates::client_config) gives. A server that refuses the
    /// certificate may do so only when it is first written to.
    pub fn open_tls(address: SocketAddr, config: &Arc<ClientConfig>) -> Result<Self> {
        Ok(Self::on(Stream::tls(connect(address)?, config)?))
    }

    fn on(stream: Stream) -> Self {
        Self {
            stream,
            next_request_id: 1,
        }
    }

    /// Runs one command, which must name its `$db`. A reply with `ok: 0` is a reply.
    pub fn command(&mut self, command: &Document) -> Result<Document> {
        Ok(Document::try_from(self.command_raw(command)?)?)
    }

    /// Runs one command, and returns the reply as bytes. Decoding would drop repeated fields. Two names of codes
    /// are replaced by [those of later servers](with_later_name).
    pub fn command_raw(&mut self, command: &Document) -> Result<RawDocumentBuf> {
        let request = request(self.next_request_id, command)?;
        self.next_request_id += 1;
        self.send(&request)?;
        let mut frame = Vec::new();
        self.read_frame(&mut frame)?;
        Ok(with_later_name(RawDocumentBuf::from_bytes(body(&frame)?.to_vec())?))
    }

    /// Runs one command and fails unless the reply is `ok: 1`.
    pub fn command_ok(&mut self, command: &Document) -> Result<Document> {
        succeeded(self.command(command)?)
    }

    /// Runs a command that opens a cursor and gives all documents that it has.
    pub fn all(&mut self, command: &Document) -> Result<Vec<Document>> {
        let mut reply = self.command_ok(command)?;
        let mut documents = Vec::new();
        loop {
            let cursor = reply.get_document("cursor")?;
            let batch = cursor
                .get_array("firstBatch")
                .or_else(|_| cursor.get_array("nextBatch"))?;
            documents.extend(batch.iter().filter_map(|document| document.as_document().cloned()));
            let id = cursor.get_i64("id")?;
            if id == 0 {
                return Ok(documents);
            }
            let (_, collection) = cursor.get_str("ns")?.split_once('.').context("no namespace")?;
            let database = command.get_str("$db")?;
            reply = self.command_ok(&doc! { "getMore": id, "collection": collection, "$db": database })?;
        }
    }

    /// The documents of a whole collection, or those that a filter matches.
    pub fn find(&mut self, database: &str, collection: &str, filter: Document) -> Result<Vec<Document>> {
        self.all(&doc! { "find": collection, "filter": filter, "$db": database })
    }

    /// Reads one whole frame and gives it.
    pub fn receive(&mut self) -> Result<Vec<u8>> {
        let mut frame = Vec::new();
        self.read_frame(&mut frame)?;
        Ok(frame)
    }

    /// Whether the server closed the connection, waiting for that if need be. An error: it sent something.
    pub fn is_closed(&mut self) -> Result<bool> {
        match self.stream.read(&mut [0; 1]) {
            Ok(0) => Ok(true),
            Ok(_) => bail!("the server sent something"),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(false),
                _ => Ok(true),
            },
        }
    }

    /// Sends bytes as they are, or as TLS carries them.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Reads one whole frame, header included, into `frame`, whose room is used again.
    pub fn read_frame(&mut self, frame: &mut Vec<u8>) -> Result<()> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let total = usize::try_from(i32::from_le_bytes(length))?;
        ensure!(
            (HEADER_LENGTH..=MAX_FRAME_LENGTH).contains(&total),
            "a frame of {total} bytes"
        );
        frame.resize(total, 0);
        let (head, rest) = frame.split_at_mut(4);
        head.copy_from_slice(&length);
        self.stream.read_exact(rest)?;
        Ok(())
    }

    /// The socket, for other deadlines or for closing half of it.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        self.stream.socket()
    }
}

/// So long may a command take. A busy machine needs more than ten seconds for 100,000 changed documents.
const COMMAND_LIMIT: Duration = Duration::from_mins(1);

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(COMMAND_LIMIT))?;
    socket.set_write_timeout(Some(COMMAND_LIMIT))?;
    Ok(socket)
}

/// The frame of an `OP_MSG` that carries one document and no flags.
pub fn request(request_id: i32, command: &Document) -> Result<Vec<u8>> {
    let body = command.to_vec()?;
    let length = i32::try_from(BODY_OFFSET + body.len())?;
    let mut frame = Vec::with_capacity(BODY_OFFSET + body.len());
    for field in [length, request_id, 0, OP_MSG, 0] {
        frame.extend_from_slice(&field.to_le_bytes());
    }
    frame.push(0);
    frame.extend_from_slice(&body);
    Ok(frame)
}

/// The document of a reply frame, which servers send as an `OP_MSG` of one section.
pub fn document(frame: &[u8]) -> Result<Document> {
    Ok(Document::from_reader(body(frame)?)?)
}

/// The bytes of a reply frame's document, and the rest of the frame.
pub fn body(frame: &[u8]) -> Result<&[u8]> {
    let opcode = frame
        .get(12..HEADER_LENGTH)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_le_bytes);
    if opcode != Some(OP_MSG) {
        bail!("not an OP_MSG but {opcode:?}");
    }
    frame.get(BODY_OFFSET..).context("a frame without a document")
}
