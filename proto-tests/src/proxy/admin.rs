//! GET requests to the admin address, and the value of one series in `/metrics`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};

/// What the admin address answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status code.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

pub(super) fn request(address: SocketAddr, path: &str, token: Option<&str>) -> Result<Answer> {
    let limit = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    // HTTP/1.0: the body ends with the connection and is never chunked.
    let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n{token}\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let status = head.split(' ').nth(1).context("no status line")?.parse()?;
    Ok(Answer {
        status,
        body: body.to_owned(),
    })
}

/// The value of the series that is called exactly this.
pub(super) fn series(metrics: &str, name: &str) -> Option<f64> {
    metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::series;

    #[test]
    fn series_is_found_by_full_name() {
        let metrics = "# TYPE a counter\na_total 3\na{x=\"1\"} 2.5\na 1\n";
        assert_eq!(series(metrics, "a"), Some(1.0));
        assert_eq!(series(metrics, "a{x=\"1\"}"), Some(2.5));
        assert_eq!(series(metrics, "a{x=\"2\"}"), None);
    }
}
