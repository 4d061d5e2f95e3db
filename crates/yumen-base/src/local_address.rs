//! Addresses of the machine itself and of its link.

use std::net::IpAddr;

/// Whether an address is loopback (RFC 1122 §3.2.1.3, RFC 4291 §2.5.3), link-local (RFC 3927, RFC 4291 §2.5.6) or
/// unspecified, also as an IPv4-mapped one.
pub fn is_local_address(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    address.is_loopback() || address.is_unspecified() || is_link_local
}
