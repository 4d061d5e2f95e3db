//! HTTP/2 clients and upstreams: by the h2 library, or with raw frames where these matter.

use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use super::certs::Pair;

/// Runs a test on its own runtime, with a timeout of 120 s.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let test = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), test).await });
    test.expect("the test ends")
}

/// A client.
pub(crate) struct Http2Client {
    pub(crate) sender: SendRequest<Bytes>,
    /// The result of the connection.
    pub(crate) connection: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: HeaderMap,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Http2Client {
    pub(crate) async fn connect(address: SocketAddr) -> Http2Client {
        Http2Client::of(&h2::client::Builder::new(), address).await
    }

    pub(crate) async fn of(builder: &h2::client::Builder, address: SocketAddr) -> Http2Client {
        let stream = tokio::net::TcpStream::connect(address).await.expect("the gateway accepts");
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = builder.handshake(stream).await.expect("a handshake");
        Http2Client { sender, connection: tokio::spawn(connection) }
    }

    /// A client over TLS for this name.
    pub(crate) async fn over_tls(
        address: SocketAddr,
        name: &str,
        mut config: rustls::ClientConfig,
    ) -> Http2Client {
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = tokio::net::TcpStream::connect(address).await.expect("the gateway accepts");
        let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        let (sender, connection) = h2::client::handshake(stream.expect("a handshake")).await.unwrap();
        Http2Client { sender, connection: tokio::spawn(connection) }
    }

    /// Begins a request; the caller sends its body.
    pub(crate) async fn begin(
        &mut self,
        request: Request<()>,
    ) -> (h2::client::ResponseFuture, SendStream<Bytes>) {
        let mut sender = self.sender.clone().ready().await.expect("room for a stream");
        sender.send_request(request, false).expect("a request")
    }

    pub(crate) async fn ask(&mut self, request: Request<()>, body: &[u8]) -> Result<Answer, h2::Error> {
        let mut sender = self.sender.clone().ready().await?;
        let (answer, mut stream) = sender.send_request(request, body.is_empty())?;
        // Reads and sends concurrently, as an echo requires. The response shows the fate of the body.
        let sending = async {
            if !body.is_empty() {
                let _ = send(&mut stream, body, true).await;
            }
        };
        let reading = async { read(answer.await?).await };
        tokio::join!(sending, reading).1
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.ask(request("GET", path), b"").await.expect("an answer")
    }
}

/// A request to the gateway.
pub(crate) fn request(method: &str, path: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("http://test{path}")).body(()).unwrap()
}

/// Sends data within the flow-control window.
pub(crate) async fn send(stream: &mut SendStream<Bytes>, data: &[u8], ends: bool) -> Result<(), h2::Error> {
    let mut data = Bytes::copy_from_slice(data);
    if data.is_empty() {
        return stream.send_data(data, ends);
    }
    loop {
        stream.reserve_capacity(data.len());
        let room = match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(room) => room?,
            None => return Ok(()),
        };
        let piece = data.split_to(room.min(data.len()));
        let is_last = data.is_empty();
        stream.send_data(piece, is_last && ends)?;
        if is_last {
            return Ok(());
        }
    }
}

/// Reads a response to its end.
pub(crate) async fn read(answer: Response<RecvStream>) -> Result<Answer, h2::Error> {
    let (parts, mut stream) = answer.into_parts();
    let (body, trailers) = read_body(&mut stream).await?;
    Ok(Answer { status: parts.status.as_u16(), fields: parts.headers, body, trailers })
}

pub(crate) async fn read_body(stream: &mut RecvStream) -> Result<(Vec<u8>, HeaderMap), h2::Error> {
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    Ok((body, stream.trailers().await?.unwrap_or_default()))
}

type Served = Pin<Box<dyn Future<Output = Result<(), h2::Error>> + Send>>;
type Script = dyn Fn(Request<RecvStream>, SendResponse<Bytes>) -> Served + Send + Sync;

/// A scripted upstream on its own thread, with a task per request.
pub(crate) struct Http2Upstream {
    pub(crate) address: SocketAddr,
    counts: Arc<[AtomicUsize; 3]>,
}

impl Http2Upstream {
    pub(crate) fn start<F>(
        script: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Send + Sync + 'static,
    ) -> Http2Upstream
    where
        F: Future<Output = Result<(), h2::Error>> + Send + 'static,
    {
        Http2Upstream::of(h2::server::Builder::new(), script)
    }

    pub(crate) fn of<F>(
        builder: h2::server::Builder,
        script: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Send + Sync + 'static,
    ) -> Http2Upstream
    where
        F: Future<Output = Result<(), h2::Error>> + Send + 'static,
    {
        Http2Upstream::accepting(builder, script, |stream| async { Some(stream) })
    }

    fn accepting<F, A, S>(
        builder: h2::server::Builder,
        script: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Send + Sync + 'static,
        accept: impl Fn(tokio::net::TcpStream) -> A + Send + 'static,
    ) -> Http2Upstream
    where
        F: Future<Output = Result<(), h2::Error>> + Send + 'static,
        A: Future<Output = Option<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new([const { AtomicUsize::new(0) }; 3]);
        let counted = counts.clone();
        let script: Arc<Script> = Arc::new(move |request, respond| Box::pin(script(request, respond)));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    counted[0].fetch_add(1, Ordering::AcqRel);
                    let served = (builder.clone(), script.clone(), counted.clone());
                    tokio::spawn(serve(accept(stream), served));
                }
            });
        });
        Http2Upstream { address, counts }
    }

    /// A scripted upstream over TLS with this certificate.
    pub(crate) fn tls<F>(
        pair: &Pair,
        script: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Send + Sync + 'static,
    ) -> Http2Upstream
    where
        F: Future<Output = Result<(), h2::Error>> + Send + 'static,
    {
        Http2Upstream::tls_of(h2::server::Builder::new(), pair, script)
    }

    pub(crate) fn tls_of<F>(
        builder: h2::server::Builder,
        pair: &Pair,
        script: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Send + Sync + 'static,
    ) -> Http2Upstream
    where
        F: Future<Output = Result<(), h2::Error>> + Send + 'static,
    {
        let mut config = super::tls::server_config(pair);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        Http2Upstream::accepting(builder, script, move |stream| {
            let accepted = acceptor.accept(stream);
            async move { accepted.await.ok() }
        })
    }

    /// Echoes body and trailers, with fields that describe the request head.
    pub(crate) fn echo() -> Http2Upstream {
        Http2Upstream::start(|request, mut respond| async move {
            let (parts, mut stream) = request.into_parts();
            let answer = Response::builder()
                .header("x-version", "2")
                .header("x-method", parts.method.as_str())
                .header("x-target", parts.uri.path_and_query().unwrap().as_str())
                .header("x-authority", parts.uri.authority().unwrap().as_str())
                .header("x-te", parts.headers.get("te").map_or("", |te| te.to_str().unwrap()))
                .body(())
                .unwrap();
            let mut sender = respond.send_response(answer, false)?;
            while let Some(data) = stream.data().await {
                let data = data?;
                stream.flow_control().release_capacity(data.len())?;
                send(&mut sender, &data, false).await?;
            }
            match stream.trailers().await? {
                Some(trailers) => sender.send_trailers(trailers),
                None => sender.send_data(Bytes::new(), true),
            }
        })
    }

    pub(crate) fn connections(&self) -> usize {
        self.counts[0].load(Ordering::Acquire)
    }

    pub(crate) fn requests(&self) -> usize {
        self.counts[1].load(Ordering::Acquire)
    }

    /// Number of open connections.
    pub(crate) fn open_connections(&self) -> usize {
        self.connections() - self.counts[2].load(Ordering::Acquire)
    }

    /// An upstream with this endpoint, over HTTP/2.
    pub(crate) fn alone(&self) -> Value {
        json!({ "nodes": { self.address.to_string(): 1 }, "http_version": "2" })
    }

    /// A document with a route for all requests to this endpoint.
    pub(crate) fn everything(&self) -> Value {
        json!({ "routes": [{ "id": "all", "uri": "/*", "upstream": self.alone() }] })
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    accepted: impl Future<Output = Option<S>>,
    (builder, script, counts): (h2::server::Builder, Arc<Script>, Arc<[AtomicUsize; 3]>),
) {
    if let Some(stream) = accepted.await
        && let Ok(connection) = builder.handshake(stream).await
    {
        answer_all(connection, script, &counts[1]).await;
    }
    counts[2].fetch_add(1, Ordering::AcqRel);
}

async fn answer_all<S: AsyncRead + AsyncWrite + Unpin>(
    mut connection: h2::server::Connection<S, Bytes>,
    script: Arc<Script>,
    requests: &AtomicUsize,
) {
    while let Some(Ok((request, respond))) = connection.accept().await {
        requests.fetch_add(1, Ordering::AcqRel);
        if request.uri().path() == "/goodbye" {
            connection.graceful_shutdown();
        }
        tokio::spawn(script(request, respond));
    }
}

/// Field section of `GET /` with host `x`.
pub(crate) const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 0x01, b'x'];
/// Field section of `POST /` with host `x`.
pub(crate) const POST: &[u8] = &[0x83, 0x86, 0x84, 0x41, 0x01, b'x'];
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Encodes a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head, &stream.to_be_bytes()[..], payload].concat()
}

/// A client that writes raw frames.
pub(crate) struct RawClient(TcpStream);

impl RawClient {
    pub(crate) fn connect(address: SocketAddr) -> RawClient {
        let stream = TcpStream::connect(address).expect("the gateway accepts");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut client = RawClient(stream);
        // The connection preface of a client (RFC 9113 §3.4).
        client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        client.send(&frame(SETTINGS, 0, 0, b""));
        client
    }

    /// Sends bytes; returns whether the connection accepted them.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// The payload of a frame of this type, if one has arrived.
    pub(crate) fn take_frame(&mut self, kind: u8) -> Option<Vec<u8>> {
        self.0.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let payload = self.wait_for(kind);
        self.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        payload
    }

    /// Reads up to the first frame of this type and returns its payload; `None` if the connection ends first.
    pub(crate) fn wait_for(&mut self, kind: u8) -> Option<Vec<u8>> {
        loop {
            let received = receive(&mut self.0)?;
            if received.kind == kind {
                return Some(received.payload);
            }
        }
    }

    /// Reads until this number of streams has ended; returns the number of data bytes.
    pub(crate) fn data_of(&mut self, streams: usize) -> usize {
        let (mut ended, mut bytes) = (0, 0);
        while ended < streams {
            let received = receive(&mut self.0).expect("the connection goes on");
            if received.kind == DATA {
                bytes += received.payload.len();
                ended += usize::from(received.flags & END_STREAM != 0);
            }
        }
        bytes
    }
}

/// A received frame.
pub(crate) struct Received {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// Reads the next frame.
fn receive(stream: &mut TcpStream) -> Option<Received> {
    // A frame header: length in three bytes, type, flags, stream (RFC 9113 §4.1).
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let number = |at: usize, mask| u32::from_be_bytes(head[at..at + 4].try_into().unwrap()) & mask;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut payload).ok()?;
    Some(Received { kind: head[3], flags: head[4], stream: number(5, u32::MAX >> 1), payload })
}

/// An upstream that writes raw frames: the script maps each received frame to a reply.
pub(crate) struct RawUpstream {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl RawUpstream {
    pub(crate) fn start(script: impl Fn(Received) -> Vec<u8> + Clone + Send + 'static) -> RawUpstream {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                counted.fetch_add(1, Ordering::AcqRel);
                let script = script.clone();
                std::thread::spawn(move || RawUpstream::serve(stream, script));
            }
        });
        RawUpstream { address, connections }
    }

    fn serve(mut stream: TcpStream, script: impl Fn(Received) -> Vec<u8>) -> Option<()> {
        stream.set_nodelay(true).unwrap();
        // The connection preface of the client.
        stream.read_exact(&mut [0; 24]).ok()?;
        stream.write_all(&[frame(SETTINGS, 0, 0, b""), frame(SETTINGS, ACK, 0, b"")].concat()).ok()?;
        loop {
            let received = receive(&mut stream)?;
            stream.write_all(&script(received)).ok()?;
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// An upstream with this endpoint.
    pub(crate) fn alone(&self) -> Value {
        json!({ "nodes": { self.address.to_string(): 1 }, "http_version": "2" })
    }

    /// A document with a route for all requests to this endpoint.
    pub(crate) fn everything(&self) -> Value {
        json!({ "routes": [{ "id": "all", "uri": "/*", "upstream": self.alone() }] })
    }
}
