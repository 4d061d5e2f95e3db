//! A connection to the server, in clear text or TLS: established in time, its handshake counted.
//! Must not know what is spoken over it.

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

use crate::alarm::Timer;
use crate::prepared::Origin;
use crate::tally::{ErrorClass, Failure};
use crate::tls;
use crate::worker::Worker;

/// Bytes to and from the server. What goes through it is counted with the thread's bytes.
pub(crate) struct Stream {
    socket: Socket,
    worker: Rc<Worker>,
}

enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects, handshake included, unless the time for it runs out.
pub(crate) async fn connect(
    worker: &Rc<Worker>,
    origin: &Origin,
    number: usize,
    timer: &Timer,
) -> Result<Stream, Failure> {
    let started = worker.clock.now_ns();
    let timeout_ms = worker.prepared.plan.connect_timeout_ms;
    let establishing = establish(worker, origin, number);
    let socket = match timer.within(started + timeout_ms * 1_000_000, establishing).await {
        Some(Ok(socket)) => socket,
        Some(Err(error)) => return Err(Failure::new(ErrorClass::Connect, error)),
        None => {
            let message = format!("not connected within {timeout_ms} ms");
            return Err(Failure::new(ErrorClass::ConnectTimeout, message));
        }
    };
    worker.tally.borrow_mut().connects.saturating_record(worker.clock.now_ns() - started);
    Ok(Stream { socket, worker: worker.clone() })
}

async fn establish(worker: &Worker, origin: &Origin, number: usize) -> io::Result<Socket> {
    let address = origin.addresses[number % origin.addresses.len()];
    let stream = connect_tcp(worker, address, number).await?;
    stream.set_nodelay(true)?;
    worker.tally.borrow_mut().opened += 1;
    let (Some(config), Some(name)) = (&worker.prepared.tls, &origin.server_name) else {
        return Ok(Socket::Plain(stream));
    };
    let stream = TlsConnector::from(config.clone()).connect(name.clone(), stream).await?;
    let session = stream.get_ref().1;
    let mut tally = worker.tally.borrow_mut();
    match session.handshake_kind() {
        Some(HandshakeKind::Resumed) => tally.resumed_handshakes += 1,
        _ => tally.full_handshakes += 1,
    }
    if tally.tls.is_none() {
        tally.tls = Some(tls::facts(session));
    }
    drop(tally);
    Ok(Socket::Tls(Box::new(stream)))
}

async fn connect_tcp(worker: &Worker, address: SocketAddr, number: usize) -> io::Result<TcpStream> {
    let sources = &worker.prepared.plan.sources;
    if sources.is_empty() {
        return TcpStream::connect(address).await;
    }
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(sources[number % sources.len()], 0))?;
    socket.connect(address).await
}

impl Stream {
    /// The protocol agreed on by ALPN; none in clear text.
    pub(crate) fn agreed_protocol(&self) -> Option<&[u8]> {
        match &self.socket {
            Socket::Plain(_) => None,
            Socket::Tls(tls) => Some(tls.get_ref().1.alpn_protocol().unwrap_or_default()),
        }
    }

    /// Whether the server has ended the connection, or sent what nobody asked for, while nothing was in
    /// flight. Costs no system call where nothing happened.
    pub(crate) fn poll_news(&mut self, cx: &mut Context<'_>) -> Poll<News> {
        let tcp = match &self.socket {
            Socket::Plain(tcp) => tcp,
            Socket::Tls(tls) => tls.get_ref().0,
        };
        if tcp.poll_read_ready(cx).is_pending() {
            return Poll::Pending;
        }
        let mut bytes = [0; 64];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(self).poll_read(cx, &mut buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => Poll::Ready(News::Bytes),
            Poll::Ready(_) => Poll::Ready(News::Closed),
        }
    }
}

/// What an idle connection may bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Closed,
    Bytes,
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = match &mut self.socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Socket::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        };
        let bytes = &self.worker.bytes_received;
        bytes.set(bytes.get() + (buffer.filled().len() - before) as u64);
        polled
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let polled = match &mut self.socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_write(cx, data),
            Socket::Tls(tls) => Pin::new(tls).poll_write(cx, data),
        };
        self.count_sent(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = match &mut self.socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Socket::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, slices),
        };
        self.count_sent(polled)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Socket::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Socket::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

impl Stream {
    fn count_sent(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(written)) = &polled {
            let bytes = &self.worker.bytes_sent;
            bytes.set(bytes.get() + *written as u64);
        }
        polled
    }
}
