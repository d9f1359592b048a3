//! Ports below those that the kernel hands out for outgoing connections, tested by binding.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A free port; `preferred` if that one is free.
pub fn free(preferred: Option<u16>) -> Option<u16> {
    preferred.filter(|port| is_free(*port)).or_else(|| from(start(), is_free))
}

pub fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Each search begins elsewhere, so that two who search at once seldom meet.
fn start() -> u16 {
    static SEARCHES: AtomicU32 = AtomicU32::new(0);
    let search = SEARCHES.fetch_add(1, Ordering::Relaxed);
    let mixed = std::process::id().wrapping_add(search.wrapping_mul(977)).wrapping_mul(2_654_435_761);
    u16::try_from((mixed >> 8) % u32::from(COUNT)).unwrap_or_default()
}

fn from(start: u16, is_free: impl Fn(u16) -> bool) -> Option<u16> {
    (0..COUNT).map(|step| FIRST + (start % COUNT + step) % COUNT).find(|port| is_free(*port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_avoided() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!(!is_free(port));
        assert_ne!(free(Some(port)), Some(port));
        drop(taken);
        assert_eq!(free(Some(port)), Some(port));
    }

    #[test]
    fn every_port_of_the_range_is_tried_once_around() {
        assert_eq!(from(COUNT - 1, |port| port == FIRST), Some(FIRST));
        assert_eq!(from(5, |port| port == FIRST + 4), Some(FIRST + 4));
        assert_eq!(from(0, |_| false), None);
        assert!((0..100).all(|_| free(None).is_some_and(|port| (20_000..32_000).contains(&port))));
    }
}
