//! The socket that clients' datagrams come in by. One bound to all addresses of the host is told of each datagram to
//! which of them it was sent, so that the answer leaves from there.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsFd;

use socket2::{MsgHdr, SockAddr, SockRef};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::packet_info::{self, Source, TOLD_BYTES_MAX};
use crate::sys;

/// Between whom datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    /// The client's address.
    pub peer: SocketAddr,
    /// The address it sent to.
    pub local: SocketAddr,
}

/// A socket that clients send to.
pub(super) struct Front {
    socket: UdpSocket,
    bound: SocketAddr,
}

impl Front {
    /// Registers a socket, wherever it was bound.
    pub(super) fn open(socket: std::net::UdpSocket) -> io::Result<Front> {
        let bound = socket.local_addr()?;
        let front = Front { bound, socket: UdpSocket::from_std(socket)? };
        if front.has_all_addresses() {
            sys::enable_packet_info(front.socket.as_fd(), bound.is_ipv6())?;
        }
        Ok(front)
    }

    fn has_all_addresses(&self) -> bool {
        self.bound.ip().is_unspecified()
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    /// Reads a datagram, if one is there, and says how long it is and between whom it went.
    pub(super) fn try_receive(&self, room: &mut [u8]) -> io::Result<(usize, Pair)> {
        if !self.has_all_addresses() {
            let (count, peer) = self.socket.try_recv_from(room)?;
            return Ok((count, Pair { peer, local: self.bound }));
        }
        let mut told = [0; TOLD_BYTES_MAX];
        let received = self
            .socket
            .try_io(Interest::READABLE, || sys::receive_message(self.socket.as_fd(), room, &mut told))?;
        let peer = received.peer.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        let told = told.get(..received.control_bytes).unwrap_or_default();
        let local = packet_info::destination(told, self.bound.port()).unwrap_or(self.bound);
        Ok((received.bytes, Pair { peer, local }))
    }

    /// Sends a datagram to a client from the address that it knows; what there is no room for is not sent.
    pub(super) fn try_send(&self, datagram: &[u8], pair: Pair) -> io::Result<usize> {
        if pair.local == self.bound {
            return self.socket.try_send_to(datagram, pair.peer);
        }
        let (peer, source, data) =
            (SockAddr::from(pair.peer), Source::new(pair.local), [IoSlice::new(datagram)]);
        let message = MsgHdr::new().with_addr(&peer).with_buffers(&data).with_control(source.bytes());
        self.socket.try_io(Interest::WRITABLE, || SockRef::from(&self.socket).sendmsg(&message, 0))
    }
}
