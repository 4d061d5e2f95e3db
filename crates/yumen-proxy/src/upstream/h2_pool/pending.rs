//! A connection that is being made for all who want one, beside whoever asked for it first: it is made, or known
//! to fail, for those who wait as for those who come later, whoever of them gives up meanwhile.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use tokio::sync::Notify;
use yumen_snapshot::upstream::Keepalive;

use super::H2ConnectionPool;
use super::panic_watch::PanicWatch;
use crate::clock;
use crate::fault::Kind;
use crate::fault::SharedFailure;
use crate::stream::Stream;
use crate::task;
use crate::upstream::UpstreamClient;
use crate::upstream::dial::Dial;
use crate::upstream::pool::PoolKey;

/// A connection on its way.
pub(crate) struct PendingConnect {
    over: Notify,
    outcome: Cell<Option<Result<(), Kind>>>,
    /// How many wait for it.
    claims: Cell<usize>,
    begun_ms: u64,
    /// How long it may take, as who of those that wait for it has the most time says; 0 for ever.
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

    /// Returns once it is there, or has failed. One that took too long may have done so for those who asked before:
    /// whoever has time left looks again.
    pub(crate) async fn over(&self) -> Result<(), Kind> {
        if self.outcome.get().is_none() {
            self.over.notified().await;
        }
        match self.outcome.get() {
            None | Some(Err(Kind::ConnectTimeout)) => Ok(()),
            Some(outcome) => outcome,
        }
    }

    /// Counts one more in, who has so much time, unless there are as many as it will have room for.
    pub(super) fn claim(&self, room: usize, timeout_ms: u64) -> bool {
        let is_free = self.claims.get() < room;
        self.claims.set(self.claims.get() + usize::from(is_free));
        if is_free {
            self.extend(timeout_ms);
        }
        is_free
    }

    /// Lets it take as long as one more who waits has time, from its beginning.
    pub(super) fn extend(&self, timeout_ms: u64) {
        let known_ms = self.timeout_ms.get();
        self.timeout_ms.set(if known_ms.min(timeout_ms) == 0 { 0 } else { known_ms.max(timeout_ms) });
    }

    /// How long it may still take; `None` for ever.
    fn left_ms(&self) -> Option<u64> {
        let timeout_ms = Some(self.timeout_ms.get()).filter(|timeout_ms| *timeout_ms != 0)?;
        Some(self.begun_ms.saturating_add(timeout_ms).saturating_sub(clock::now().mono_ms()))
    }

    fn end(&self, outcome: Result<(), Kind>) {
        if self.outcome.get().is_none() {
            self.outcome.set(Some(outcome));
            self.over.notify_waiters();
        }
    }
}

/// The duty to connect.
pub(crate) struct ConnectTask {
    pub(super) lanes: Rc<H2ConnectionPool>,
    pub(super) key: PoolKey,
    pub(super) coming: Rc<PendingConnect>,
}

impl ConnectTask {
    /// Connects and speaks HTTP/2; the connection is then there for all.
    pub(crate) fn begin(self, client: &Rc<UpstreamClient>, dial: Dial, keep: Keepalive) {
        let (client, watched) = (client.clone(), PanicWatch::new(&client.counters, Some(dial.address)));
        task::spawn(async move {
            let _watched = watched;
            let made = self.make(&client, dial, keep).await;
            self.coming.end(made);
        });
    }

    async fn make(&self, client: &Rc<UpstreamClient>, dial: Dial, keep: Keepalive) -> Result<(), Kind> {
        let stream = self.connect(client, dial).await?;
        self.lanes.establish(self.key, client, stream, keep).await.ok_or(Kind::Connect)
    }

    async fn connect(&self, client: &UpstreamClient, dial: Dial) -> Result<Stream, Kind> {
        let timer = client.timers.timer();
        let mut connecting = pin!(dial.connect());
        poll_fn(|cx| {
            if let Poll::Ready(connected) = connecting.as_mut().poll(cx) {
                return Poll::Ready(connected);
            }
            // Somebody with more time may have come meanwhile.
            while timer.left_ms().is_none() || timer.is_over(cx) {
                match self.coming.left_ms() {
                    Some(0) => return Poll::Ready(Err(Kind::ConnectTimeout)),
                    Some(left_ms) => timer.set(left_ms),
                    None => return Poll::Pending,
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for ConnectTask {
    fn drop(&mut self) {
        self.coming.end(Err(Kind::Connect));
        self.lanes.forget(self.key, &self.coming);
    }
}
