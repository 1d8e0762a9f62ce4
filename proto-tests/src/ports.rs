//! Free ports.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::{LazyLock, Mutex, PoisonError};

use rand::RngExt as _;

/// How often a server is restarted on other ports if another process binds a port first.
pub(crate) const ATTEMPTS: usize = 5;

/// Below the ports that Linux gives to outgoing connections and to listeners on port 0. Those could have the
/// port of a proxy that is being started again.
const PORTS: Range<u16> = 10_000..32_768;

/// The next port to try. Other processes begin elsewhere.
static NEXT: LazyLock<Mutex<u16>> = LazyLock::new(|| Mutex::new(rand::rng().random_range(PORTS)));

/// An address on 127.0.0.1 that was free a moment ago. A process gets a port again after all others.
pub fn free_address() -> io::Result<SocketAddr> {
    let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in PORTS {
        let port = *next;
        *next = if port + 1 < PORTS.end { port + 1 } else { PORTS.start };
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return listener.local_addr();
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// Whether a server's output reports that its port was taken, so that it can be started again on another.
pub(crate) fn reports_address_in_use(log: &str) -> bool {
    log.to_ascii_lowercase().contains("address already in use")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_address_is_given_twice() {
        let mut seen = HashSet::new();
        for _ in 0..2_000 {
            let address = free_address().expect("a free address");
            assert!(seen.insert(address), "{address} was given twice");
        }
    }
}
