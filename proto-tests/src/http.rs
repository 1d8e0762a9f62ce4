//! A client of HTTP/1.0: the body of an answer ends with the connection, and is never chunked.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Such as `GET`.
    pub method: &'a str,
    /// The path, with the query.
    pub path: &'a str,
    /// Lines that end with CR and LF.
    pub headers: &'a str,
    /// Empty: none.
    pub body: &'a str,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status code.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

impl Request<'_> {
    /// Sends it. `limit` is for the connection, and for each read.
    pub fn send(&self, address: SocketAddr, limit: Duration) -> Result<Answer> {
        let mut stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        let Self {
            method,
            path,
            headers,
            body,
        } = self;
        let length = if body.is_empty() {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let message = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\n{headers}{length}\r\n{body}");
        stream.write_all(message.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
        let status = head.split(' ').nth(1).context("no status line")?.get(..3);
        Ok(Answer {
            status: status.context("no status")?.parse()?,
            body: body.to_owned(),
        })
    }
}
