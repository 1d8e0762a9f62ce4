//! Free ports.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// How often a server is started anew on other ports when somebody took one between our look and its bind.
pub(crate) const ATTEMPTS: usize = 5;

/// An address on 127.0.0.1 that was free a moment ago.
pub fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Whether a server's last words say that its port was taken, so that another try is worth it.
pub(crate) fn says_address_in_use(log: &str) -> bool {
    log.to_ascii_lowercase().contains("address already in use")
}
