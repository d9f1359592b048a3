//! Which addresses an HTTP step may connect to. Public ones always; private, loopback and carrier-grade NAT
//! addresses, and those of this machine, only if `allow-networks` names them; link-local, multicast, unspecified and
//! reserved addresses and metadata services never.
//!
//! An IPv6 address that contains an IPv4 one is checked as both, and the stricter result holds.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    str::FromStr,
};

/// Whether a step may connect to an address. The order matters: of two results for one address, the stricter (larger) one holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reach {
    Public,
    /// Only if `allow-networks` names it.
    Named,
    Never,
}

/// A network in CIDR notation; a single address is a network of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    base: IpAddr,
    prefix: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("`{0}` is no network: write it as 10.1.0.0/16 or fd00:1::/32")]
    NotANetwork(String),
    #[error("`{0}` has bits set beyond its prefix: write `{1}`")]
    HostBits(String, Network),
    #[error("`{0}` is link-local, multicast or a metadata service, which can never be allowed")]
    Never(String),
}

/// Why an address was refused. The message tells the author of the configuration what to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressRefusal {
    #[error("{0} is private, loopback or reserved: name its network in `allow-networks` if this is intended")]
    NotNamed(IpAddr),
    #[error("{0} is an address of this machine: name it in `allow-networks` if this is intended")]
    Own(IpAddr),
    #[error("{0} is link-local, multicast or a metadata service: such addresses are never connected to")]
    Never(IpAddr),
}

/// The networks that one step may reach in addition to the public ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Guard {
    allowed: Vec<Network>,
}

impl Guard {
    pub fn new(allowed: Vec<Network>) -> Guard {
        Guard { allowed }
    }

    /// Checks whether the step may connect to this address. Call it before every connection, because the machine's own
    /// addresses change.
    pub fn check(&self, address: IpAddr) -> Result<(), AddressRefusal> {
        let named = self.allowed.iter().any(|network| network.contains(address));
        match reach(address) {
            Reach::Never => Err(AddressRefusal::Never(address)),
            Reach::Named if !named => Err(AddressRefusal::NotNamed(address)),
            Reach::Public if !named && is_own(address) => Err(AddressRefusal::Own(address)),
            Reach::Named | Reach::Public => Ok(()),
        }
    }
}

impl Network {
    /// An IPv4 network contains the IPv4-mapped spelling of its addresses too.
    pub fn contains(self, address: IpAddr) -> bool {
        self.contains_as_is(address) || self.contains_as_is(address.to_canonical())
    }

    fn contains_as_is(self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
                masked(address, self.prefix) == self.base
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let wrong = || NetworkError::NotANetwork(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            // "+8" would be read as a number, but is no prefix length
            Some(digits) if digits.len() <= 3 && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| wrong())?
            }
            Some(_) => return Err(wrong()),
            None => bits,
        };
        if prefix > bits {
            return Err(wrong());
        }
        let network = Network { base: masked(address, prefix), prefix };
        if network.base != address {
            return Err(NetworkError::HostBits(text.to_owned(), network));
        }
        // a wide network such as 0.0.0.0/0 may contain some of these, and still does not allow them
        if prefix >= 8 && reach(address) == Reach::Never {
            return Err(NetworkError::Never(text.to_owned()));
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

fn masked(address: IpAddr, prefix: u32) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    }
}

fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(v4) => reach_v4(v4),
        IpAddr::V6(v6) => reach_v6(v6),
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    // cloud services outside 169.254.0.0/16 that give credentials to any client
    const METADATA: [Ipv4Addr; 3] = [
        Ipv4Addr::new(100, 100, 100, 200), // Alibaba
        Ipv4Addr::new(168, 63, 129, 16),   // Azure
        Ipv4Addr::new(192, 0, 0, 192),     // Oracle
    ];
    match address.octets() {
        [169, 254, ..] | [224..=255, ..] => Reach::Never,
        // "this host": Linux connects 0.0.0.0 to loopback
        [0, ..] => Reach::Never,
        _ if METADATA.contains(&address) => Reach::Never,
        [10 | 127, ..] | [172, 16..=31, ..] | [192, 168, ..] => Reach::Named,
        [100, 64..=127, ..] => Reach::Named,
        // protocol assignments, documentation, 6to4 relays, benchmarks: no public server has these addresses
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => {
            Reach::Named
        }
        _ => Reach::Public,
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    const METADATA: [Ipv6Addr; 2] = [
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), // Amazon
        Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),  // Google
    ];
    let segments = address.segments();
    let plain = match segments {
        _ if METADATA.contains(&address) => Reach::Never,
        [0xfe80..=0xfebf | 0xff00..=0xffff, ..] | [0, 0, 0, 0, 0, 0, 0, 0] => Reach::Never,
        // NAT64 (RFC 6052): the embedded IPv4 address decides
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => Reach::Public,
        // Teredo, documentation, 6to4
        [0x2001, 0 | 0xdb8, ..] | [0x2002, ..] => Reach::Named,
        [0x2000..=0x3fff, ..] => Reach::Public,
        // loopback, mapped, compatible, local NAT64, unique local, site-local, and unassigned ranges
        _ => Reach::Named,
    };
    embedded_v4(address).map(reach_v4).fold(plain, Reach::max)
}

/// Returns the IPv4 addresses that a router or kernel may read from this address.
fn embedded_v4(address: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low));
    let last = match [a, b, c, d, e, f] {
        // mapped, compatible (loopback and unspecified are checked as IPv6), translated, NAT64
        [0, 0, 0, 0, 0, 0xffff] | [0, 0, 0, 0, 0xffff, 0] | [0x64, 0xff9b, ..] => Some(v4(g, h)),
        [0, 0, 0, 0, 0, 0] if g != 0 => Some(v4(g, h)),
        // ISATAP: the IPv4 address follows a fixed interface id
        [_, _, _, _, 0 | 0x200, 0x5efe] => Some(v4(g, h)),
        // Teredo stores it inverted
        [0x2001, 0, ..] => Some(v4(!g, !h)),
        _ => None,
    };
    let six_to_four = (a == 0x2002).then(|| v4(b, c));
    last.into_iter().chain(six_to_four)
}

/// Whether the address belongs to this machine. It sends nothing: connecting a datagram socket only looks up the route.
/// The kernel picks a local address as the source; if it equals the target, the target is local. An error counts as no.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    UdpSocket::bind((any, 0))
        .and_then(|socket| {
            socket.connect((address, 9))?;
            socket.local_addr()
        })
        .is_ok_and(|local| local.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(networks: &[&str]) -> Guard {
        Guard::new(networks.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn everything() -> Guard {
        guard(&["0.0.0.0/0", "::/0"])
    }

    const NEVER: &[&str] = &[
        "0.0.0.0",
        "0.1.2.3",
        "169.254.0.1",
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "fe80::1",
        "febf::1",
        "ff02::1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "::ffff:169.254.169.254",
        "::ffff:0.0.0.0",
        "::169.254.169.254",
        "::ffff:0:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::169.254.169.254",
        "2002:a9fe:a9fe::1",
        "2001:0:1:2:3:4:5601:5601",
        "2001:470::5efe:169.254.169.254",
    ];

    const NAMED: &[&str] = &[
        "10.0.0.1",
        "127.0.0.1",
        "127.255.255.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "100.127.255.255",
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.7",
        "203.0.113.9",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "::8.8.8.8",
        "::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::8.8.8.8",
        "2002:7f00:1::1",
        "2002:808:808::1",
        "2001:0:4136:e378:8000:63bf:f7f7:f7f7",
        "2001:db8::1",
        "fc00::1",
        "fd12:3456::1",
        "fec0::1",
        "100::1",
    ];

    const PUBLIC: &[&str] =
        &["8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "100.63.255.255", "100.128.0.1", "64:ff9b::8.8.8.8"];

    #[test]
    fn se_22_address_corpus() {
        for text in NEVER {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(everything().check(address), Err(AddressRefusal::Never(address)), "{text}");
        }
        for text in NAMED {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(Guard::default().check(address), Err(AddressRefusal::NotNamed(address)), "{text}");
            assert_eq!(everything().check(address), Ok(()), "{text}");
        }
        for text in PUBLIC {
            assert_eq!(Guard::default().check(text.parse().unwrap()), Ok(()), "{text}");
        }
    }

    #[test]
    fn se_22_only_the_named_networks_are_allowed() {
        let guard = guard(&["10.1.0.0/16", "fd00:1::/32", "127.0.0.1"]);
        for text in ["10.1.0.0", "10.1.255.255", "::ffff:10.1.2.3", "fd00:1:ffff::9", "127.0.0.1"] {
            assert_eq!(guard.check(text.parse().unwrap()), Ok(()), "{text}");
        }
        for text in ["10.0.255.255", "10.2.0.0", "fd00:2::1", "127.0.0.2", "::1"] {
            assert!(guard.check(text.parse().unwrap()).is_err(), "{text}");
        }
    }

    #[test]
    fn se_22_networks_are_read_strictly() {
        for text in
            ["", "10.0.0.0/33", "::/129", "10.0.0/8", "010.0.0.0/8", "10.0.0.0/+8", "10.0.0.0/", "host/8", "0x7f.1"]
        {
            assert!(matches!(text.parse::<Network>(), Err(NetworkError::NotANetwork(_))), "{text}");
        }
        assert_eq!(
            "10.1.2.3/8".parse::<Network>().unwrap_err().to_string(),
            "`10.1.2.3/8` has bits set beyond its prefix: write `10.0.0.0/8`"
        );
        for text in ["169.254.0.0/16", "169.254.169.254", "fe80::/10", "fd00:ec2::254", "::ffff:169.254.169.254"] {
            assert!(matches!(text.parse::<Network>(), Err(NetworkError::Never(_))), "{text}");
        }
    }

    #[test]
    fn se_22_own_addresses_are_found_without_sending() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(!is_own("192.0.2.1".parse().unwrap()));
    }
}
