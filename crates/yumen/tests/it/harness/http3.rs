//! An HTTP/3 client, by the same libraries as the gateway.

use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, Request};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime, UdpPoller};
use tokio::net::UdpSocket;
use tokio::time::{Instant, Sleep};

use super::certs::Pair;
use super::http2::Answer;
use super::tls::client_config;

type Stream = h3::client::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;
type Sender = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;

/// A client with its connection.
pub(crate) struct Http3Client {
    pub(crate) endpoint: quinn::Endpoint,
    pub(crate) quic: quinn::Connection,
    pub(crate) sender: Sender,
    /// The result of the connection.
    pub(crate) driver: tokio::task::JoinHandle<h3::error::ConnectionError>,
}

impl Http3Client {
    /// Connects for a name that this authority must have certified, with a client certificate if `client_pair` is
    /// set.
    pub(crate) async fn connect(
        address: SocketAddr,
        name: &str,
        authority: &str,
        client_pair: Option<&Pair>,
    ) -> Result<Http3Client, quinn::ConnectionError> {
        let (endpoint, quic) = connect(address, name, authority, client_pair).await?;
        let client = Http3Client::try_over(endpoint, quic.clone()).await;
        client.ok_or_else(|| quic.close_reason().unwrap_or(quinn::ConnectionError::LocallyClosed))
    }

    /// Connects with this receive window for each stream.
    pub(crate) async fn with_window(
        address: SocketAddr,
        name: &str,
        authority: &str,
        window_bytes: u32,
    ) -> Http3Client {
        let mut transport = quinn::TransportConfig::default();
        transport.stream_receive_window(window_bytes.into());
        let connected = connect_over(address, name, authority, None, transport).await;
        let (endpoint, quic) = connected.expect("a handshake");
        Http3Client::over(endpoint, quic).await
    }

    /// Reconnects with 0-RTT; `None` without a session ticket.
    pub(crate) async fn again(&self, address: SocketAddr, name: &str) -> Option<Http3Client> {
        let connecting = self.endpoint.connect(address, name).unwrap();
        let (quic, _) = connecting.into_0rtt().ok()?;
        Some(Http3Client::over(self.endpoint.clone(), quic).await)
    }

    async fn over(endpoint: quinn::Endpoint, quic: quinn::Connection) -> Http3Client {
        Http3Client::try_over(endpoint, quic).await.expect("a connection")
    }

    async fn try_over(endpoint: quinn::Endpoint, quic: quinn::Connection) -> Option<Http3Client> {
        let (mut driver, sender) = h3::client::new(h3_quinn::Connection::new(quic.clone())).await.ok()?;
        let driver = tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
        Some(Http3Client { endpoint, quic, sender, driver })
    }

    /// Whether the request gets a response.
    pub(crate) async fn try_ask(&self, request: Request<()>) -> bool {
        let Ok(mut stream) = self.sender.clone().send_request(request).await else { return false };
        stream.finish().await.is_ok() && stream.recv_response().await.is_ok()
    }

    /// Opens another connection from the same socket.
    pub(crate) async fn reconnect(&self, address: SocketAddr, name: &str) -> Http3Client {
        let quic = self.endpoint.connect(address, name).unwrap().await.expect("a handshake");
        Http3Client::over(self.endpoint.clone(), quic).await
    }

    /// Continues from another port, like a client behind a NAT that rebinds.
    pub(crate) fn move_away(&self) -> SocketAddr {
        self.move_to("127.0.0.1")
    }

    /// Continues from this address, like a client on a new network.
    pub(crate) fn move_to(&self, ip: &str) -> SocketAddr {
        let socket = std::net::UdpSocket::bind((ip, 0)).unwrap();
        self.endpoint.rebind(socket).unwrap();
        self.endpoint.local_addr().unwrap()
    }

    /// Makes the client able to send from foreign addresses.
    pub(crate) fn forger(&self) -> Forger {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let own = quinn::TokioRuntime.wrap_udp_socket(socket).unwrap();
        let decoy = Arc::<Mutex<Option<Arc<UdpSocket>>>>::default();
        let socket = Forging { own, decoy: decoy.clone() };
        self.endpoint.rebind_abstract(Arc::new(socket)).unwrap();
        Forger { decoy }
    }

    /// Continues from this address over a link with this bandwidth towards the client.
    pub(crate) fn move_to_narrow_link(&self, ip: &str, bytes_per_s: u64) {
        let socket = std::net::UdpSocket::bind((ip, 0)).unwrap();
        // The queue in front of the link, some tenths of a second.
        socket2::SockRef::from(&socket).set_recv_buffer_size(64 * 1024).unwrap();
        let own = quinn::TokioRuntime.wrap_udp_socket(socket).unwrap();
        let free = Mutex::new(Box::pin(tokio::time::sleep(Duration::ZERO)));
        self.endpoint.rebind_abstract(Arc::new(Narrow { own, bytes_per_s, free })).unwrap();
    }

    pub(crate) async fn begin(&self, request: Request<()>) -> Stream {
        self.sender.clone().send_request(request).await.expect("a request")
    }

    pub(crate) async fn ask_with(
        &self,
        request: Request<()>,
        body: &[u8],
        trailers: Option<HeaderMap>,
    ) -> Result<Answer, h3::error::StreamError> {
        exchange(self.begin(request).await, body, trailers).await
    }

    pub(crate) async fn ask(&self, request: Request<()>, body: &[u8]) -> Answer {
        self.ask_with(request, body, None).await.expect("an answer")
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(request("GET", path), b"").await
    }
}

/// A QUIC connection without HTTP/3 streams; ends with its endpoint.
pub(crate) async fn connect(
    address: SocketAddr,
    name: &str,
    authority: &str,
    client_pair: Option<&Pair>,
) -> Result<(quinn::Endpoint, quinn::Connection), quinn::ConnectionError> {
    connect_over(address, name, authority, client_pair, quinn::TransportConfig::default()).await
}

async fn connect_over(
    address: SocketAddr,
    name: &str,
    authority: &str,
    client_pair: Option<&Pair>,
    transport: quinn::TransportConfig,
) -> Result<(quinn::Endpoint, quinn::Connection), quinn::ConnectionError> {
    let mut tls = client_config(authority, client_pair);
    tls.enable_early_data = true;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    config.transport_config(Arc::new(transport));
    let mut endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    endpoint.set_default_client_config(config);
    let quic = endpoint.connect(address, name).unwrap().await?;
    Ok((endpoint, quic))
}

/// Makes datagrams of a client seem to come from another address.
pub(crate) struct Forger {
    decoy: Arc<Mutex<Option<Arc<UdpSocket>>>>,
}

impl Forger {
    /// Sends from this socket from now on; the client receives nothing from it.
    pub(crate) fn pretend(&self, decoy: Option<UdpSocket>) {
        *self.decoy.lock().unwrap() = decoy.map(Arc::new);
    }

    /// Waits for a datagram to the other address; returns its length.
    pub(crate) async fn lost(&self) -> usize {
        let decoy = self.decoy.lock().unwrap().clone().expect("it pretends");
        decoy.recv(&mut [0; 2048]).await.unwrap()
    }
}

/// The socket of a client, which can be bypassed for sending.
#[derive(Debug)]
struct Forging {
    own: Arc<dyn AsyncUdpSocket>,
    decoy: Arc<Mutex<Option<Arc<UdpSocket>>>>,
}

impl AsyncUdpSocket for Forging {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.own.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        match &*self.decoy.lock().unwrap() {
            Some(decoy) => decoy.try_send_to(transmit.contents, transmit.destination).map(drop),
            None => self.own.try_send(transmit),
        }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.own.poll_recv(cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.own.local_addr()
    }

    fn max_receive_segments(&self) -> usize {
        self.own.max_receive_segments()
    }
}

/// A socket behind a narrow link.
#[derive(Debug)]
struct Narrow {
    own: Arc<dyn AsyncUdpSocket>,
    bytes_per_s: u64,
    /// Time at which the link can deliver the next datagram.
    free: Mutex<Pin<Box<Sleep>>>,
}

impl AsyncUdpSocket for Narrow {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.own.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.own.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut free = self.free.lock().unwrap();
        ready!(free.as_mut().poll(cx));
        // One datagram at a time, so that the rate applies to each.
        let count = ready!(self.own.poll_recv(cx, &mut bufs[..1], &mut meta[..1]))?;
        let nanos = meta[0].len as u64 * 1_000_000_000 / self.bytes_per_s;
        let at = free.deadline().max(Instant::now() - BURST) + Duration::from_nanos(nanos);
        free.as_mut().reset(at);
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.own.local_addr()
    }
}

/// Burst of an idle link, as time: timers have a resolution of one millisecond.
const BURST: Duration = Duration::from_millis(5);

/// Sends body and trailers while the response is read.
pub(crate) async fn exchange(
    stream: Stream,
    body: &[u8],
    trailers: Option<HeaderMap>,
) -> Result<Answer, h3::error::StreamError> {
    let (mut sender, mut receiver) = stream.split();
    let body = Bytes::copy_from_slice(body);
    let sending = async {
        // The response shows the fate of the body.
        if !body.is_empty() && sender.send_data(body).await.is_err() {
            return;
        }
        if let Some(trailers) = trailers {
            let _ = sender.send_trailers(trailers).await;
        }
        let _ = sender.finish().await;
    };
    let reading = async {
        let (head, ()) = receiver.recv_response().await?.into_parts();
        let mut body = Vec::new();
        while let Some(mut data) = receiver.recv_data().await? {
            let count = data.remaining();
            body.extend_from_slice(&data.copy_to_bytes(count));
        }
        let trailers = receiver.recv_trailers().await?.unwrap_or_default();
        Ok(Answer { status: head.status.as_u16(), fields: head.headers, body, trailers })
    };
    tokio::join!(sending, reading).1
}

/// A request to the gateway.
pub(crate) fn request(method: &str, path: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("https://a.test{path}")).body(()).unwrap()
}
