//! What the kernel tells beside a datagram of where it was sent to, and is told of where one is to be sent from
//! (`IP_PKTINFO` of ip(7), `IPV6_PKTINFO` of ipv6(7) and RFC 3542 §6), as bytes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Room for all that is told of one datagram: that of a client of IPv4 on a socket of IPv6 has both kinds.
pub(super) const TOLD_BYTES_MAX: usize = 128;

/// A `cmsghdr`: its length, header included, in a word; level; type. What follows begins at a multiple of a word.
const HEADER_BYTES: usize = size_of::<usize>() + 2 * size_of::<libc::c_int>();
/// An `in_pktinfo`: interface, local address, address in the datagram's header.
const V4_BYTES: usize = 12;
/// An `in6_pktinfo`: address, interface.
const V6_BYTES: usize = 20;

/// The address of this host that a datagram was sent to, with the port of its socket; none where nothing was told of
/// it, or nothing that could be answered from.
pub(super) fn destination(mut told: &[u8], port: u16) -> Option<SocketAddr> {
    let mut found = None;
    while let Some((level, kind, data, rest)) = next(told) {
        match (level, kind) {
            // That of IPv4 names a local address even where the datagram was sent to all hosts of a network.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let local = Ipv4Addr::from(*data.get(4..)?.first_chunk::<4>()?);
                return Some((local, port).into()).filter(can_answer);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let local = Ipv6Addr::from(*data.first_chunk::<16>()?);
                let interface = u32::from_ne_bytes(*data.get(16..)?.first_chunk()?);
                // Only within a link an address means nothing without its interface.
                let scope = if local.is_unicast_link_local() { interface } else { 0 };
                found = Some(SocketAddrV6::new(local, port, 0, scope).into()).filter(can_answer);
            }
            _ => {}
        }
        told = rest;
    }
    found
}

fn can_answer(local: &SocketAddr) -> bool {
    let ip = local.ip().to_canonical();
    !ip.is_unspecified() && !ip.is_multicast()
}

/// One message, and those behind it.
fn next(told: &[u8]) -> Option<(libc::c_int, libc::c_int, &[u8], &[u8])> {
    let (length, level_and_kind) = told.split_first_chunk()?;
    let (level, kind) = level_and_kind.split_first_chunk()?;
    let kind = kind.first_chunk()?;
    let length = usize::from_ne_bytes(*length);
    let data = told.get(HEADER_BYTES..length)?;
    let rest = told.get(length.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
    Some((libc::c_int::from_ne_bytes(*level), libc::c_int::from_ne_bytes(*kind), data, rest))
}

/// What is told to the kernel of where a datagram is to be sent from.
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
