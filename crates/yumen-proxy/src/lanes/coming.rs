//! A connection that is being made for all who want one, beside whoever asked for it first: it is made, or known
//! to fail, for those who wait as for those who come later, whoever of them gives up meanwhile.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

use tokio::sync::Notify;
use yumen_snapshot::upstream::Keepalive;

use super::Lanes;
use crate::dial::Dial;
use crate::fault::Kind;
use crate::pool::PoolKey;
use crate::task;
use crate::timers::until;
use crate::worker::Worker;

/// A connection on its way.
#[derive(Default)]
pub(crate) struct Coming {
    over: Notify,
    outcome: Cell<Option<Result<(), Kind>>>,
    /// How many wait for it.
    claims: Cell<usize>,
}

impl Coming {
    /// Returns once it is there, or has failed.
    pub(crate) async fn over(&self) -> Result<(), Kind> {
        if self.outcome.get().is_none() {
            self.over.notified().await;
        }
        self.outcome.get().unwrap_or(Ok(()))
    }

    /// Counts one more in, unless there are as many as it will have room for.
    pub(super) fn claim(&self, room: usize) -> bool {
        let is_free = self.claims.get() < room;
        self.claims.set(self.claims.get() + usize::from(is_free));
        is_free
    }

    fn end(&self, outcome: Result<(), Kind>) {
        if self.outcome.get().is_none() {
            self.outcome.set(Some(outcome));
            self.over.notify_waiters();
        }
    }
}

/// The duty to connect.
pub(crate) struct Connecting {
    pub(super) lanes: Rc<Lanes>,
    pub(super) key: PoolKey,
    pub(super) coming: Rc<Coming>,
}

impl Connecting {
    /// Connects and speaks HTTP/2; the connection is then there for all.
    pub(crate) fn begin(self, worker: &Rc<Worker>, dial: Dial, keep: Keepalive) {
        let worker = worker.clone();
        task::spawn(async move {
            let made = self.make(&worker, dial, keep).await;
            self.coming.end(made);
        });
    }

    async fn make(&self, worker: &Rc<Worker>, dial: Dial, keep: Keepalive) -> Result<(), Kind> {
        let timer = worker.timers.timer();
        timer.set(dial.timeout_ms);
        let stream = until(&timer, pin!(dial.connect())).await.unwrap_or(Err(Kind::ConnectTimeout))?;
        self.lanes.establish(self.key, worker, stream, keep).await.ok_or(Kind::Connect)
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.coming.end(Err(Kind::Connect));
        self.lanes.forget(self.key, &self.coming);
    }
}
