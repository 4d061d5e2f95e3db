//! Which endpoint a datagram is for, told by the connection identifier in it.
//!
//! The kernel spreads datagrams over the workers' sockets by address. A client whose address changes would
//! land at a worker that does not know it: that worker hands its datagrams over. So does a process that took
//! over from another, for the connections of that one. Knows no connection.

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
/// With the generation of the process and the number of the endpoint behind them.
const ID_BYTES: usize = NONCE_BYTES + 3;
/// Bytes of the secret.
pub(super) const SECRET_BYTES: usize = 16;
/// Datagrams that wait for a worker to take them over; more are lost, as on any network.
const HANDED_MAX: usize = 1024;
/// Set in the first byte of packets that belong to a handshake (RFC 9000 §17.2).
const LONG_HEADER: u8 = 0x80;
/// The type of such a packet, and the one whose identifier was chosen here.
const TYPE_BITS: u8 = 0x30;
const HANDSHAKE: u8 = 0x20;
/// Where the length of the identifier stands in them, behind the version.
const LENGTH_AT: usize = 5;

/// Makes identifiers that tell process and endpoint, but only to who knows the secret: identifiers of one
/// connection must have nothing in common for others (RFC 9000 §5.1).
#[derive(Clone)]
pub(super) struct DatagramSteering {
    secret: Arc<HeaderProtectionKey>,
    /// Processes that follow each other have generations that do.
    generation: u8,
    endpoints: usize,
}

/// Whose a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ConnectionOwner {
    generation: u8,
    endpoint: usize,
}

/// What becomes of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DatagramRoute {
    /// This endpoint's, or nobody's that is known.
    Keep,
    /// Another endpoint's of this process.
    Endpoint(usize),
    /// The process's before this one that has this generation.
    Predecessor(u8),
    /// The next process's, which reads from the socket too by now.
    Successor,
}

impl DatagramSteering {
    pub(super) fn new(secret: &[u8; SECRET_BYTES], generation: u8, endpoints: usize) -> DatagramSteering {
        let secret = HeaderProtectionKey::new(&AES_128, secret).expect("the length of this cipher's keys");
        DatagramSteering { secret: Arc::new(secret), generation, endpoints }
    }

    /// What makes the identifiers of an endpoint.
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

    /// Whom an identifier was made for; some of those that were made elsewhere seem to have been made here.
    fn owner(&self, id: &[u8]) -> Option<ConnectionOwner> {
        let (nonce, hidden) = id.split_first_chunk::<NONCE_BYTES>()?;
        let [generation, high, low] = hidden.try_into().ok()?;
        let mask = self.mask(nonce);
        let endpoint = u16::from_be_bytes([high ^ mask[1], low ^ mask[2]]);
        Some(ConnectionOwner { generation: generation ^ mask[0], endpoint: endpoint.into() })
    }

    fn mask(&self, nonce: &[u8; NONCE_BYTES]) -> [u8; 5] {
        let mut sample = [0; 16];
        sample[..NONCE_BYTES].copy_from_slice(nonce);
        self.secret.new_mask(&sample).expect("the length of this cipher's samples")
    }

    /// Whose connection a datagram seems to be of.
    fn told(&self, datagram: &[u8]) -> Option<ConnectionOwner> {
        let (first, rest) = datagram.split_first()?;
        if first & LONG_HEADER == 0 {
            return self.owner(rest.get(..ID_BYTES)?);
        }
        // Other identifiers in them may be of the client's own making.
        let (length, rest) = datagram.get(LENGTH_AT..)?.split_first()?;
        let is_ours = first & TYPE_BITS == HANDSHAKE && usize::from(*length) == ID_BYTES;
        is_ours.then(|| self.owner(rest.get(..ID_BYTES)?)).flatten()
    }

    /// The endpoint of this process that a datagram is for, of a handshake, too: what another process passes on
    /// came to none of them.
    fn endpoint(&self, datagram: &[u8]) -> Option<usize> {
        let owner = self.told(datagram).filter(|owner| owner.generation == self.generation)?;
        Some(owner.endpoint).filter(|endpoint| *endpoint < self.endpoints)
    }

    /// Where a datagram goes that came to an endpoint. Those of a handshake stay at the endpoint they came to, as
    /// nobody moves before it is over; but a process that was taken over from still has its own.
    fn way(&self, datagram: &[u8], endpoint: usize) -> DatagramRoute {
        let is_of_handshake = datagram.first().is_some_and(|first| first & LONG_HEADER != 0);
        match self.told(datagram) {
            Some(owner) if owner.generation == self.generation => match owner.endpoint {
                other if is_of_handshake || other == endpoint || other >= self.endpoints => {
                    DatagramRoute::Keep
                }
                other => DatagramRoute::Endpoint(other),
            },
            Some(owner) if owner.generation == self.generation.wrapping_add(1) => DatagramRoute::Successor,
            Some(owner) if self.generation.wrapping_sub(owner.generation) < GENERATIONS_MAX => {
                DatagramRoute::Predecessor(owner.generation)
            }
            _ => DatagramRoute::Keep,
        }
    }
}

/// More processes of a node are hardly there at once.
const GENERATIONS_MAX: u8 = 64;

/// Makes an endpoint's identifiers.
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

/// What an endpoint is handed.
pub(super) enum SteeringMessage {
    /// A datagram that came to another one.
    Datagram(ForwardedDatagram),
    /// Another process reads from the socket from now on, and passes on what is for this one.
    HandOver,
}

/// An endpoint's end of what the endpoints of a process hand to each other.
pub(super) struct SteeringMailbox {
    pub(super) others: Vec<Sender<SteeringMessage>>,
    own: Receiver<SteeringMessage>,
}

/// The ends of so many endpoints.
pub(super) fn mailboxes(endpoints: usize) -> Vec<SteeringMailbox> {
    let (others, own): (Vec<_>, Vec<_>) = (0..endpoints).map(|_| channel(HANDED_MAX)).unzip();
    own.into_iter().map(|own| SteeringMailbox { others: others.clone(), own }).collect()
}

/// Gives each endpoint of this process what another one passes on, until either of the two has ended.
pub(super) fn pass_on(
    mut mouth: DatagramReceiver,
    steering: &DatagramSteering,
    endpoints: &[Sender<SteeringMessage>],
) {
    while let Some(handed) = mouth.take() {
        let (before, rest) = endpoints.split_at(steering.endpoint(handed.data()).unwrap_or(0));
        // Where its own has ended, any other one tells the client by a reset.
        let Some(endpoint) = rest.iter().chain(before).find(|endpoint| !endpoint.is_closed()) else { return };
        // One that is behind loses it, as on any network.
        let _ = endpoint.try_send(SteeringMessage::Datagram(handed));
    }
}

/// An endpoint's socket: takes what is for this endpoint, from wherever it came.
pub(super) struct SteeredSocket {
    socket: Arc<dyn AsyncUdpSocket>,
    steering: DatagramSteering,
    endpoint: usize,
    others: Vec<Sender<SteeringMessage>>,
    /// Where datagrams go that are for the processes before.
    before: Arc<[DatagramForwarder]>,
    /// This endpoint alone takes from it.
    inlet: Mutex<DatagramInlet>,
}

/// Where an endpoint takes datagrams from beside its socket.
struct DatagramInlet {
    own: Receiver<SteeringMessage>,
    /// Another process reads from the socket.
    has_left: bool,
}

impl SteeredSocket {
    pub(super) fn new(
        socket: Arc<dyn AsyncUdpSocket>,
        steering: DatagramSteering,
        endpoint: usize,
        mailbox: SteeringMailbox,
        before: Arc<[DatagramForwarder]>,
    ) -> SteeredSocket {
        let inlet = Mutex::new(DatagramInlet { own: mailbox.own, has_left: false });
        SteeredSocket { socket, steering, endpoint, others: mailbox.others, before, inlet }
    }

    /// Takes what others handed over, and says whether the socket is still this process's to read from.
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

    /// Keeps the datagrams that are for this endpoint and hands on the others; says how many bytes are left.
    fn partition(&self, room: &mut [u8], meta: &RecvMeta) -> usize {
        let mut kept = 0;
        let mut start = 0;
        while start < meta.len {
            let end = (start + meta.stride.max(1)).min(meta.len);
            let keeps = match self.steering.way(&room[start..end], self.endpoint) {
                DatagramRoute::Keep => true,
                DatagramRoute::Endpoint(other) => {
                    let handed = SteeringMessage::Datagram(ForwardedDatagram::new(&room[start..end], meta));
                    // One that is behind loses it, as on any network. Where it has ended, the client is told by
                    // a reset, which any other can make.
                    matches!(self.others[other].try_send(handed), Err(TrySendError::Closed(_)))
                }
                // Where that process has ended, the client is told by a reset, which we can make as it could.
                DatagramRoute::Predecessor(generation) => {
                    let mut pipes = self.before.iter().filter(|pipe| pipe.generation == generation);
                    !pipes.any(|pipe| pipe.send(&room[start..end], meta))
                }
                DatagramRoute::Successor => false,
            };
            if keeps {
                room.copy_within(start..end, kept);
                kept += end - start;
            }
            start = end;
        }
        kept
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
            0 if !reads => return Poll::Pending,
            0 => ready!(self.socket.poll_recv(cx, rooms, metas))?,
            handed => handed,
        };
        for (room, meta) in rooms.iter_mut().zip(metas).take(count) {
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
