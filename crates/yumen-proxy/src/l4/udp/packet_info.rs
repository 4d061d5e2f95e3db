//! Control messages with the local address of a datagram, as bytes: `IP_PKTINFO` of ip(7), `IPV6_PKTINFO` of
//! ipv6(7) and RFC 3542 §6.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Size of the buffer for control messages. An IPv4 datagram on an IPv6 socket has both kinds.
pub(super) const TOLD_BYTES_MAX: usize = 128;

/// Size of a `cmsghdr`: length with header, level, type. The next message is aligned to a machine word.
const HEADER_BYTES: usize = size_of::<usize>() + 2 * size_of::<libc::c_int>();
/// Size of an `in_pktinfo`: interface, local address, destination address of the IP header.
const V4_BYTES: usize = 12;
/// Size of an `in6_pktinfo`: address, interface.
const V6_BYTES: usize = 20;

/// Returns the local address that a datagram was sent to, with the port of the socket.
///
/// `None` without a control message, or if the address cannot be the source of a reply.
pub(super) fn destination(mut control: &[u8], port: u16) -> Option<SocketAddr> {
    let mut found = None;
    while let Some((level, kind, data, rest)) = next(control) {
        match (level, kind) {
            // `in_pktinfo` contains a local address even for a broadcast datagram.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let local = Ipv4Addr::from(*data.get(4..)?.first_chunk::<4>()?);
                return Some((local, port).into()).filter(can_answer);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let local = Ipv6Addr::from(*data.first_chunk::<16>()?);
                let interface = u32::from_ne_bytes(*data.get(16..)?.first_chunk()?);
                // Only link-local addresses need the interface as scope (RFC 4007 §6).
                let scope = if local.is_unicast_link_local() { interface } else { 0 };
                found = Some(SocketAddrV6::new(local, port, 0, scope).into()).filter(can_answer);
            }
            _ => {}
        }
        control = rest;
    }
    found
}

fn can_answer(local: &SocketAddr) -> bool {
    let ip = local.ip().to_canonical();
    !ip.is_unspecified() && !ip.is_multicast()
}

/// Splits off the first control message: level, type, data, rest.
fn next(control: &[u8]) -> Option<(libc::c_int, libc::c_int, &[u8], &[u8])> {
    let (length, level_and_kind) = control.split_first_chunk()?;
    let (level, kind) = level_and_kind.split_first_chunk()?;
    let kind = kind.first_chunk()?;
    let length = usize::from_ne_bytes(*length);
    let data = control.get(HEADER_BYTES..length)?;
    let rest = control.get(length.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
    Some((libc::c_int::from_ne_bytes(*level), libc::c_int::from_ne_bytes(*kind), data, rest))
}

/// The control message that sets the source address of a datagram.
pub(super) struct Source {
    bytes: [u8; (HEADER_BYTES + V6_BYTES).next_multiple_of(size_of::<usize>())],
    length: usize,
}

impl Source {
    pub(super) fn new(local: SocketAddr) -> Source {
        match local {
            SocketAddr::V4(local) => {
                let mut data = [0; V4_BYTES];
                data[4..8].copy_from_slice(&local.ip().octets());
                Source::message(libc::IPPROTO_IP, libc::IP_PKTINFO, &data)
            }
            SocketAddr::V6(local) => {
                let mut data = [0; V6_BYTES];
                data[..16].copy_from_slice(&local.ip().octets());
                data[16..].copy_from_slice(&local.scope_id().to_ne_bytes());
                Source::message(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data)
            }
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn message(level: libc::c_int, kind: libc::c_int, data: &[u8]) -> Source {
        let mut source = Source { bytes: [0; _], length: 0 };
        let length = HEADER_BYTES + data.len();
        for piece in [&length.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes(), data] {
            source.bytes[source.length..][..piece.len()].copy_from_slice(piece);
            source.length += piece.len();
        }
        source.length = length.next_multiple_of(size_of::<usize>());
        source
    }
}

#[cfg(test)]
mod tests;
