//! Free ports.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{LazyLock, Mutex, PoisonError};

/// How often a server is restarted on other ports if another process binds a port first.
pub(crate) const ATTEMPTS: usize = 5;

/// How many ports the system may name before one is accepted that was given out before.
const LOOKS: usize = 1_000;

/// What this process gave out so far. The system may name a port again as soon as it is let go of: the second
/// port of a proxy would be its first, or that of another proxy which is just started again.
static GIVEN: LazyLock<Mutex<HashSet<SocketAddr>>> = LazyLock::new(Mutex::default);

/// An address on 127.0.0.1 that was free a moment ago, another one at each call.
pub fn free_address() -> io::Result<SocketAddr> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut address = named_by_the_system()?;
    for _ in 0..LOOKS {
        if given.insert(address) {
            break;
        }
        address = named_by_the_system()?;
    }
    Ok(address)
}

fn named_by_the_system() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// Whether a server's output reports that its port was taken, so that it can be started again on another.
pub(crate) fn reports_address_in_use(log: &str) -> bool {
    log.to_ascii_lowercase().contains("address already in use")
}

#[cfg(test)]
mod tests {
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
