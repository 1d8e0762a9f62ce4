//! GET requests to the admin address, and the value of one series in `/metrics`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use crate::http::{Answer, Request};

pub(super) fn request(address: SocketAddr, path: &str, token: Option<&str>) -> Result<Answer> {
    let headers = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    let request = Request {
        method: "GET",
        path,
        headers: &headers,
        body: "",
    };
    request.send(address, Duration::from_secs(5))
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
