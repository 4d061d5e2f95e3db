//! Byte streams of both sides: TCP, TLS over TCP, and the streams of HTTP/2 and HTTP/3 connections.
//!
//! This file owns the differences between transports. It must not know requests or responses.

mod records;
mod shared;

use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::observe::log_suppression::{SuppressionKey, should_log};
use crate::runtime::buffer::{BUFFER_BYTES, Buffers, Inbox};
use crate::runtime::timers::Timers;
use crate::transport::http2::Http2Duplex;
use crate::transport::http3;
use crate::transport::tcp::TcpConnection;
pub(crate) use records::RecordStream;
pub(crate) use shared::HeadSent;

/// Interval at which `settle` checks for unacknowledged bytes, in milliseconds.
const SETTLE_LOOK_MS: u64 = 10;

/// A byte stream towards a client or an endpoint.
pub(crate) enum TransportStream {
    /// A stream of an HTTP/2 connection. It carries the body; heads have their own methods.
    Http2(Box<Http2Duplex>),
    /// A stream of an HTTP/3 connection, with the same rules.
    Http3(Box<http3::Http3Duplex>),
    Tcp(TcpConnection),
    Accepted(Box<tokio_rustls::server::TlsStream<TcpConnection>>),
    Connected(Box<tokio_rustls::client::TlsStream<RecordStream>>),
}

impl TransportStream {
    /// Takes the stream and leaves one that is not connected.
    pub(crate) fn take(&mut self) -> TransportStream {
        std::mem::replace(self, TransportStream::Tcp(TcpConnection::moving()))
    }

    /// Reads into an inbox and returns the number of bytes; 0 is the end of the stream.
    ///
    /// While the read is pending, the inbox may contain an empty buffer, which the caller returns to the
    /// pool.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        buffers: &Buffers,
    ) -> Poll<io::Result<usize>> {
        self.poll_fill_some(cx, inbox, buffers, usize::MAX)
    }

    /// Like [`TransportStream::poll_fill`], for at most `bytes_max` bytes.
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

    /// Like [`TransportStream::poll_fill`], for a sink that has taken `taken_bytes` of the bytes before: while
    /// the worker's backlog is large, less is read ahead of a sink that may be slow.
    pub(crate) fn poll_read_ahead(
        &mut self,
        cx: &mut Context<'_>,
        inbox: &mut Inbox,
        buffers: &Buffers,
        taken_bytes: u64,
    ) -> Poll<io::Result<usize>> {
        let bytes_max = buffers.backlog.read_ahead(taken_bytes);
        if bytes_max < BUFFER_BYTES {
            // The short read takes a small buffer only if the inbox holds none.
            inbox.release(buffers);
        }
        self.poll_fill_some(cx, inbox, buffers, bytes_max)
    }

    /// Returns the bytes of memory that this source occupies while `sink` takes nothing.
    pub(crate) fn backlog_bytes(&mut self, inbox: &Inbox, sink: &TransportStream) -> usize {
        inbox.held_bytes() + self.unread_bytes() + sink.session_bytes()
    }

    /// Returns the number of received bytes of an HTTP/2 or HTTP/3 stream that were not consumed; otherwise
    /// 0.
    fn unread_bytes(&mut self) -> usize {
        match self {
            TransportStream::Http2(duplex) => duplex.unread_bytes(),
            TransportStream::Http3(duplex) => duplex.unread_bytes(),
            _ => 0,
        }
    }

    /// Upper bound of the bytes that a TLS session buffers for a socket that accepts none: the limit of
    /// rustls.
    pub(crate) fn session_bytes(&self) -> usize {
        match self {
            TransportStream::Accepted(_) | TransportStream::Connected(_) => 64 * 1024,
            _ => 0,
        }
    }

    /// Writes a prefix of the slices, in order.
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

    /// Writes the last bytes of a connection in one segment with its end; the caller closes next.
    ///
    /// # Errors
    ///
    /// `WouldBlock`, without writing, if the transport cannot do that immediately.
    pub(crate) fn write_last(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            TransportStream::Tcp(tcp) => tcp.send_with_more(slices),
            TransportStream::Accepted(tls) => write_last_of_tls(tls, slices),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Writes the bytes that the TLS session has buffered.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            TransportStream::Tcp(_) | TransportStream::Http2(_) | TransportStream::Http3(_) => {
                Poll::Ready(Ok(()))
            }
            TransportStream::Accepted(tls) => Pin::new(tls).poll_flush(cx),
            TransportStream::Connected(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    /// Returns the number of bytes that the socket took from the TLS session; 0 without TLS.
    pub(crate) fn taken_bytes(&self) -> u64 {
        match self {
            TransportStream::Tcp(_) => 0,
            _ => self.tcp().map_or(0, TcpConnection::taken_bytes),
        }
    }

    /// Ends the writing side after the written bytes, without a close_notify alert, as an aborted transfer
    /// does.
    pub(crate) fn poll_break_off(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            // The missing close_notify marks the data as truncated (RFC 8446 §6.1).
            TransportStream::Accepted(_) | TransportStream::Connected(_) => ready!(self.poll_flush(cx))?,
            _ => return self.poll_shutdown(cx),
        }
        match self.tcp() {
            Some(tcp) => Poll::Ready(tcp.end()),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Waits until the peer has acknowledged all written bytes, which a reset would otherwise discard.
    ///
    /// Waits for at most `within_ms` milliseconds.
    pub(crate) async fn settle(&mut self, timers: &Rc<Timers>, within_ms: u64) {
        let (timer, mut is_over) = (timers.timer(), false);
        timer.set(within_ms);
        poll_fn(|cx| match self.poll_flush(cx) {
            Poll::Pending if !timer.is_over(cx) => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
        // The kernel reports no event when the peer has acknowledged everything, so the send queue is polled.
        while !is_over && self.tcp().is_some_and(|tcp| !tcp.is_settled()) {
            timers.clone().sleep(SETTLE_LOOK_MS).await;
            is_over = poll_fn(|cx| Poll::Ready(timer.is_over(cx))).await;
        }
    }

    /// Ends the writing side; with TLS, after close_notify.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            TransportStream::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            TransportStream::Accepted(tls) => Pin::new(tls).poll_shutdown(cx),
            TransportStream::Connected(tls) => Pin::new(tls).poll_shutdown(cx),
            TransportStream::Http2(duplex) => Poll::Ready(duplex.finish(&[])),
            TransportStream::Http3(duplex) => Poll::Ready(duplex.finish(&[])),
        }
    }

    /// Returns the ALPN protocol of the handshake with a client.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        match self {
            TransportStream::Accepted(tls) => tls.get_ref().1.alpn_protocol(),
            _ => None,
        }
    }

    /// Returns the TCP connection, or `None` on HTTP/2 and HTTP/3 streams.
    pub(crate) fn tcp(&self) -> Option<&TcpConnection> {
        match self {
            TransportStream::Tcp(tcp) => Some(tcp),
            TransportStream::Accepted(tls) => Some(tls.get_ref().0),
            TransportStream::Connected(tls) => Some(tls.get_ref().0.tcp()),
            TransportStream::Http2(_) | TransportStream::Http3(_) => None,
        }
    }

    /// Whether the stream is a plain TCP connection.
    #[inline]
    pub(crate) fn is_socket(&self) -> bool {
        matches!(self, TransportStream::Tcp(_))
    }

    /// Returns the TCP connection of a plain stream, registered with the reactor.
    pub(crate) fn socket(&mut self) -> Option<&mut TcpConnection> {
        match self {
            TransportStream::Tcp(tcp) => tcp.register().is_ok().then_some(tcp),
            _ => None,
        }
    }

    /// Whether the peer has sent FIN or RST, even if unread bytes precede it. HTTP/2 and HTTP/3 streams
    /// report the end by [`TransportStream::client_gone`] instead.
    pub(crate) fn has_left(&self) -> bool {
        self.tcp().is_some_and(TcpConnection::has_left)
    }

    /// Reads into a buffer of the caller.
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

    /// Whether a stream that had no data at its last poll still has none. Always false for streams that
    /// buffer data in user space.
    #[inline]
    pub(crate) fn is_asleep(&self) -> bool {
        matches!(self, TransportStream::Tcp(tcp) if tcp.is_asleep())
    }

    /// Whether an idle connection is reusable: no data and no end has arrived.
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            TransportStream::Tcp(tcp) => tcp.is_quiet(),
            TransportStream::Connected(tls) => {
                let (records, session) = tls.get_ref();
                // A session that does not want to read has decrypted data to deliver or has received
                // close_notify.
                records.tcp().is_quiet() && records.is_between() && session.wants_read()
            }
            TransportStream::Accepted(_) | TransportStream::Http2(_) | TransportStream::Http3(_) => false,
        }
    }
}

/// Returns the free space of the inbox for the next read, at most `bytes_max` bytes.
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

/// Reads from an endpoint over TLS. Not inlined, so that the read path of plain sockets stays small.
#[inline(never)]
fn read_connected(
    tls: &mut tokio_rustls::client::TlsStream<RecordStream>,
    cx: &mut Context<'_>,
    room: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    let read = ready!(Pin::new(&mut *tls).poll_read(cx, room));
    Poll::Ready(read.inspect_err(|error| log_alert(tls.get_ref().0.tcp(), error)))
}

/// Logs a TLS alert, if `error` is one. With TLS 1.3 the endpoint verifies the gateway's certificate after
/// the handshake has ended on this side, so the alert arrives with the first read.
#[cold]
fn log_alert(tcp: &TcpConnection, error: &io::Error) {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    if let (Some(rustls::Error::AlertReceived(_)), Some(endpoint)) = (inner, tcp.peer())
        && let Some(untold) = should_log(endpoint, SuppressionKey::Alert)
    {
        tracing::warn!(%endpoint, %error, untold, "upstream sent a TLS alert");
    }
}

/// Size limit of a last write over TLS: one record (RFC 8446 §5.1).
const LAST_OF_TLS_BYTES_MAX: usize = 16 * 1024;

/// Encrypts the last bytes and the close_notify alert, so that one send carries both. The session buffers the
/// bytes that the socket does not take; the shutdown that follows writes them.
fn write_last_of_tls(
    tls: &mut tokio_rustls::server::TlsStream<TcpConnection>,
    slices: &[IoSlice<'_>],
) -> io::Result<usize> {
    let (tcp, session) = tls.get_mut();
    let total: usize = slices.iter().map(|slice| slice.len()).sum();
    // Buffered records would have to precede the last one, and a larger write would need several records.
    if session.wants_write() || total > LAST_OF_TLS_BYTES_MAX {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let count = session.writer().write_vectored(slices)?;
    if count == total {
        session.send_close_notify();
        // A failure here repeats at the shutdown.
        let _ = session.write_tls(&mut FinalWrite(tcp));
    }
    Ok(count)
}

/// Writer for the last send of a connection.
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
