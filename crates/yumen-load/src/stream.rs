//! A connection to the server, in clear text or TLS, with its handshake counted.
//! Independent of the application protocol.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rustls::HandshakeKind;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::alarm::AlarmTimer;
use crate::prepared::LoadOrigin;
use crate::tally::{ErrorClass, RequestFailure};
use crate::tls;
use crate::worker::LoadWorker;

/// Bytes to and from the server, added to the thread's counters.
pub(crate) struct CountedStream {
    socket: LoadSocket,
    worker: Rc<LoadWorker>,
}

enum LoadSocket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects, including the handshake, within `connect_timeout_ms`.
pub(crate) async fn connect(
    worker: &Rc<LoadWorker>,
    origin: &LoadOrigin,
    number: usize,
    timer: &AlarmTimer,
) -> Result<CountedStream, RequestFailure> {
    let started = worker.clock.now_ns();
    let timeout_ms = worker.prepared.plan.connect_timeout_ms;
    let establishing = establish(worker, origin, number);
    let socket = match timer.within(started + timeout_ms * 1_000_000, establishing).await {
        Some(Ok(socket)) => socket,
        Some(Err(error)) => return Err(RequestFailure::new(ErrorClass::Connect, error)),
        None => {
            let message = format!("not connected within {timeout_ms} ms");
            return Err(RequestFailure::new(ErrorClass::ConnectTimeout, message));
        }
    };
    worker.tally.borrow_mut().latencies.connect.saturating_record(worker.clock.now_ns() - started);
    Ok(CountedStream { socket, worker: worker.clone() })
}

async fn establish(worker: &LoadWorker, origin: &LoadOrigin, number: usize) -> io::Result<LoadSocket> {
    let address = origin.addresses[number % origin.addresses.len()];
    let stream = connect_tcp(worker, address, number).await?;
    // Nagle's algorithm would delay small requests and distort latencies.
    stream.set_nodelay(true)?;
    // Before the handshake: the count is of TCP connections.
    worker.tally.borrow_mut().connections.opened += 1;
    let (Some(config), Some(name)) = (&worker.prepared.tls, &origin.server_name) else {
        return Ok(LoadSocket::Plain(stream));
    };
    let stream = TlsConnector::from(config.clone()).connect(name.clone(), stream).await?;
    let session = stream.get_ref().1;
    let mut tally = worker.tally.borrow_mut();
    match session.handshake_kind() {
        Some(HandshakeKind::Resumed) => tally.connections.resumed_handshakes += 1,
        _ => tally.connections.full_handshakes += 1,
    }
    if tally.tls.is_none() {
        tally.tls = Some(tls::facts(session));
    }
    drop(tally);
    Ok(LoadSocket::Tls(Box::new(stream)))
}

async fn connect_tcp(worker: &LoadWorker, address: SocketAddr, number: usize) -> io::Result<TcpStream> {
    let sources = &worker.prepared.plan.sources;
    if sources.is_empty() {
        return TcpStream::connect(address).await;
    }
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Port 0: the kernel chooses one.
    socket.bind(SocketAddr::new(sources[number % sources.len()], 0))?;
    socket.connect(address).await
}

impl CountedStream {
    /// Protocol negotiated by ALPN; `None` in clear text.
    pub(crate) fn agreed_protocol(&self) -> Option<&[u8]> {
        match &self.socket {
            LoadSocket::Plain(_) => None,
            LoadSocket::Tls(tls) => Some(tls.get_ref().1.alpn_protocol().unwrap_or_default()),
        }
    }

    /// Whether the server has closed an idle connection or sent unsolicited bytes. Without an event, costs no
    /// system call.
    pub(crate) fn poll_idle_event(&mut self, cx: &mut Context<'_>) -> Poll<IdleEvent> {
        let tcp = match &self.socket {
            LoadSocket::Plain(tcp) => tcp,
            LoadSocket::Tls(tls) => tls.get_ref().0,
        };
        // The readiness that the runtime has cached, so no system call.
        if tcp.poll_read_ready(cx).is_pending() {
            return Poll::Pending;
        }
        let mut bytes = [0; 64];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(self).poll_read(cx, &mut buffer) {
            // Over TLS, readable bytes may be a session ticket (RFC 8446 §4.6.1) and no data.
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => Poll::Ready(IdleEvent::Bytes),
            Poll::Ready(_) => Poll::Ready(IdleEvent::Closed),
        }
    }
}

/// Event on an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleEvent {
    Closed,
    Bytes,
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = match &mut self.socket {
            LoadSocket::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            LoadSocket::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        };
        let bytes = &self.worker.bytes_received;
        // The buffer may have content from the caller.
        bytes.set(bytes.get() + (buffer.filled().len() - before) as u64);
        polled
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let polled = match &mut self.socket {
            LoadSocket::Plain(tcp) => Pin::new(tcp).poll_write(cx, data),
            LoadSocket::Tls(tls) => Pin::new(tls).poll_write(cx, data),
        };
        self.count_sent(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = match &mut self.socket {
            LoadSocket::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            LoadSocket::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, slices),
        };
        self.count_sent(polled)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            LoadSocket::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            LoadSocket::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            LoadSocket::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            LoadSocket::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

impl CountedStream {
    fn count_sent(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(written)) = &polled {
            let bytes = &self.worker.bytes_sent;
            bytes.set(bytes.get() + *written as u64);
        }
        polled
    }
}
