//! A worker's endpoint of QUIC: its socket, its secrets, its bounds.
//!
//! All workers of a listener share the secrets, so that each can answer for the others. Knows no stream.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{hkdf, hmac, rand};
use quinn::{Endpoint, EndpointConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt};

use super::runtime::Thread;
use super::steer::{Mail, SteeredSocket, Steering, mail};
use crate::settings::{ListenerSettings, Settings};
use crate::tls::Acceptor;

/// Bytes of answers that wait for a client on all its streams.
const SEND_WINDOW_BYTES: u64 = 1024 * 1024;
/// Streams of the client's that carry no requests: its control stream, those of header compression, and room
/// for kinds nobody knows yet (RFC 9114 §6.2).
const SIDE_STREAMS_MAX: u32 = 16;

/// A bound socket for HTTP/3 of one worker.
pub struct Http3Listener {
    socket: UdpSocket,
    /// Its number among the listener's endpoints.
    number: usize,
    server: ServerConfig,
    reset_key: Arc<hmac::Key>,
    steering: Steering,
    mail: Mail,
}

/// Binds a socket per worker to the address of a listener whose own is bound already.
pub fn bind(settings: &ListenerSettings, workers: usize) -> io::Result<Vec<UdpSocket>> {
    crate::l4::udp::bind(settings, workers)
}

/// What serves HTTP/3 on these sockets, one of each worker.
pub fn listen(
    sockets: Vec<UdpSocket>,
    acceptor: &Acceptor,
    settings: &Settings,
) -> Result<Vec<Http3Listener>, String> {
    let mut secret = [0; 32];
    rand::fill(&mut secret).map_err(|_| "the system gives no randomness")?;
    let token_key = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&secret);
    let reset_key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new())
        .map_err(|_| "the system gives no randomness")?;
    let mut server =
        ServerConfig::new(Arc::new(acceptor.quic(settings.http3.early_data)?), Arc::new(token_key));
    server.transport_config(Arc::new(transport(settings)));
    let (steering, reset_key) = (Steering::new(sockets.len()), Arc::new(reset_key));
    let mails = mail(sockets.len());
    let each = sockets.into_iter().zip(mails).enumerate().map(|(number, (socket, mail))| Http3Listener {
        socket,
        number,
        server: server.clone(),
        reset_key: reset_key.clone(),
        steering: steering.clone(),
        mail,
    });
    Ok(each.collect())
}

fn transport(settings: &Settings) -> TransportConfig {
    let http3 = &settings.http3;
    let mut transport = TransportConfig::default();
    let idle = IdleTimeout::try_from(Duration::from_millis(settings.idle_timeout_ms)).ok();
    transport
        .max_concurrent_bidi_streams(http3.streams_max.into())
        .max_concurrent_uni_streams(SIDE_STREAMS_MAX.into())
        .stream_receive_window(http3.stream_window_bytes.into())
        .receive_window(http3.connection_window_bytes.into())
        .send_window(SEND_WINDOW_BYTES)
        .max_idle_timeout(idle.filter(|_| settings.idle_timeout_ms > 0))
        // Nobody here speaks in datagrams.
        .datagram_receive_buffer_size(None);
    transport
}

impl Http3Listener {
    /// The endpoint, on the thread of its worker.
    pub(super) fn open(self) -> io::Result<Endpoint> {
        let mut config = EndpointConfig::new(self.reset_key);
        let steering = self.steering.clone();
        config.cid_generator(move || Box::new(steering.ids(self.number)));
        let runtime: Arc<dyn quinn::Runtime> = Arc::new(Thread::start());
        let socket = runtime.wrap_udp_socket(self.socket)?;
        let socket = SteeredSocket::new(socket, self.steering, self.number, self.mail);
        Endpoint::new_with_abstract_socket(config, Some(self.server), Arc::new(socket), runtime)
    }
}

/// Why a connection ends that asked for too much (RFC 9114 §8.1).
pub(super) const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(0x107);
