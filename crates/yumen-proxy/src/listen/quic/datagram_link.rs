//! Link between predecessor and successor of one socket: carries datagrams for connections of the
//! predecessor.
//!
//! Owns the encoding of a datagram with its addresses. Must not depend on connections.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use quinn::udp::{EcnCodepoint, RecvMeta};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

/// Length of the prefix: peer address and port, flags, local address, ECN.
const HEAD_BYTES: usize = 16 + 2 + 1 + 16 + 1;
/// Upper bound of a datagram, in bytes.
const DATAGRAM_BYTES_MAX: usize = 65_536;

/// A datagram that another endpoint or process received.
pub(super) struct ForwardedDatagram {
    data: Box<[u8]>,
    peer: SocketAddr,
    ecn: Option<EcnCodepoint>,
    local: Option<IpAddr>,
}

impl ForwardedDatagram {
    pub(super) fn new(data: &[u8], meta: &RecvMeta) -> ForwardedDatagram {
        ForwardedDatagram { data: data.into(), peer: meta.addr, ecn: meta.ecn, local: meta.dst_ip }
    }

    /// Payload of the datagram.
    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    /// Copies the datagram into a receive buffer of the library.
    pub(super) fn put(&self, room: &mut [u8], meta: &mut RecvMeta) {
        let len = self.data.len().min(room.len());
        room[..len].copy_from_slice(&self.data[..len]);
        *meta = received(len, self.peer, self.ecn, self.local);
    }
}

fn received(len: usize, peer: SocketAddr, ecn: Option<EcnCodepoint>, local: Option<IpAddr>) -> RecvMeta {
    let mut meta = RecvMeta::default();
    (meta.addr, meta.len, meta.stride) = (peer, len, len.max(1));
    (meta.ecn, meta.dst_ip) = (ecn, local);
    meta
}

/// Sending end of the link to the predecessor.
pub struct DatagramForwarder(OwnedFd);

impl DatagramForwarder {
    /// Forwarder that sends on this socket.
    pub fn new(socket: OwnedFd) -> DatagramForwarder {
        DatagramForwarder(socket)
    }

    /// Sends a datagram; false if the predecessor has ended. A full socket buffer loses the datagram, as UDP
    /// permits.
    pub(super) fn send(&self, data: &[u8], meta: &RecvMeta) -> bool {
        let head = head(meta);
        let (flags, pieces) =
            (SendFlags::DONTWAIT | SendFlags::NOSIGNAL, [IoSlice::new(&head), IoSlice::new(data)]);
        let sent = rustix::net::sendmsg(&self.0, &pieces, &mut SendAncillaryBuffer::default(), flags);
        !matches!(sent, Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN))
    }
}

fn head(meta: &RecvMeta) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..16].copy_from_slice(&octets(meta.addr.ip()));
    head[16..18].copy_from_slice(&meta.addr.port().to_be_bytes());
    if let Some(local) = meta.dst_ip {
        head[18] = 1;
        head[19..35].copy_from_slice(&octets(local));
    }
    head[35] = meta.ecn.map_or(0, |ecn| ecn as u8);
    // Addresses are encoded as IPv6. This bit restores IPv4, because the socket distinguishes IPv4 from
    // mapped addresses.
    head[18] |= u8::from(meta.addr.is_ipv4()) << 1;
    head
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Receiving end of a link, in the predecessor.
pub(super) struct DatagramReceiver {
    pipe: OwnedFd,
    room: Vec<u8>,
}

impl DatagramReceiver {
    pub(super) fn new(pipe: OwnedFd) -> DatagramReceiver {
        DatagramReceiver { pipe, room: vec![0; HEAD_BYTES + DATAGRAM_BYTES_MAX] }
    }

    /// Waits for a datagram; `None` when the link is closed.
    pub(super) fn take(&mut self) -> Option<ForwardedDatagram> {
        loop {
            match rustix::net::recv(&self.pipe, &mut self.room[..], RecvFlags::empty()) {
                // A message has at least [`HEAD_BYTES`], so zero bytes mean the end of the link.
                Ok((0, _)) => return None,
                Ok((count, _)) => {
                    if let Some(handed) = read(&self.room[..count]) {
                        // A message that does not decode counts as a lost datagram, as UDP permits.
                        return Some(handed);
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

fn read(message: &[u8]) -> Option<ForwardedDatagram> {
    let (head, data) = message.split_first_chunk::<HEAD_BYTES>()?;
    let is_old = head[18] & 2 != 0;
    let ip = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 16] = head[at..at + 16].try_into().ok()?;
        let ip = Ipv6Addr::from(octets);
        Some(if is_old { ip.to_ipv4_mapped()?.into() } else { ip.into() })
    };
    let local = if head[18] & 1 != 0 { ip(19) } else { None };
    let peer = SocketAddr::new(ip(0)?, u16::from_be_bytes([head[16], head[17]]));
    Some(ForwardedDatagram { data: data.into(), peer, ecn: EcnCodepoint::from_bits(head[35]), local })
}

#[cfg(test)]
mod tests;
