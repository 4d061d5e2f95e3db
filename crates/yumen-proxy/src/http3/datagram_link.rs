//! What two processes pass to each other of one socket: datagrams for the connections of the one that was taken
//! over from.
//!
//! Knows how a datagram travels with where it came from; knows no connection.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use quinn::udp::{EcnCodepoint, RecvMeta};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

/// Addresses and marks before the datagram: the peer's address and port, the local address, the mark.
const HEAD_BYTES: usize = 16 + 2 + 1 + 16 + 1;
/// No datagram is longer.
const DATAGRAM_BYTES_MAX: usize = 65_536;

/// A datagram that came elsewhere than where it is for.
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

    /// What the peer sent.
    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    /// Puts it where the library looks for what was received.
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

/// Leads to a process before.
pub struct DatagramForwarder {
    /// Of that process.
    pub generation: u8,
    /// The end to send into.
    pub end: OwnedFd,
}

impl DatagramForwarder {
    /// Passes a datagram on; whether anybody is there. One that does not fit in is lost, as on any network.
    pub(super) fn send(&self, data: &[u8], meta: &RecvMeta) -> bool {
        let head = head(meta);
        let (flags, pieces) =
            (SendFlags::DONTWAIT | SendFlags::NOSIGNAL, [IoSlice::new(&head), IoSlice::new(data)]);
        let sent = rustix::net::sendmsg(&self.end, &pieces, &mut SendAncillaryBuffer::default(), flags);
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
    // Which of the two notations of an address is meant, the sockets know: one of the old kind is written as
    // one of the new, and both are told apart by this bit.
    head[18] |= u8::from(meta.addr.is_ipv4()) << 1;
    head
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Comes from the process that took over.
pub(super) struct DatagramReceiver {
    pipe: OwnedFd,
    room: Vec<u8>,
}

impl DatagramReceiver {
    pub(super) fn new(pipe: OwnedFd) -> DatagramReceiver {
        DatagramReceiver { pipe, room: vec![0; HEAD_BYTES + DATAGRAM_BYTES_MAX] }
    }

    /// Waits for a datagram; `None` when no more will come.
    pub(super) fn take(&mut self) -> Option<ForwardedDatagram> {
        loop {
            match rustix::net::recv(&self.pipe, &mut self.room[..], RecvFlags::empty()) {
                Ok((0, _)) => return None,
                Ok((count, _)) => {
                    if let Some(handed) = read(&self.room[..count]) {
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
