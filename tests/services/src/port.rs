//! Finds free ports, tested by binding, below those that the kernel uses for outgoing connections.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port that is free at this address; `preferred` if that one is.
pub fn free(at: Ipv4Addr, preferred: Option<u16>) -> Option<u16> {
    choose(preferred, start(), |port| is_free(at, port))
}

pub fn is_free(at: Ipv4Addr, port: u16) -> bool {
    TcpListener::bind((at, port)).is_ok()
}

/// Each search begins at another port, so that two searches at once seldom meet.
fn start() -> u16 {
    static SEARCHES: AtomicU32 = AtomicU32::new(0);
    let search = SEARCHES.fetch_add(1, Ordering::Relaxed);
    let mixed = std::process::id().wrapping_add(search.wrapping_mul(977)).wrapping_mul(2_654_435_761);
    u16::try_from((mixed >> 8) % u32::from(COUNT)).unwrap_or_default()
}

fn choose(preferred: Option<u16>, start: u16, is_free: impl Fn(u16) -> bool) -> Option<u16> {
    let around = (0..COUNT).map(|step| FIRST + (start % COUNT + step) % COUNT);
    preferred.into_iter().chain(around).find(|port| is_free(*port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_avoided() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let here = Ipv4Addr::LOCALHOST;
        assert!(!is_free(here, port));
        assert_ne!(free(here, Some(port)), Some(port));
        // Every address has all ports.
        assert!(is_free(Ipv4Addr::new(127, 0, 0, 9), port));
    }

    #[test]
    fn a_preferred_port_comes_first_if_it_is_free() {
        assert_eq!(choose(Some(25_000), 0, |_| true), Some(25_000));
        assert_eq!(choose(Some(25_000), 0, |port| port != 25_000), Some(FIRST));
    }

    #[test]
    fn every_port_of_the_range_is_tried_once_around() {
        assert_eq!(choose(None, COUNT - 1, |port| port == FIRST), Some(FIRST));
        assert_eq!(choose(None, 5, |port| port == FIRST + 4), Some(FIRST + 4));
        assert_eq!(choose(None, 0, |_| false), None);
        assert!((0..100).all(|_| free(Ipv4Addr::LOCALHOST, None).is_some_and(|port| (20_000..32_000).contains(&port))));
    }
}
