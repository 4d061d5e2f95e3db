//! Which worker a datagram is for, told by the connection identifier in it.
//!
//! The kernel spreads datagrams over the workers' sockets by address. A client whose address changes would
//! land at a worker that does not know it: that worker hands its datagrams over. Knows no connection.

use std::fmt;
use std::hash::BuildHasher;
use std::hash::RandomState;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, ConnectionId, ConnectionIdGenerator, UdpPoller};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Random bytes of an identifier.
const NONCE_BYTES: usize = 8;
/// With the number of the worker behind them.
const ID_BYTES: usize = NONCE_BYTES + 2;
/// Datagrams that wait for a worker to take them over; more are lost, as on any network.
const HANDED_MAX: usize = 1024;
/// Set in the first byte of packets that belong to a handshake (RFC 9000 §17.2).
const LONG_HEADER: u8 = 0x80;

/// Makes identifiers that tell the worker, but only to who knows the secret: identifiers of one connection
/// must have nothing in common for others (RFC 9000 §5.1).
#[derive(Clone)]
pub(super) struct Steering {
    secret: RandomState,
    workers: usize,
}

impl Steering {
    pub(super) fn new(workers: usize) -> Steering {
        Steering { secret: RandomState::new(), workers }
    }

    /// What makes the identifiers of a worker.
    pub(super) fn ids(&self, worker: usize) -> Ids {
        Ids { steering: self.clone(), worker }
    }

    fn id(&self, nonce: [u8; NONCE_BYTES], worker: usize) -> [u8; ID_BYTES] {
        let mut id = [0; ID_BYTES];
        id[..NONCE_BYTES].copy_from_slice(&nonce);
        id[NONCE_BYTES..].copy_from_slice(&(self.mask(&nonce) ^ worker as u16).to_be_bytes());
        id
    }

    /// The worker an identifier was made for, if it was made here.
    fn owner(&self, id: &[u8]) -> Option<usize> {
        let (nonce, hidden) = id.split_first_chunk::<NONCE_BYTES>()?;
        let hidden = u16::from_be_bytes(hidden.try_into().ok()?);
        let worker = usize::from(hidden ^ self.mask(nonce));
        (worker < self.workers).then_some(worker)
    }

    fn mask(&self, nonce: &[u8; NONCE_BYTES]) -> u16 {
        self.secret.hash_one(nonce) as u16
    }

    /// The worker a datagram is for, where it says. Only those of a connection whose handshake is over can
    /// come from another address than before.
    fn owner_of(&self, datagram: &[u8]) -> Option<usize> {
        let (first, rest) = datagram.split_first()?;
        if first & LONG_HEADER != 0 {
            return None;
        }
        self.owner(rest.get(..ID_BYTES)?)
    }
}

/// Makes a worker's identifiers.
pub(super) struct Ids {
    steering: Steering,
    worker: usize,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut nonce = [0; NONCE_BYTES];
        aws_lc_rs::rand::fill(&mut nonce).expect("the system has randomness");
        ConnectionId::new(&self.steering.id(nonce, self.worker))
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// A datagram that came to another worker than it was for.
pub(super) struct Handed {
    data: Box<[u8]>,
    peer: SocketAddr,
    ecn: Option<EcnCodepoint>,
    local: Option<IpAddr>,
}

/// A worker's end of what the workers hand to each other.
pub(super) struct Mail {
    others: Vec<Sender<Handed>>,
    own: Receiver<Handed>,
}

/// The ends of so many workers.
pub(super) fn mail(workers: usize) -> Vec<Mail> {
    let (others, own): (Vec<_>, Vec<_>) = (0..workers).map(|_| channel(HANDED_MAX)).unzip();
    own.into_iter().map(|own| Mail { others: others.clone(), own }).collect()
}

/// A worker's socket: takes what is for this worker, from wherever it came.
pub(super) struct SteeredSocket {
    socket: Arc<dyn AsyncUdpSocket>,
    steering: Steering,
    worker: usize,
    others: Vec<Sender<Handed>>,
    /// This worker alone takes from it.
    own: Mutex<Receiver<Handed>>,
}

impl SteeredSocket {
    pub(super) fn new(
        socket: Arc<dyn AsyncUdpSocket>,
        steering: Steering,
        worker: usize,
        mail: Mail,
    ) -> SteeredSocket {
        SteeredSocket { socket, steering, worker, others: mail.others, own: Mutex::new(mail.own) }
    }

    /// Takes what other workers handed over; 0 when there is nothing.
    fn take_handed(
        &self,
        cx: &mut Context<'_>,
        rooms: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> usize {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let mut count = 0;
        for (room, meta) in rooms.iter_mut().zip(metas) {
            let Poll::Ready(Some(handed)) = own.poll_recv(cx) else { break };
            let len = handed.data.len().min(room.len());
            room[..len].copy_from_slice(&handed.data[..len]);
            *meta = RecvMeta::default();
            (meta.addr, meta.len, meta.stride) = (handed.peer, len, len.max(1));
            (meta.ecn, meta.dst_ip) = (handed.ecn, handed.local);
            count += 1;
        }
        count
    }

    /// Keeps the datagrams that are for this worker and hands on the others; says how many bytes are left.
    fn keep_own(&self, room: &mut [u8], meta: &RecvMeta) -> usize {
        let mut kept = 0;
        let mut start = 0;
        while start < meta.len {
            let end = (start + meta.stride.max(1)).min(meta.len);
            match self.steering.owner_of(&room[start..end]) {
                Some(owner) if owner != self.worker => {
                    let data = room[start..end].into();
                    let handed = Handed { data, peer: meta.addr, ecn: meta.ecn, local: meta.dst_ip };
                    // One that is behind loses it, as on any network.
                    let _ = self.others[owner].try_send(handed);
                }
                _ => {
                    room.copy_within(start..end, kept);
                    kept += end - start;
                }
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
        let handed = self.take_handed(cx, rooms, metas);
        if handed > 0 {
            return Poll::Ready(Ok(handed));
        }
        let count = ready!(self.socket.poll_recv(cx, rooms, metas))?;
        for (room, meta) in rooms.iter_mut().zip(metas).take(count) {
            meta.len = self.keep_own(room, meta);
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
        f.debug_struct("SteeredSocket").field("worker", &self.worker).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
