//! Steering of QUIC datagrams to endpoints by connection identifier.
//!
//! The kernel distributes datagrams over the workers' sockets by client address. When that address changes,
//! another worker receives them and forwards them to the owner; a successor forwards those of its
//! predecessor's connections. Must not depend on connections.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use aws_lc_rs::aead::quic::{AES_128, HeaderProtectionKey};
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, ConnectionId, ConnectionIdGenerator, UdpPoller};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::datagram_link::{DatagramForwarder, DatagramReceiver, ForwardedDatagram};

/// Random bytes of an identifier.
const NONCE_BYTES: usize = 8;
/// Length of an identifier: nonce, generation of the process, number of the endpoint.
const ID_BYTES: usize = NONCE_BYTES + 3;
/// Length of the steering secret, in bytes.
pub(super) const SECRET_BYTES: usize = 16;
/// Forwarded datagrams that may wait for a worker. Further ones are lost, as UDP permits.
const HANDED_MAX: usize = 1024;
/// Header form bit: set in the first byte of long headers (RFC 9000 §17.2).
const LONG_HEADER: u8 = 0x80;
/// Long packet type bits, and the one type that always carries an identifier of the gateway.
const TYPE_BITS: u8 = 0x30;
const HANDSHAKE: u8 = 0x20;
/// Offset of the destination identifier's length in a long header, after the version.
const LENGTH_AT: usize = 5;

/// Creates identifiers that encode process and endpoint. The encoding is masked with a secret, because an
/// observer must not be able to correlate the identifiers of a connection (RFC 9000 §5.1).
#[derive(Clone)]
pub(super) struct DatagramSteering {
    secret: Arc<HeaderProtectionKey>,
    /// Generation of the process; a successor has the next one.
    generation: u8,
    endpoints: usize,
}

/// Owner of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ConnectionOwner {
    generation: u8,
    endpoint: usize,
}

/// Destination of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DatagramRoute {
    /// This endpoint, or no known owner.
    Keep,
    /// Another endpoint of this process.
    Endpoint(usize),
    /// The predecessor, which drains its connections.
    Predecessor,
    /// The successor, which reads from the same socket already.
    Successor,
}

impl DatagramSteering {
    pub(super) fn new(secret: &[u8; SECRET_BYTES], generation: u8, endpoints: usize) -> DatagramSteering {
        let secret = HeaderProtectionKey::new(&AES_128, secret).expect("the length of this cipher's keys");
        DatagramSteering { secret: Arc::new(secret), generation, endpoints }
    }

    /// Generator of identifiers for an endpoint.
    pub(super) fn ids(&self, endpoint: usize) -> SteeredIdGenerator {
        SteeredIdGenerator { steering: self.clone(), endpoint }
    }

    fn id(&self, nonce: [u8; NONCE_BYTES], endpoint: usize) -> [u8; ID_BYTES] {
        let [high, low] = (endpoint as u16).to_be_bytes();
        let hidden = [self.generation, high, low];
        let mut id = [0; ID_BYTES];
        id[..NONCE_BYTES].copy_from_slice(&nonce);
        for ((byte, hidden), mask) in id[NONCE_BYTES..].iter_mut().zip(hidden).zip(self.mask(&nonce)) {
            *byte = hidden ^ mask;
        }
        id
    }

    /// Decodes the owner. An identifier from elsewhere decodes to an arbitrary one.
    fn owner(&self, id: &[u8]) -> Option<ConnectionOwner> {
        let (nonce, hidden) = id.split_first_chunk::<NONCE_BYTES>()?;
        let [generation, high, low] = hidden.try_into().ok()?;
        let mask = self.mask(nonce);
        let endpoint = u16::from_be_bytes([high ^ mask[1], low ^ mask[2]]);
        Some(ConnectionOwner { generation: generation ^ mask[0], endpoint: endpoint.into() })
    }

    fn mask(&self, nonce: &[u8; NONCE_BYTES]) -> [u8; 5] {
        // As in QUIC header protection (RFC 9001 §5.4): the nonce is the sample.
        let mut sample = [0; 16];
        sample[..NONCE_BYTES].copy_from_slice(nonce);
        self.secret.new_mask(&sample).expect("the length of this cipher's samples")
    }

    /// Apparent owner of a datagram.
    fn apparent_owner(&self, datagram: &[u8]) -> Option<ConnectionOwner> {
        let (first, rest) = datagram.split_first()?;
        if first & LONG_HEADER == 0 {
            return self.owner(rest.get(..ID_BYTES)?);
        }
        // Other long headers may carry an identifier that the client chose.
        let (length, rest) = datagram.get(LENGTH_AT..)?.split_first()?;
        let has_our_id = first & TYPE_BITS == HANDSHAKE && usize::from(*length) == ID_BYTES;
        has_our_id.then(|| self.owner(rest.get(..ID_BYTES)?)).flatten()
    }

    /// Endpoint of this process for a datagram from another process. Handshake packets count too: no endpoint
    /// of this process has received them.
    fn endpoint(&self, datagram: &[u8]) -> Option<usize> {
        let owner = self.apparent_owner(datagram).filter(|owner| owner.generation == self.generation)?;
        Some(owner.endpoint).filter(|endpoint| *endpoint < self.endpoints)
    }

    /// Destination of a datagram that `endpoint` received. Handshake packets stay, as a client must not
    /// migrate before the handshake ends (RFC 9000 §9), unless they belong to a predecessor.
    fn route(&self, datagram: &[u8], endpoint: usize) -> DatagramRoute {
        let is_of_handshake = datagram.first().is_some_and(|first| first & LONG_HEADER != 0);
        match self.apparent_owner(datagram) {
            Some(owner) if owner.generation == self.generation => match owner.endpoint {
                other if is_of_handshake || other == endpoint || other >= self.endpoints => {
                    DatagramRoute::Keep
                }
                other => DatagramRoute::Endpoint(other),
            },
            Some(owner) if owner.generation == self.generation.wrapping_add(1) => DatagramRoute::Successor,
            Some(owner) if owner.generation == self.generation.wrapping_sub(1) => DatagramRoute::Predecessor,
            _ => DatagramRoute::Keep,
        }
    }
}

/// Generates the identifiers of one endpoint.
pub(super) struct SteeredIdGenerator {
    steering: DatagramSteering,
    endpoint: usize,
}

impl ConnectionIdGenerator for SteeredIdGenerator {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut nonce = [0; NONCE_BYTES];
        aws_lc_rs::rand::fill(&mut nonce).expect("the system has randomness");
        ConnectionId::new(&self.steering.id(nonce, self.endpoint))
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Message to an endpoint.
pub(super) enum SteeringMessage {
    /// A datagram that another endpoint received.
    Datagram(ForwardedDatagram),
    /// The successor reads from the socket from now on, and forwards datagrams for this process.
    HandOver,
}

/// Receiving half of an endpoint, with the senders to all endpoints of the process.
pub(super) struct SteeringMailbox {
    pub(super) others: Vec<Sender<SteeringMessage>>,
    own: Receiver<SteeringMessage>,
}

/// Creates the mailboxes of `endpoints` endpoints.
pub(super) fn mailboxes(endpoints: usize) -> Vec<SteeringMailbox> {
    let (others, own): (Vec<_>, Vec<_>) = (0..endpoints).map(|_| channel(HANDED_MAX)).unzip();
    own.into_iter().map(|own| SteeringMailbox { others: others.clone(), own }).collect()
}

/// Delivers datagrams from the successor to the endpoints, until the successor or all endpoints have ended.
pub(super) fn pass_on(
    mut receiver: DatagramReceiver,
    steering: &DatagramSteering,
    endpoints: &[Sender<SteeringMessage>],
) {
    while let Some(handed) = receiver.take() {
        let (before, rest) = endpoints.split_at(steering.endpoint(handed.data()).unwrap_or(0));
        // If the owner has ended, any other endpoint can send the client a stateless reset (RFC 9000 §10.3).
        let Some(endpoint) = rest.iter().chain(before).find(|endpoint| !endpoint.is_closed()) else { return };
        // A full mailbox loses the datagram, as UDP permits.
        let _ = endpoint.try_send(SteeringMessage::Datagram(handed));
    }
}

/// Socket of an endpoint: receives its datagrams from the socket and the mailbox, and forwards all others.
pub(super) struct SteeredSocket {
    socket: Arc<dyn AsyncUdpSocket>,
    steering: DatagramSteering,
    endpoint: usize,
    others: Vec<Sender<SteeringMessage>>,
    /// Link to the predecessor; `None` in a first process.
    predecessor: Option<Arc<DatagramForwarder>>,
    /// Locked by this endpoint only.
    inlet: Mutex<DatagramInlet>,
}

/// State of the mailbox of an endpoint.
struct DatagramInlet {
    own: Receiver<SteeringMessage>,
    /// Whether the successor reads from the socket.
    has_left: bool,
}

impl SteeredSocket {
    pub(super) fn new(
        socket: Arc<dyn AsyncUdpSocket>,
        steering: DatagramSteering,
        endpoint: usize,
        mailbox: SteeringMailbox,
        predecessor: Option<Arc<DatagramForwarder>>,
    ) -> SteeredSocket {
        let inlet = Mutex::new(DatagramInlet { own: mailbox.own, has_left: false });
        SteeredSocket { socket, steering, endpoint, others: mailbox.others, predecessor, inlet }
    }

    /// Receives forwarded datagrams; returns their number, and whether this process still reads from the
    /// socket.
    fn receive_forwarded(
        &self,
        cx: &mut Context<'_>,
        rooms: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> (usize, bool) {
        let mut inlet = self.inlet.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = 0;
        while count < rooms.len().min(metas.len()) {
            match inlet.own.poll_recv(cx) {
                Poll::Ready(Some(SteeringMessage::Datagram(handed))) => {
                    handed.put(&mut rooms[count], &mut metas[count]);
                    count += 1;
                }
                Poll::Ready(Some(SteeringMessage::HandOver)) => inlet.has_left = true,
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        (count, !inlet.has_left)
    }

    /// Compacts the datagrams of this endpoint in `room` and forwards the others; returns the remaining
    /// bytes.
    fn partition(&self, room: &mut [u8], meta: &RecvMeta) -> usize {
        let mut retained = 0;
        let mut start = 0;
        while start < meta.len {
            // A receive may return several datagrams of `stride` bytes each (GRO).
            let end = (start + meta.stride.max(1)).min(meta.len);
            let keeps = match self.steering.route(&room[start..end], self.endpoint) {
                DatagramRoute::Keep => true,
                DatagramRoute::Endpoint(other) => {
                    let handed = SteeringMessage::Datagram(ForwardedDatagram::new(&room[start..end], meta));
                    // A full mailbox loses the datagram. If the owner has ended, this endpoint sends a
                    // stateless reset.
                    matches!(self.others[other].try_send(handed), Err(TrySendError::Closed(_)))
                }
                // If the predecessor has ended, this endpoint sends a stateless reset: both share the key.
                DatagramRoute::Predecessor => {
                    let link = self.predecessor.as_ref();
                    !link.is_some_and(|link| link.send(&room[start..end], meta))
                }
                DatagramRoute::Successor => false,
            };
            if keeps {
                room.copy_within(start..end, retained);
                retained += end - start;
            }
            start = end;
        }
        retained
    }
}

impl AsyncUdpSocket for SteeredSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.socket.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        rooms: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let (handed, reads) = self.receive_forwarded(cx, rooms, metas);
        let count = match handed {
            // The mailbox has registered the task, so a forwarded datagram wakes it.
            0 if !reads => return Poll::Pending,
            0 => ready!(self.socket.poll_recv(cx, rooms, metas))?,
            handed => handed,
        };
        for (room, meta) in rooms.iter_mut().zip(metas).take(count) {
            // If every datagram was forwarded, the length is 0 and the library skips the entry.
            meta.len = self.partition(room, meta);
        }
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}

impl fmt::Debug for SteeredSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SteeredSocket").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
