//! Byte streams of both sides: TCP, TLS over it, and streams of connections that carry many.

mod records;
mod shared;

use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::buffer::{Buffers, Inbox};
use crate::http2::Http2Duplex;
use crate::http3;
use crate::tcp::TcpConnection;
use crate::timers::Timers;
use crate::tls;
pub(crate) use records::RecordStream;
pub(crate) use shared::HeadSent;

/// How often it is looked whether a peer has what was sent to it, in milliseconds.
const SETTLE_LOOK_MS: u64 = 10;

/// A stream of either side.
pub(crate) enum TransportStream {
    /// One of many on a connection of HTTP/2: its bytes are a body's, and heads go beside them.
    Http2(Box<Http2Duplex>),
    /// The same of HTTP/3.
    Http3(Box<http3::Http3Duplex>),
    Tcp(TcpConnection),
    Accepted(Box<tokio_rustls::server::TlsStream<TcpConnection>>),
    Connected(Box<tokio_rustls::client::TlsStream<RecordStream>>),
}

impl TransportStream {
    /// Takes it, leaving one in its place that is not connected.
    pub(crate) fn take(&mut self) -> TransportStream {
        std::mem::replace(self, TransportStream::Tcp(TcpConnection::moving()))
    }

    /// Reads into an inbox and says how much; 0 is the peer's end. While it waits the inbox may hold an
    /// empty buffer: the caller parks it.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        buffers: &Buffers,
    ) -> Poll<io::Result<usize>> {
        self.poll_fill_some(cx, inbox, buffers, usize::MAX)
    }

    /// The same, and no more than so many bytes.
    pub(crate) fn poll_fill_some(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        buffers: &Buffers,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        let count = match self {
            TransportStream::Tcp(tcp) => ready!(tcp.fill(cx, inbox, buffers, bytes_max))?,
            TransportStream::Accepted(tls) => {
                ready!(read_tls(Pin::new(tls), cx, some_room(inbox, buffers, bytes_max)))?
            }
            TransportStream::Connected(tls) => {
                let mut room = ReadBuf::new(some_room(inbox, buffers, bytes_max));
                ready!(read_connected(tls, cx, &mut room))?;
                room.filled().len()
            }
            TransportStream::Http2(duplex) => return duplex.poll_fill(cx, inbox, buffers, bytes_max),
            TransportStream::Http3(duplex) => return duplex.poll_fill(cx, inbox, buffers, bytes_max),
        };
        inbox.filled(count);
        Poll::Ready(Ok(count))
    }

    /// Bytes that the peer has sent on a shared connection and that were not taken.
    pub(crate) fn unread_bytes(&mut self) -> usize {
        match self {
            TransportStream::Http2(duplex) => duplex.unread_bytes(),
            TransportStream::Http3(duplex) => duplex.unread_bytes(),
            _ => 0,
        }
    }

    /// The most that a TLS session holds for a socket that takes nothing: the bound of rustls.
    pub(crate) fn session_bytes(&self) -> usize {
        match self {
            TransportStream::Accepted(_) | TransportStream::Connected(_) => 64 * 1024,
            _ => 0,
        }
    }

    /// Writes some of the slices, in order.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            TransportStream::Tcp(tcp) => tcp.write(cx, slices),
            TransportStream::Accepted(tls) => Pin::new(tls).poll_write_vectored(cx, slices),
            TransportStream::Connected(tls) => Pin::new(tls).poll_write_vectored(cx, slices),
            TransportStream::Http2(duplex) => duplex.poll_write(cx, slices),
            TransportStream::Http3(duplex) => duplex.poll_write(cx, slices),
        }
    }

    /// Writes the last bytes of a connection so that the end rides on them; the caller closes next.
    /// Writes nothing where that cannot be had at once.
    pub(crate) fn write_last(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            TransportStream::Tcp(tcp) => tcp.send_with_more(slices),
            TransportStream::Accepted(tls) => write_last_of_tls(tls, slices),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Pushes out what TLS holds back.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            TransportStream::Tcp(_) | TransportStream::Http2(_) | TransportStream::Http3(_) => {
                Poll::Ready(Ok(()))
            }
            TransportStream::Accepted(tls) => Pin::new(tls).poll_flush(cx),
            TransportStream::Connected(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    /// How much the socket has taken of what TLS gave it; 0 of a stream without.
    pub(crate) fn taken_bytes(&self) -> u64 {
        match self {
            TransportStream::Tcp(_) => 0,
            _ => self.tcp().map_or(0, TcpConnection::taken_bytes),
        }
    }

    /// Ends the writing side as a peer does that breaks off: after what was written, and without TLS' goodbye.
    pub(crate) fn poll_break_off(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            TransportStream::Accepted(_) | TransportStream::Connected(_) => ready!(self.poll_flush(cx))?,
            _ => return self.poll_shutdown(cx),
        }
        match self.tcp() {
            Some(tcp) => Poll::Ready(tcp.end()),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Waits until the peer has what was written, so that a reset takes nothing of it back; so many milliseconds at
    /// most.
    pub(crate) async fn settle(&mut self, timers: &Rc<Timers>, within_ms: u64) {
        let (timer, mut is_over) = (timers.timer(), false);
        timer.set(within_ms);
        poll_fn(|cx| match self.poll_flush(cx) {
            Poll::Pending if !timer.is_over(cx) => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
        while !is_over && self.tcp().is_some_and(|tcp| !tcp.is_settled()) {
            timers.clone().sleep(SETTLE_LOOK_MS).await;
            is_over = poll_fn(|cx| Poll::Ready(timer.is_over(cx))).await;
        }
    }

    /// Ends the writing side.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            TransportStream::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            TransportStream::Accepted(tls) => Pin::new(tls).poll_shutdown(cx),
            TransportStream::Connected(tls) => Pin::new(tls).poll_shutdown(cx),
            TransportStream::Http2(duplex) => Poll::Ready(duplex.finish(&[])),
            TransportStream::Http3(duplex) => Poll::Ready(duplex.finish(&[])),
        }
    }

    /// The protocol the handshake with a client settled on, if one did.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        match self {
            TransportStream::Accepted(tls) => tls.get_ref().1.alpn_protocol(),
            _ => None,
        }
    }

    /// The TCP connection underneath, of one that is not shared.
    pub(crate) fn tcp(&self) -> Option<&TcpConnection> {
        match self {
            TransportStream::Tcp(tcp) => Some(tcp),
            TransportStream::Accepted(tls) => Some(tls.get_ref().0),
            TransportStream::Connected(tls) => Some(tls.get_ref().0.tcp()),
            TransportStream::Http2(_) | TransportStream::Http3(_) => None,
        }
    }

    /// Whether it is a socket and nothing else.
    #[inline]
    pub(crate) fn is_socket(&self) -> bool {
        matches!(self, TransportStream::Tcp(_))
    }

    /// The connection, of a stream that is nothing but a socket.
    pub(crate) fn socket(&mut self) -> Option<&mut TcpConnection> {
        match self {
            TransportStream::Tcp(tcp) => tcp.register().is_ok().then_some(tcp),
            _ => None,
        }
    }

    /// Whether the peer has sent its end or broken off, be there more to read before that or not. Who shares a
    /// connection tells it otherwise: see [`TransportStream::given_up`].
    pub(crate) fn has_left(&self) -> bool {
        self.tcp().is_some_and(TcpConnection::has_left)
    }

    /// Reads into room of the caller's.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            TransportStream::Tcp(tcp) => Pin::new(tcp).poll_read(cx, room),
            TransportStream::Accepted(tls) => Pin::new(tls).poll_read(cx, room),
            TransportStream::Connected(tls) => read_connected(tls, cx, room),
            TransportStream::Http2(_) | TransportStream::Http3(_) => {
                Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
            }
        }
    }

    /// Whether a stream that had nothing to read when it was last asked has nothing still. Streams that may hold back
    /// something of their own never say so.
    #[inline]
    pub(crate) fn is_asleep(&self) -> bool {
        matches!(self, TransportStream::Tcp(tcp) if tcp.is_asleep())
    }

    /// Whether an idle connection is still good: nothing has arrived, not even an end, be it read already or not.
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            TransportStream::Tcp(tcp) => tcp.is_quiet(),
            TransportStream::Connected(tls) => {
                let (records, session) = tls.get_ref();
                // A session that wants nothing more has something to give, or was said goodbye to.
                records.tcp().is_quiet() && records.is_between() && session.wants_read()
            }
            TransportStream::Accepted(_) | TransportStream::Http2(_) | TransportStream::Http3(_) => false,
        }
    }
}

/// Room for the next read, of at most so many bytes.
fn some_room<'i>(inbox: &'i mut Inbox, buffers: &Buffers, bytes_max: usize) -> &'i mut [u8] {
    let room = inbox.spare_capacity(bytes_max, buffers);
    let room_bytes = room.len().min(bytes_max);
    &mut room[..room_bytes]
}

fn read_tls(
    stream: Pin<&mut impl AsyncRead>,
    cx: &mut Context<'_>,
    room: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(room);
    ready!(stream.poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}

/// Reads from an endpoint over TLS. Apart, so that what reads from sockets stays short.
#[inline(never)]
fn read_connected(
    tls: &mut tokio_rustls::client::TlsStream<RecordStream>,
    cx: &mut Context<'_>,
    room: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    let read = ready!(Pin::new(&mut *tls).poll_read(cx, room));
    Poll::Ready(read.inspect_err(|error| tls::log_alert(tls.get_ref().0.tcp(), error)))
}

/// What of a last write a TLS session takes whole.
const LAST_OF_TLS_BYTES_MAX: usize = 16 * 1024;

/// Encrypts the last bytes and TLS' goodbye behind them, so that both leave in one send. What the socket does
/// not take stays with the session, for the shutdown that follows.
fn write_last_of_tls(
    tls: &mut tokio_rustls::server::TlsStream<TcpConnection>,
    slices: &[IoSlice<'_>],
) -> io::Result<usize> {
    let (tcp, session) = tls.get_mut();
    let total: usize = slices.iter().map(|slice| slice.len()).sum();
    if session.wants_write() || total > LAST_OF_TLS_BYTES_MAX {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let count = session.writer().write_vectored(slices)?;
    if count == total {
        session.send_close_notify();
        // What fails here fails again at the shutdown.
        let _ = session.write_tls(&mut FinalWrite(tcp));
    }
    Ok(count)
}

/// The last send of a connection, as a writer.
struct FinalWrite<'a>(&'a TcpConnection);

impl Write for FinalWrite<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send_with_more(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send_with_more(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
