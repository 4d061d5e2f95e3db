//! The UDP socket of a listener. If it is bound to all addresses, the kernel reports the destination address
//! of each datagram, and replies are sent from that address.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsFd;

use socket2::{MsgHdr, SockAddr, SockRef};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::packet_info::{self, CONTROL_BYTES_MAX, Source};
use crate::sys;

/// The two addresses of a UDP session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct UdpAddresses {
    /// The client address.
    pub peer: SocketAddr,
    /// The local address that the client sends to.
    pub local: SocketAddr,
}

/// The socket towards the clients.
pub(crate) struct UdpListenSocket {
    socket: UdpSocket,
    bound: SocketAddr,
}

impl UdpListenSocket {
    /// Registers a bound socket with the reactor.
    pub(crate) fn open(socket: std::net::UdpSocket) -> io::Result<UdpListenSocket> {
        let bound = socket.local_addr()?;
        let listen_socket = UdpListenSocket { bound, socket: UdpSocket::from_std(socket)? };
        if listen_socket.has_all_addresses() {
            sys::enable_packet_info(listen_socket.socket.as_fd(), bound.is_ipv6())?;
        }
        Ok(listen_socket)
    }

    fn has_all_addresses(&self) -> bool {
        self.bound.ip().is_unspecified()
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    /// Receives a datagram without waiting. Returns its length and its addresses.
    pub(super) fn try_receive(&self, room: &mut [u8]) -> io::Result<(usize, UdpAddresses)> {
        if !self.has_all_addresses() {
            let (count, peer) = self.socket.try_recv_from(room)?;
            return Ok((count, UdpAddresses { peer, local: self.bound }));
        }
        let mut control = [0; CONTROL_BYTES_MAX];
        let received = self
            .socket
            .try_io(Interest::READABLE, || sys::receive_message(self.socket.as_fd(), room, &mut control))?;
        let peer = received.peer.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        let control = control.get(..received.control_bytes).unwrap_or_default();
        let local = packet_info::destination(control, self.bound.port()).unwrap_or(self.bound);
        Ok((received.bytes, UdpAddresses { peer, local }))
    }

    /// Sends a datagram from the address that the client uses.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the send buffer is full; the datagram is then not sent.
    pub(super) fn try_send(&self, datagram: &[u8], pair: UdpAddresses) -> io::Result<usize> {
        // Without a control message, the kernel uses the bound address, and the call is cheaper.
        if pair.local == self.bound {
            return self.socket.try_send_to(datagram, pair.peer);
        }
        let (peer, source, data) =
            (SockAddr::from(pair.peer), Source::new(pair.local), [IoSlice::new(datagram)]);
        let message = MsgHdr::new().with_addr(&peer).with_buffers(&data).with_control(source.bytes());
        self.socket.try_io(Interest::WRITABLE, || SockRef::from(&self.socket).sendmsg(&message, 0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::l4::udp::bind_one;

    /// Sends a datagram to a socket before the socket is opened, and returns the local address that is received with it.
    async fn local_of_early_datagram(bound: &str, destination: &str) -> SocketAddr {
        let socket = bind_one(bound.parse().unwrap()).unwrap();
        let destination = SocketAddr::new(destination.parse().unwrap(), socket.local_addr().unwrap().port());
        let client = std::net::UdpSocket::bind(SocketAddr::new(destination.ip(), 0)).unwrap();
        client.send_to(b"x", destination).unwrap();
        let listen_socket = UdpListenSocket::open(socket).unwrap();
        tokio::time::timeout(Duration::from_secs(10), listen_socket.readable()).await.unwrap().unwrap();
        let (count, pair) = listen_socket.try_receive(&mut [0; 8]).unwrap();
        assert_eq!((count, pair.peer.port()), (1, client.local_addr().unwrap().port()));
        assert_eq!(pair.local.port(), destination.port());
        pair.local
    }

    #[tokio::test]
    async fn a_datagram_that_arrives_before_the_socket_is_opened_has_its_local_address() {
        for (bound, destination) in [
            ("0.0.0.0:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.2"),
            ("[::]:0", "127.0.0.2"),
            ("[::]:0", "::1"),
            ("127.0.0.2:0", "127.0.0.2"),
        ] {
            let local = local_of_early_datagram(bound, destination).await;
            assert_eq!(local.ip().to_canonical().to_string(), destination, "{bound}");
        }
    }
}
