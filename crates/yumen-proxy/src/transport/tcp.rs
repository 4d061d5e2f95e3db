//! TCP connections that register with the reactor only when an operation would block.
//!
//! This file owns the socket state and its failure. It must not know TLS or HTTP.

use std::io::{self, IoSlice, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop;

use crate::runtime::buffer::{Buffers, Inbox};

/// A TCP connection.
///
/// An accepted connection is read before registration: with deferred accept its request has already arrived,
/// and an exchange that never waits costs no registration.
pub(crate) struct TcpConnection {
    socket: TcpState,
    /// The error of a failed write. Linux reports the error of a socket once, to the first call; later reads
    /// return 0 as at a regular end.
    failure: Option<io::ErrorKind>,
    /// Bytes written through `AsyncWrite`, which the TLS layer uses.
    taken_bytes: u64,
}

enum TcpState {
    /// Not registered with the reactor.
    Fresh(UnregisteredTcp),
    /// Registered with the reactor.
    Registered(TcpStream),
    /// Placeholder during a move; operations fail with `NotConnected`.
    Moving,
    /// One end of an in-memory connection of the simulation.
    #[cfg(test)]
    Memory(crate::simulation::net::End),
}

/// A connection that is not registered with the reactor.
struct UnregisteredTcp {
    stream: std::net::TcpStream,
    /// Whether a write has succeeded; its segment has acknowledged the received data.
    has_answered: bool,
}

impl From<TcpState> for TcpConnection {
    fn from(socket: TcpState) -> TcpConnection {
        TcpConnection { socket, failure: None, taken_bytes: 0 }
    }
}

impl TcpConnection {
    /// Wraps an accepted, non-blocking socket.
    pub(crate) fn fresh(stream: std::net::TcpStream) -> TcpConnection {
        TcpState::Fresh(UnregisteredTcp { stream, has_answered: false }).into()
    }

    /// Creates the placeholder for a connection that was moved away.
    pub(crate) fn moving() -> TcpConnection {
        TcpState::Moving.into()
    }

    /// Wraps one end of an in-memory connection of the simulation.
    #[cfg(test)]
    pub(crate) fn memory(end: crate::simulation::net::End) -> TcpConnection {
        TcpState::Memory(end).into()
    }

    /// Connects to an endpoint with TCP_NODELAY.
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<TcpConnection> {
        #[cfg(test)]
        if let Some(connecting) = crate::simulation::net::connect(address) {
            return connecting.await.map(TcpConnection::memory);
        }
        let stream = TcpStream::connect(address).await?;
        // A failure only adds latency.
        let _ = stream.set_nodelay(true);
        Ok(TcpState::Registered(stream).into())
    }

    pub(crate) fn register(&mut self) -> io::Result<&mut TcpStream> {
        if let TcpState::Fresh(_) = self.socket {
            let taken = std::mem::replace(&mut self.socket, TcpState::Moving);
            let TcpState::Fresh(UnregisteredTcp { stream, has_answered }) = taken else {
                return Err(io::ErrorKind::NotConnected.into());
            };
            // Deferred accept has delayed the acknowledgement, and the peer may wait for it before it sends
            // the rest.
            if !has_answered {
                acknowledge(stream.as_fd());
            }
            self.socket = TcpState::Registered(TcpStream::from_std(stream)?);
        }
        match &mut self.socket {
            TcpState::Registered(stream) => Ok(stream),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    pub(crate) fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.socket {
            TcpState::Fresh(fresh) => Ok(fresh.stream.as_fd()),
            TcpState::Registered(stream) => Ok(stream.as_fd()),
            TcpState::Moving => Err(io::ErrorKind::NotConnected.into()),
            #[cfg(test)]
            TcpState::Memory(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Stores the error of a failed write. EPIPE is excluded: the peer's FIN had arrived earlier, so the data
    /// up to it is complete.
    #[cold]
    pub(crate) fn note_failure(&mut self, kind: io::ErrorKind) {
        if kind != io::ErrorKind::BrokenPipe {
            self.failure.get_or_insert(kind);
        }
    }

    /// Returns the number of bytes written through `AsyncWrite`.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// Returns the result of a read of 0 bytes: the stored error of a write, else the end of the stream.
    pub(crate) fn end_of_reading(&self) -> io::Result<usize> {
        self.failure.map_or(Ok(0), |kind| Err(kind.into()))
    }

    #[inline]
    fn read(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let stream = match &mut self.socket {
            TcpState::Registered(stream) => stream,
            TcpState::Moving => return Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
            #[cfg(test)]
            TcpState::Memory(end) => return end.poll_read(cx, room),
            TcpState::Fresh(fresh) => match fresh.stream.read(room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.register()?,
                done => return Poll::Ready(done),
            },
        };
        let mut buffer = ReadBuf::new(room);
        ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Reads at most `bytes_max` bytes into an inbox, which allocates a buffer only when data is available.
    pub(crate) fn fill(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        buffers: &Buffers,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        #[cfg(test)]
        if let TcpState::Memory(end) = &self.socket {
            let room = inbox.spare_capacity(bytes_max, buffers);
            let room_bytes = room.len().min(bytes_max);
            return match ready!(end.poll_read(cx, &mut room[..room_bytes])) {
                Ok(0) => Poll::Ready(self.end_of_reading()),
                read => Poll::Ready(read),
            };
        }
        loop {
            // `poll_read_ready` also enforces the task budget, which a direct receive bypasses.
            if let TcpState::Registered(stream) = &self.socket
                && (has_nothing_to_read(stream) || !coop::has_budget_remaining())
            {
                ready!(stream.poll_read_ready(cx))?;
            }
            let room = inbox.spare_capacity(bytes_max, buffers);
            let room_bytes = room.len().min(bytes_max);
            match self.receive(&mut room[..room_bytes]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => drop(self.register()?),
                done => {
                    // Without this, a peer that always has data ready would occupy the worker.
                    if matches!(done, Ok(count) if count == room_bytes)
                        && let Poll::Ready(turn) = coop::poll_proceed(cx)
                    {
                        turn.made_progress();
                    }
                    return Poll::Ready(done);
                }
            }
        }
    }

    /// Receives the available bytes.
    ///
    /// A read that does not fill `room` has drained the socket. `WouldBlock` then clears the readiness in the
    /// reactor, which saves the recv(2) that would return EAGAIN.
    fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        let fd = self.fd()?;
        let TcpState::Registered(stream) = &self.socket else {
            let count = rustix::net::recv(fd, room, RecvFlags::empty())?.0;
            return if count == 0 { self.end_of_reading() } else { Ok(count) };
        };
        let mut short = None;
        let full = stream.try_io(Interest::READABLE, || {
            let (count, _) = rustix::net::recv(fd, &mut *room, RecvFlags::empty())?;
            match count {
                0 => return self.end_of_reading(),
                count if count == room.len() => return Ok(count),
                _ => {}
            }
            short = Some(count);
            Err(io::ErrorKind::WouldBlock.into())
        });
        short.map_or(full, Ok)
    }

    pub(crate) fn write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = ready!(self.write_some(cx, slices));
        if let Err(error) = &written {
            self.note_failure(error.kind());
        }
        Poll::Ready(written)
    }

    #[inline(always)]
    fn write_some(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        #[cfg(test)]
        if let TcpState::Memory(end) = &self.socket {
            return end.poll_write(cx, slices);
        }
        // The send buffer usually has space, so a rare EAGAIN costs less than a readiness check for each
        // write.
        match send(self.fd()?, slices, SendFlags::empty()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => {
                // The segment carries the acknowledgement, so registration need not send one.
                if let TcpState::Fresh(fresh) = &mut self.socket {
                    fresh.has_answered = true;
                }
                return Poll::Ready(done);
            }
        }
        let stream = Pin::new(self.register()?);
        match slices {
            [one] => stream.poll_write(cx, one),
            many => stream.poll_write_vectored(cx, many),
        }
    }

    /// Waits for the first byte and peeks at it; `None` is the end of the stream.
    pub(crate) fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<u8>>> {
        #[cfg(test)]
        if let TcpState::Memory(_) = self.socket {
            return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
        }
        loop {
            let mut first = [0_u8; 1];
            let mut peek = |fd: BorrowedFd<'_>| Ok(rustix::net::recv(fd, &mut first, RecvFlags::PEEK)?.0);
            let peeked = match &mut self.socket {
                TcpState::Registered(stream) => {
                    ready!(stream.poll_read_ready(cx))?;
                    stream.try_io(Interest::READABLE, || peek(stream.as_fd()))
                }
                _ => peek(self.fd()?),
            };
            match peeked {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => drop(self.register()?),
                done => return Poll::Ready(done.map(|count| (count > 0).then_some(first[0]))),
            }
        }
    }

    /// Whether the last read found no data and none has arrived since. The task of that read is still
    /// registered as the waker.
    #[inline]
    pub(crate) fn is_asleep(&self) -> bool {
        matches!(&self.socket, TcpState::Registered(stream) if has_nothing_to_read(stream))
    }

    /// Acknowledges received data immediately, until data is sent to the peer.
    pub(crate) fn acknowledge(&self) {
        self.fd().into_iter().for_each(acknowledge);
    }

    /// Whether nothing has arrived on an idle connection, not even FIN. Costs no system call, since the
    /// reactor has the readiness.
    pub(crate) fn is_quiet(&self) -> bool {
        match &self.socket {
            TcpState::Registered(stream) => has_nothing_to_read(stream),
            #[cfg(test)]
            TcpState::Memory(end) => end.is_quiet(),
            // Without registration, the readiness is unknown.
            _ => false,
        }
    }

    /// Sets TCP_USER_TIMEOUT: the connection fails when sent data stays unacknowledged for `silence_ms`
    /// milliseconds. 0 selects the default of the system.
    pub(crate) fn break_after(&self, silence_ms: u64) {
        if let Ok(fd) = self.fd() {
            // If this fails, the loss of the peer's host is detected later.
            let _ = rustix::net::sockopt::set_tcp_user_timeout(fd, u32::try_from(silence_ms).unwrap_or(0));
        }
    }

    /// Returns the peer address while the socket is connected.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        rustix::net::getpeername(self.fd().ok()?).ok()??.try_into().ok()
    }

    /// Whether the peer has sent FIN or RST, even if unread bytes precede it.
    pub(crate) fn has_left(&self) -> bool {
        let Ok(fd) = self.fd() else { return false };
        let mut looked_at = [PollFd::new(&fd, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut looked_at, Some(&at_once)).is_ok_and(|count| count > 0)
    }

    /// Returns the number of sent bytes that the peer has not acknowledged; 0 if unknown.
    pub(crate) fn unacknowledged_bytes(&self) -> usize {
        self.fd().and_then(crate::sys::unacknowledged_bytes).unwrap_or(0)
    }

    /// Whether no sent data is in flight: the peer has acknowledged it, or the connection has failed.
    pub(crate) fn is_settled(&self) -> bool {
        let Ok(fd) = self.fd() else { return true };
        if self.unacknowledged_bytes() == 0 {
            return true;
        }
        // poll(2) reports POLLERR and POLLHUP without a request.
        let mut looked_at = [PollFd::new(&fd, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut looked_at, Some(&at_once)).is_ok_and(|count| count > 0)
    }

    /// Shuts down the writing side.
    pub(crate) fn end(&self) -> io::Result<()> {
        #[cfg(test)]
        if let TcpState::Memory(end) = &self.socket {
            return end.shutdown();
        }
        Ok(rustix::net::shutdown(self.fd()?, Shutdown::Write)?)
    }

    /// Makes the next close send RST, so that the peer does not mistake it for the end of a body.
    pub(crate) fn reset_on_close(&self) {
        #[cfg(test)]
        if let TcpState::Memory(end) = &self.socket {
            return end.reset();
        }
        if let Ok(fd) = self.fd() {
            // If this fails, the connection closes with FIN.
            let _ = rustix::net::sockopt::set_socket_linger(fd, Some(std::time::Duration::ZERO));
        }
    }

    /// Sends without a readiness check, with MSG_MORE: the last segment waits for the close that follows.
    pub(crate) fn send_with_more(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        #[cfg(test)]
        if let TcpState::Memory(end) = &self.socket {
            return end.try_write(slices);
        }
        send(self.fd()?, slices, SendFlags::MORE)
    }
}

/// Sends the acknowledgement now: the peer may wait for it before it sends the rest (delayed acknowledgements
/// and the Nagle algorithm, RFC 9293 §3.7.4).
#[cold]
fn acknowledge(fd: BorrowedFd<'_>) {
    // If this fails, the delayed acknowledgement follows after about 40 ms.
    let _ = rustix::net::sockopt::set_tcp_quickack(fd, true);
}

/// Whether the reactor has recorded no readable data. Cheaper than a poll, which would also store a waker.
#[inline]
fn has_nothing_to_read(stream: &TcpStream) -> bool {
    stream.try_io(Interest::READABLE, || Ok(())).is_err()
}

/// Sends on a non-blocking socket without raising SIGPIPE.
fn send(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>], flags: SendFlags) -> io::Result<usize> {
    let flags = flags | SendFlags::NOSIGNAL;
    let sent = match slices {
        [one] => rustix::net::send(fd, one, flags),
        many => rustix::net::sendmsg(fd, many, &mut SendAncillaryBuffer::default(), flags),
    };
    sent.map_err(io::Error::from)
}

impl AsyncRead for TcpConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (tcp, before) = (self.get_mut(), buffer.filled().len());
        if let TcpState::Registered(stream) = &mut tcp.socket {
            // The tokio stream reads into uninitialized space, which need not be cleared.
            ready!(Pin::new(stream).poll_read(cx, buffer))?;
        } else {
            let count = ready!(tcp.read(cx, buffer.initialize_unfilled()))?;
            buffer.advance(count);
        }
        if buffer.filled().len() == before {
            tcp.end_of_reading()?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TcpConnection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let tcp = self.get_mut();
        let taken = ready!(tcp.write(cx, slices))?;
        tcp.taken_bytes += taken as u64;
        Poll::Ready(Ok(taken))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_breaks_after_so_much_silence() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpConnection::fresh(std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let user_timeout =
            |tcp: &TcpConnection| rustix::net::sockopt::tcp_user_timeout(tcp.fd().unwrap()).unwrap();
        tcp.break_after(60_000);
        assert_eq!(user_timeout(&tcp), 60_000);
        // Values beyond the range of the socket option select the default of the system.
        tcp.break_after(u64::MAX);
        assert_eq!(user_timeout(&tcp), 0);
    }

    /// Reads after a failed write. The peer sends one byte, then FIN if `ends`, then RST.
    fn end_behind_a_failed_write(ends: bool) -> io::Result<usize> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let (mut tcp, mut peer) = (TcpConnection::fresh(stream), listener.accept().unwrap().0);
        io::Write::write_all(&mut peer, b"x").unwrap();
        if ends {
            peer.shutdown(std::net::Shutdown::Write).unwrap();
        }
        rustix::net::sockopt::set_socket_linger(&peer, Some(std::time::Duration::ZERO)).unwrap();
        drop(peer);
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        assert!(matches!(tcp.write(cx, &[IoSlice::new(b"y")]), Poll::Ready(Err(_))));
        let mut read = || {
            let mut room = [0; 8];
            let mut buffer = ReadBuf::new(&mut room);
            let Poll::Ready(read) = Pin::new(&mut tcp).poll_read(cx, &mut buffer) else { panic!("it waits") };
            read.map(|()| buffer.filled().len())
        };
        assert_eq!(read().unwrap(), 1, "what came before stays");
        read()
    }

    #[test]
    fn reset_seen_by_a_write_is_not_a_clean_end() {
        let end = end_behind_a_failed_write(false);
        assert_eq!(end.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
        // A RST after the FIN does not affect the data before the FIN.
        assert_eq!(end_behind_a_failed_write(true).unwrap(), 0);
    }
}
