//! Addresses of the machine itself, of its link, and of its cloud's metadata.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Prefix of IPv4 addresses behind a translator (RFC 6052 §2.1): 64:ff9b::/96.
const TRANSLATED: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

/// The metadata service of Amazon EC2 for IPv6; that for IPv4 is link-local.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Whether an address is loopback (RFC 1122 §3.2.1.3, RFC 4291 §2.5.3), link-local (RFC 3927, RFC 4291 §2.5.6),
/// unspecified or a metadata service, also as an IPv4-mapped or translated one.
pub fn is_local_address(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_local_v4(address),
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.is_unspecified()
                || address.is_unicast_link_local()
                || address == METADATA
                || translated(address).is_some_and(is_local_v4)
        }
    }
}

fn is_local_v4(address: Ipv4Addr) -> bool {
    address.is_loopback() || address.is_unspecified() || address.is_link_local()
}

/// The IPv4 address to which a translator forwards.
fn translated(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [prefix @ .., high, low] = address.segments();
    let [[a, b], [c, d]] = [high, low].map(u16::to_be_bytes);
    (prefix == TRANSLATED).then(|| Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(address: &str, expected: bool) {
        assert_eq!(is_local_address(address.parse().unwrap()), expected, "{address}");
    }

    #[test]
    fn machine_link_and_metadata_are_local_in_every_form() {
        for address in [
            "127.0.0.1",
            "0.0.0.0",
            "169.254.169.254",
            "::1",
            "::",
            "fe80::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b::127.0.0.1",
            "fd00:ec2::254",
        ] {
            check(address, true);
        }
        for address in ["10.0.0.1", "192.0.2.1", "2001:db8::1", "64:ff9b::10.0.0.1", "fd00:ec2::255"] {
            check(address, false);
        }
    }
}
