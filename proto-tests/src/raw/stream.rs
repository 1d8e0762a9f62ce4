//! The byte stream of a connection: TCP, or TLS over TCP.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;

use anyhow::Result;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Completes the handshake. With TLS 1.3 a server reports a refused certificate only at our first read.
    pub(super) fn tls(mut socket: TcpStream, config: &Arc<ClientConfig>) -> Result<Self> {
        let server: IpAddr = socket.peer_addr()?.ip();
        let mut connection = ClientConnection::new(Arc::clone(config), ServerName::from(server))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(Self::Tls(Box::new(StreamOwned::new(connection, socket))))
    }

    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
