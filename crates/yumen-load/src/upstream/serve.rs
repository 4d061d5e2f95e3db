//! One thread of the test upstream: accepts connections, reads requests, and responds after a delay.
//! Independent of the rules for delays and failures.

use std::cell::Cell;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;
use tokio_rustls::TlsAcceptor;

use crate::alarm::{AlarmQueue, AlarmTimer};
use crate::upstream::UpstreamServer;
use crate::upstream::answer::{CannedBody, CannedResponse, SMALL_BYTES};
use crate::upstream::behaviour::BehaviourVerdict;
use crate::upstream::request::{ReceivedRequest, UnreadBody};

const LOOK_NS: u64 = 20_000_000;
const READ_BYTES: usize = 4 * 1024;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
static FILLER: [u8; SMALL_BYTES as usize] = [b'x'; SMALL_BYTES as usize];

/// State shared by the tasks of one thread.
struct UpstreamThread {
    server: Arc<UpstreamServer>,
    alarm: Rc<AlarmQueue>,
    random: Cell<u64>,
}

/// Serves until the server is stopped.
pub(crate) fn run(
    server: Arc<UpstreamServer>,
    seed: u64,
    plain: TcpListener,
    tls: Option<TcpListener>,
) -> io::Result<()> {
    // Without the runtime's timers: `AlarmQueue` has a finer resolution.
    let runtime = Builder::new_current_thread().enable_io().build_local(LocalOptions::default())?;
    runtime.block_on(async move {
        let alarm = AlarmQueue::new(server.clock)?;
        let thread = Rc::new(UpstreamThread { server, alarm: alarm.clone(), random: Cell::new(seed) });
        // First, because every timer below depends on it.
        spawn_local(async move { alarm.drive().await });
        spawn_local(accept(thread.clone(), tokio::net::TcpListener::from_std(plain)?, false));
        if let Some(tls) = tls {
            spawn_local(accept(thread.clone(), tokio::net::TcpListener::from_std(tls)?, true));
        }
        let timer = thread.alarm.timer();
        while !thread.server.is_stopped() {
            // The end of `block_on` drops all tasks, and so closes all connections.
            timer.until(thread.server.clock.now_ns() + LOOK_NS).await;
        }
        Ok(())
    })
}

async fn accept(thread: Rc<UpstreamThread>, listener: tokio::net::TcpListener, tls: bool) {
    let timer = thread.alarm.timer();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Relaxed: counters that order nothing else.
                thread.server.connections.fetch_add(1, Ordering::Relaxed);
                thread.server.open.fetch_add(1, Ordering::Relaxed);
                let thread = thread.clone();
                spawn_local(async move {
                    // The client reports connection errors.
                    let _ = connection(&thread, stream, tls).await;
                    thread.server.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
            // Most likely out of file descriptors: retry after some connections have closed.
            Err(_) => timer.until(thread.server.clock.now_ns() + LOOK_NS).await,
        }
    }
}

async fn connection(thread: &Rc<UpstreamThread>, stream: TcpStream, tls: bool) -> io::Result<()> {
    let (true, Some(config)) = (tls, &thread.server.tls) else {
        return speak(thread, stream, false).await;
    };
    let stream = TlsAcceptor::from(config.clone()).accept(stream).await?;
    let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    speak(thread, stream, h2).await
}

async fn speak<S>(thread: &Rc<UpstreamThread>, mut stream: S, h2: bool) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    if h2 {
        return http2(thread, ReplayedStream { ahead: Vec::new(), stream }).await;
    }
    let mut pending = Vec::with_capacity(READ_BYTES);
    // A connection that is closed unused, such as a probe of the port, is no error.
    if stream.read_buf(&mut pending).await? == 0 {
        return Ok(());
    }
    // Without ALPN, HTTP/2 is detected by its connection preface (RFC 9113 §3.4).
    while pending.len() < PREFACE.len() && PREFACE.starts_with(&pending) {
        if stream.read_buf(&mut pending).await? == 0 {
            return Ok(());
        }
    }
    if pending.starts_with(PREFACE) {
        return http2(thread, ReplayedStream { ahead: pending, stream }).await;
    }
    http1(thread, stream, pending).await
}

async fn http1<S>(thread: &Rc<UpstreamThread>, mut stream: S, mut pending: Vec<u8>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let timer = thread.alarm.timer();
    loop {
        let (mut request, head_length) = loop {
            match ReceivedRequest::read(&pending) {
                Ok(Some(read)) => break read,
                Ok(None) => {
                    if stream.read_buf(&mut pending).await? == 0 {
                        return Ok(());
                    }
                }
                Err(malformed) => {
                    let answer = CannedResponse::text(400, format!("{malformed}\n"));
                    return write(&mut stream, &answer, false, true).await;
                }
            }
        };
        pending.drain(..head_length);
        // The next request begins behind the body (RFC 9112 §9.3).
        skip_body(&mut stream, &mut request.body, &mut pending).await?;
        let answer = decide(thread, &request.path, &timer).await;
        write(&mut stream, &answer, request.head_only, !request.keep_alive).await?;
        if !request.keep_alive {
            return stream.shutdown().await;
        }
    }
}

async fn skip_body<S>(stream: &mut S, body: &mut UnreadBody, pending: &mut Vec<u8>) -> io::Result<()>
where
    S: AsyncRead + Unpin,
{
    loop {
        let taken = body.feed(pending).map_err(io::Error::other)?;
        pending.drain(..taken);
        if *body == UnreadBody::Done {
            return Ok(());
        }
        if stream.read_buf(pending).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Waits until the response is due and returns it.
async fn decide(thread: &UpstreamThread, path: &str, timer: &AlarmTimer) -> CannedResponse {
    let server = &thread.server;
    // Before every counter and delay: reading the figures must not change them.
    if path == "/stats" {
        let stats = serde_json::to_string(&server.stats()).expect("numbers have a JSON form");
        return CannedResponse { content_type: "application/json", ..CannedResponse::text(200, stats) };
    }
    server.requests.fetch_add(1, Ordering::Relaxed);
    let now_ns = server.clock.now_ns();
    // Before the delay, because the limit counts arrivals.
    let verdict = server.behaviour.verdict(now_ns);
    let mut random = thread.random.get();
    let at_ns = server.behaviour.answer_at_ns(now_ns, &mut random);
    thread.random.set(random);
    if at_ns > now_ns {
        timer.until(at_ns).await;
    }
    match verdict {
        BehaviourVerdict::Good => CannedResponse::of(path, server.body_bytes),
        BehaviourVerdict::Error(status) => {
            server.errors.fetch_add(1, Ordering::Relaxed);
            CannedResponse::text(status, "an error on purpose\n")
        }
        BehaviourVerdict::Limited => {
            server.limited.fetch_add(1, Ordering::Relaxed);
            CannedResponse::text(429, "over the rate limit\n")
        }
    }
}

async fn write<S>(stream: &mut S, answer: &CannedResponse, head_only: bool, close: bool) -> io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    // Head and small bodies in one write, which is one system call and mostly one segment.
    let mut bytes = answer.head(close);
    let mut left = if head_only { 0 } else { answer.body.length() };
    match &answer.body {
        _ if left == 0 => {}
        CannedBody::Bytes(body) => {
            bytes.extend_from_slice(body);
            left = 0;
        }
        CannedBody::Filler(_) => {
            let first = left.min(SMALL_BYTES);
            bytes.extend_from_slice(&FILLER[..first as usize]);
            left -= first;
        }
    }
    stream.write_all(&bytes).await?;
    while left > 0 {
        let some = left.min(SMALL_BYTES);
        stream.write_all(&FILLER[..some as usize]).await?;
        left -= some;
    }
    stream.flush().await
}

async fn http2<S>(thread: &Rc<UpstreamThread>, stream: ReplayedStream<S>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // Larger than the default of 64 KiB, which would throttle uploads (RFC 9113 §6.9.2).
    let mut connection = h2::server::Builder::new()
        .initial_window_size(1 << 20)
        .initial_connection_window_size(16 << 20)
        .max_concurrent_streams(1024)
        .handshake::<_, Bytes>(stream)
        .await
        .map_err(io::Error::other)?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted.map_err(io::Error::other)?;
        let thread = thread.clone();
        spawn_local(async move {
            // The client reports stream errors.
            let _ = stream_of_http2(&thread, request, respond).await;
        });
    }
    Ok(())
}

async fn stream_of_http2(
    thread: &UpstreamThread,
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let (head, mut body) = request.into_parts();
    while let Some(chunk) = body.data().await {
        let length = chunk?.len();
        // Otherwise the window closes and the upload stalls (RFC 9113 §5.2).
        body.flow_control().release_capacity(length)?;
    }
    let timer = thread.alarm.timer();
    let answer = decide(thread, head.uri.path(), &timer).await;
    let response = http::Response::builder()
        .status(answer.status)
        .header("server", "yumen-bench")
        .header("content-type", answer.content_type)
        .header("content-length", answer.body.length())
        .body(())
        .expect("the status and the fields are valid");
    let mut left = if head.method == http::Method::HEAD { 0 } else { answer.body.length() };
    let mut stream = respond.send_response(response, left == 0)?;
    if let CannedBody::Bytes(bytes) = answer.body {
        return if left == 0 { Ok(()) } else { stream.send_data(bytes, true) };
    }
    while left > 0 {
        stream.reserve_capacity(left.min(SMALL_BYTES) as usize);
        let capacity = match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(capacity) => capacity? as u64,
            // The client has reset the stream.
            None => return Ok(()),
        };
        let some = left.min(capacity).min(SMALL_BYTES);
        left -= some;
        stream.send_data(Bytes::from_static(&FILLER[..some as usize]), left == 0)?;
    }
    Ok(())
}

/// A stream with bytes already read ahead.
struct ReplayedStream<S> {
    ahead: Vec<u8>,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for ReplayedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let some = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.ahead[..some]);
        self.ahead.drain(..some);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReplayedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
