//! QUIC endpoint of a worker: socket, keys and transport limits.
//!
//! All workers of a listener share the keys, so that each can respond for the others. Must not depend on
//! streams.

use std::io;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{hkdf, hmac, rand};
use quinn::{Endpoint, EndpointConfig, IdleTimeout, ServerConfig, TransportConfig};

use super::datagram_link::{DatagramForwarder, DatagramReceiver};
use super::runtime::WorkerRuntime;
use super::steering::{
    DatagramSteering, SECRET_BYTES, SteeredSocket, SteeringMailbox, SteeringMessage, mailboxes, pass_on,
};
use tokio::sync::mpsc::Sender;

use crate::settings::WorkerSettings;
use crate::tls::DownstreamTlsAcceptor;

/// Send window of a connection, in bytes, over all its streams.
const SEND_WINDOW_BYTES: u64 = 1024 * 1024;
/// Unidirectional streams of a client: control, QPACK encoder and decoder, and reserved or unknown types
/// (RFC 9114 §6.2).
const SIDE_STREAMS_MAX: u32 = 16;

/// A bound UDP socket for HTTP/3, of one worker.
pub struct Http3Listener {
    socket: UdpSocket,
    /// Number of the endpoint in its listener.
    number: usize,
    server: ServerConfig,
    reset_key: Arc<hmac::Key>,
    steering: DatagramSteering,
    mailbox: SteeringMailbox,
    predecessor: Option<Arc<DatagramForwarder>>,
}

/// HTTP/3 keys that all endpoints of a node share; a successor inherits them.
#[derive(Clone)]
pub struct Http3Identity {
    secret: [u8; 32],
    generation: u8,
}

impl Http3Identity {
    /// Creates the identity of a first process. Fails without system randomness.
    pub fn new() -> Result<Http3Identity, String> {
        let mut secret = [0; 32];
        rand::fill(&mut secret).map_err(|_| "the system gives no randomness")?;
        Ok(Http3Identity { secret, generation: 0 })
    }

    /// Creates the identity of a successor from the exported state of its predecessor.
    pub fn following(secret: [u8; 32], generation: u8) -> Http3Identity {
        Http3Identity { secret, generation: generation.wrapping_add(1) }
    }

    /// Exports secret and generation for the successor.
    pub fn export(&self) -> ([u8; 32], u8) {
        (self.secret, self.generation)
    }

    /// Derives a key for one purpose from the secret (HKDF, RFC 5869).
    fn key<const BYTES: usize>(&self, purpose: &[u8]) -> [u8; BYTES] {
        // The secret is uniformly random, so extraction needs no salt (RFC 5869 §3.1).
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&self.secret);
        let mut key = [0; BYTES];
        let filled = secret.expand(&[purpose], KeyLength(BYTES)).and_then(|all| all.fill(&mut key));
        filled.expect("a few bytes can be made of any secret");
        key
    }
}

impl std::fmt::Debug for Http3Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http3Identity").field("generation", &self.generation).finish_non_exhaustive()
    }
}

struct KeyLength(usize);

impl hkdf::KeyType for KeyLength {
    fn len(&self) -> usize {
        self.0
    }
}

/// Announces a handover to the endpoints of a listener.
#[derive(Clone)]
pub struct Http3HandoverSender {
    steering: DatagramSteering,
    endpoints: Vec<Sender<SteeringMessage>>,
}

impl Http3HandoverSender {
    /// Stops reading from the sockets; datagrams for this process arrive through `pipe` from now on. A
    /// separate thread reads it: workers end one by one, and the last one needs the link until then.
    pub fn leave(&self, pipe: OwnedFd) {
        let Http3HandoverSender { steering, endpoints } = self.clone();
        let thread = std::thread::Builder::new().name("yumen-http3".to_owned());
        if let Err(error) = thread.spawn(move || pass_on(DatagramReceiver::new(pipe), &steering, &endpoints))
        {
            tracing::error!(%error, "HTTP/3 connections lost: no forwarding to the successor");
        }
        for endpoint in &self.endpoints {
            // An endpoint that has ended reads nothing, so the error is ignored.
            let _ = endpoint.blocking_send(SteeringMessage::HandOver);
        }
    }
}

/// Prepares HTTP/3 on `sockets`, one per worker; returns the listeners, and the sender that announces a
/// handover. `predecessor` is the link to the process that handed over.
pub fn listen(
    sockets: Vec<UdpSocket>,
    acceptor: &DownstreamTlsAcceptor,
    settings: &WorkerSettings,
    identity: &Http3Identity,
    predecessor: Option<DatagramForwarder>,
) -> Result<(Vec<Http3Listener>, Http3HandoverSender), String> {
    // Both keys derive from the inherited secret: a successor accepts the tokens of its predecessor and can
    // reset its connections (RFC 9000 §10.3).
    let token_key = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&identity.key::<32>(b"tokens"));
    let reset_key = hmac::Key::new(hmac::HMAC_SHA256, &identity.key::<32>(b"resets"));
    let mut server =
        ServerConfig::new(Arc::new(acceptor.quic(settings.http3.early_data)?), Arc::new(token_key));
    server.transport_config(Arc::new(transport(settings)));
    let secret: [u8; SECRET_BYTES] = identity.key(b"identifiers");
    let steering = DatagramSteering::new(&secret, identity.generation, sockets.len());
    let (reset_key, predecessor) = (Arc::new(reset_key), predecessor.map(Arc::new));
    let mailboxes = mailboxes(sockets.len());
    let endpoints = mailboxes.first().map(|mailbox| mailbox.others.clone()).unwrap_or_default();
    let leave = Http3HandoverSender { steering: steering.clone(), endpoints };
    let each = sockets.into_iter().zip(mailboxes).enumerate();
    let each = each.map(|(number, (socket, mailbox))| Http3Listener {
        socket,
        number,
        server: server.clone(),
        reset_key: reset_key.clone(),
        steering: steering.clone(),
        mailbox,
        predecessor: predecessor.clone(),
    });
    Ok((each.collect(), leave))
}

fn transport(settings: &WorkerSettings) -> TransportConfig {
    let http3 = &settings.http3;
    let mut transport = TransportConfig::default();
    let idle = IdleTimeout::try_from(Duration::from_millis(settings.timeouts.idle_ms)).ok();
    transport
        .max_concurrent_bidi_streams(http3.streams_max.into())
        .max_concurrent_uni_streams(SIDE_STREAMS_MAX.into())
        .stream_receive_window(http3.stream_window_bytes.into())
        .receive_window(http3.connection_window_bytes.into())
        .send_window(SEND_WINDOW_BYTES)
        .max_idle_timeout(idle.filter(|_| settings.timeouts.idle_ms > 0))
        // QUIC datagrams (RFC 9221) are not supported.
        .datagram_receive_buffer_size(None);
    transport
}

impl Http3Listener {
    /// Opens the endpoint; must run on the thread of its worker.
    pub(crate) fn open(self) -> io::Result<Endpoint> {
        let mut config = EndpointConfig::new(self.reset_key);
        let steering = self.steering.clone();
        config.cid_generator(move || Box::new(steering.ids(self.number)));
        let runtime: Arc<dyn quinn::Runtime> = Arc::new(WorkerRuntime::start());
        let socket = runtime.wrap_udp_socket(self.socket)?;
        let socket = SteeredSocket::new(socket, self.steering, self.number, self.mailbox, self.predecessor);
        Endpoint::new_with_abstract_socket(config, Some(self.server), Arc::new(socket), runtime)
    }
}
