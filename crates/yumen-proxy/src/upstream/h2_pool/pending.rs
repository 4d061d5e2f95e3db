//! Multiplexed connections that are being established, each by a task of its own.
//!
//! The task continues for all waiting requests, even if one of them ends.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use tokio::sync::Notify;
use yumen_snapshot::upstream::KeepaliveLimits;

use super::H2ConnectionPool;
use super::panic_watch::PanicWatch;
use crate::fault::FaultKind;
use crate::fault::SharedFailure;
use crate::runtime::clock;
use crate::runtime::task;
use crate::transport::stream::TransportStream;
use crate::upstream::UpstreamClient;
use crate::upstream::dial::{DEPARTURE_CHECK_MS, EndpointDial};
use crate::upstream::pool::PoolKey;

/// A connection that is being established.
pub(crate) struct PendingConnect {
    over: Notify,
    outcome: Cell<Option<Result<(), FaultKind>>>,
    /// The number of waiting requests.
    claims: Cell<usize>,
    begun_ms: u64,
    /// The longest connect timeout of the requests that wait, in milliseconds; 0 for no limit.
    timeout_ms: Cell<u64>,
    pub(crate) failure: Rc<SharedFailure>,
}

impl PendingConnect {
    pub(super) fn new(timeout_ms: u64) -> PendingConnect {
        PendingConnect {
            over: Notify::new(),
            outcome: Cell::default(),
            claims: Cell::default(),
            begun_ms: clock::now().mono_ms(),
            timeout_ms: Cell::new(timeout_ms),
            failure: Rc::default(),
        }
    }

    /// Returns once the connection is established or has failed. A timeout may be that of an earlier request:
    /// a request with time left tries again.
    pub(crate) async fn over(&self) -> Result<(), FaultKind> {
        if self.outcome.get().is_none() {
            self.over.notified().await;
        }
        match self.outcome.get() {
            None | Some(Err(FaultKind::ConnectTimeout)) => Ok(()),
            Some(outcome) => outcome,
        }
    }

    /// Counts another request that waits, unless `room` are waiting.
    pub(super) fn claim(&self, room: usize, timeout_ms: u64) -> bool {
        let is_free = self.claims.get() < room;
        self.claims.set(self.claims.get() + usize::from(is_free));
        if is_free {
            self.extend(timeout_ms);
        }
        is_free
    }

    /// Extends the timeout to that of another request, from the start of the connection.
    pub(super) fn extend(&self, timeout_ms: u64) {
        let known_ms = self.timeout_ms.get();
        // 0 is no limit, and therefore longer than any other timeout.
        self.timeout_ms.set(if known_ms.min(timeout_ms) == 0 { 0 } else { known_ms.max(timeout_ms) });
    }

    /// The time that is left, in milliseconds; `None` for no limit.
    fn left_ms(&self) -> Option<u64> {
        let timeout_ms = Some(self.timeout_ms.get()).filter(|timeout_ms| *timeout_ms != 0)?;
        Some(self.begun_ms.saturating_add(timeout_ms).saturating_sub(clock::now().mono_ms()))
    }

    fn end(&self, outcome: Result<(), FaultKind>) {
        // The drop of the task ends the wait a second time; the first outcome counts.
        if self.outcome.get().is_none() {
            self.outcome.set(Some(outcome));
            self.over.notify_waiters();
        }
    }
}

/// The task that establishes a connection. Dropping it fails the connection.
pub(crate) struct ConnectTask {
    pub(super) pool: Rc<H2ConnectionPool>,
    pub(super) key: PoolKey,
    pub(super) pending: Rc<PendingConnect>,
}

impl ConnectTask {
    /// Spawns the task.
    pub(crate) fn begin(self, client: &Rc<UpstreamClient>, dial: EndpointDial, keep: KeepaliveLimits) {
        let (client, watched) = (client.clone(), PanicWatch::new(&client.counters, Some(dial.address)));
        task::spawn(async move {
            // Dropped by an unwinding panic, which it then counts.
            let _watched = watched;
            let made = self.make(&client, dial, keep).await;
            self.pending.end(made);
        });
    }

    async fn make(
        &self,
        client: &Rc<UpstreamClient>,
        dial: EndpointDial,
        keep: KeepaliveLimits,
    ) -> Result<(), FaultKind> {
        let stream = self.connect(client, dial).await?;
        self.pool.establish(self.key, client, stream, keep).await.ok_or(FaultKind::Connect)
    }

    async fn connect(
        &self,
        client: &UpstreamClient,
        dial: EndpointDial,
    ) -> Result<TransportStream, FaultKind> {
        let timer = client.timers.timer();
        let endpoint = dial.endpoint.clone();
        let mut connecting = pin!(dial.connect());
        poll_fn(|cx| {
            if let Poll::Ready(connected) = connecting.as_mut().poll(cx) {
                return Poll::Ready(connected);
            }
            // A request with a longer timeout may have joined meanwhile.
            while timer.left_ms().is_none() || timer.is_over(cx) {
                let is_slow = timer.left_ms().is_some();
                match self.pending.left_ms() {
                    Some(0) => return Poll::Ready(Err(FaultKind::ConnectTimeout)),
                    // As in `EndpointDial::connect_within`.
                    _ if is_slow && endpoint.has_departed() => return Poll::Ready(Err(FaultKind::Connect)),
                    Some(left_ms) => timer.set(left_ms.min(DEPARTURE_CHECK_MS)),
                    None => timer.set(DEPARTURE_CHECK_MS),
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for ConnectTask {
    fn drop(&mut self) {
        self.pending.end(Err(FaultKind::Connect));
        self.pool.forget(self.key, &self.pending);
    }
}
