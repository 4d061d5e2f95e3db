//! Asks Redis for the plugins of one worker: every server has one connection, on which all questions of the
//! worker travel one behind the other without waiting for each other's answers.
//!
//! Knows no plugin and no configuration. Time and TLS settings come in with [`RedisRuntime`], since a
//! worker's runtime has no clock of its own.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use yumen_base::{Counter, Now};
use yumen_plugin::BackgroundHost;
use yumen_plugin::background::{RedisFault, RedisResult, RedisScriptCall, RedisTarget, RedisTopology};
use yumen_plugin::plugin::LocalFuture;

mod cluster;
mod connect;
mod connection;
mod outages;
mod resp;
mod script;
mod sentinel;

use cluster::RedisCluster;
use connection::{RedisConnection, RedisPeer};
use script::ScriptDigests;
use sentinel::SentinelSet;

/// What a worker lends its clients.
#[derive(Clone)]
pub struct RedisRuntime {
    /// The time of the worker's loop.
    pub now: fn() -> Now,
    /// Done after a while.
    pub sleep: Rc<dyn Fn(Duration) -> LocalFuture<'static, ()>>,
    /// Settings of TLS, verifying or not.
    pub tls: fn(bool) -> Result<Arc<rustls::ClientConfig>, String>,
    /// What is counted.
    pub counters: Arc<RedisCounters>,
}

/// What one worker counts; it alone writes them.
#[derive(Debug, Default)]
pub struct RedisCounters {
    /// Commands answered.
    pub round_trips: Counter,
    /// Connections made.
    pub connects: Counter,
    /// Questions without an answer, in the order of [`FAULTS`].
    pub faults: [Counter; FAULTS.len()],
    /// Requests let through because their limit could not be told.
    pub degraded: Counter,
}

/// The kinds of faults, as metrics name them.
pub const FAULTS: [&str; 6] = ["down", "busy", "connect", "lost", "timeout", "refused"];

impl RedisCounters {
    fn fault(&self, fault: &RedisFault) {
        let at = match fault {
            RedisFault::Down => 0,
            RedisFault::Busy => 1,
            RedisFault::Connect(_) => 2,
            RedisFault::ConnectionLost(_) => 3,
            RedisFault::Timeout => 4,
            RedisFault::Refused(_) => 5,
        };
        self.faults[at].add(1);
    }
}

/// A worker ends once it has seen so often in a row that nobody waits for an answer.
const QUIET_LOOKS: usize = 2;

/// The ways of one worker to all Redis servers its plugins name.
pub struct RedisClients {
    tools: RedisRuntime,
    digests: Rc<ScriptDigests>,
    /// By the target's address in memory, which the entry itself keeps from being used again. It does not
    /// keep the target: the client has settings of its own, and goes when no plugin names them any more.
    known: RefCell<HashMap<*const RedisTarget, (Weak<RedisTarget>, RedisClient)>>,
    /// Whether the worker is about to end: what was put off is said now.
    is_ending: watch::Sender<bool>,
    /// Whether it is at its end: nothing can be begun any more.
    is_closed: Cell<bool>,
}

#[derive(Clone)]
enum RedisClient {
    Server(Rc<RedisConnection>),
    Cluster(Rc<RedisCluster>),
}

impl RedisClients {
    /// The clients of a worker, none connected yet.
    pub fn new(tools: RedisRuntime) -> Rc<RedisClients> {
        Rc::new(RedisClients {
            tools,
            digests: Rc::default(),
            known: RefCell::default(),
            is_ending: watch::Sender::default(),
            is_closed: Cell::new(false),
        })
    }

    /// The worker's runtime is about to end: what was put off is said, and all that was said is given a
    /// moment to get out. Nothing is begun after that.
    pub async fn close(&self) {
        const PATIENCE_MS: u64 = 500;
        let is_unused = self.known.borrow().is_empty() && self.is_ending.receiver_count() == 0;
        self.is_ending.send_replace(true);
        let deadline_ms = (self.tools.now)().mono_ms() + PATIENCE_MS;
        // Whoever has heard one answer may have another question: it is asked by the next look.
        let mut quiet_looks = if is_unused { QUIET_LOOKS } else { 0 };
        while quiet_looks < QUIET_LOOKS && (self.tools.now)().mono_ms() < deadline_ms {
            (self.tools.sleep)(Duration::from_millis(5)).await;
            quiet_looks = if self.waiting() > 0 { 0 } else { quiet_looks + 1 };
        }
        self.is_closed.set(true);
    }

    fn waiting(&self) -> usize {
        let waiting = |(_, client): &(_, RedisClient)| match client {
            RedisClient::Server(link) => link.waiting(),
            RedisClient::Cluster(cluster) => cluster.waiting(),
        };
        self.known.borrow().values().map(waiting).sum()
    }

    fn client(&self, target: &Arc<RedisTarget>) -> RedisClient {
        if let Some((_, client)) = self.known.borrow().get(&Arc::as_ptr(target)) {
            return client.clone();
        }
        let settings = Rc::new(RedisTarget::clone(target));
        let on_link = |seat| RedisClient::Server(RedisConnection::new(&self.tools, &settings, seat));
        let client = match &settings.place {
            RedisTopology::Server(address) => on_link(RedisPeer::Server(address.clone())),
            RedisTopology::Sentinel { sentinels, master_name, login } => {
                on_link(RedisPeer::Master(SentinelSet::new(sentinels, master_name, login)))
            }
            RedisTopology::Cluster(_) => RedisClient::Cluster(RedisCluster::new(&self.tools, &settings)),
        };
        let mut known = self.known.borrow_mut();
        // Those that no configuration names any more end by themselves, once they are idle.
        known.retain(|_, (target, _)| target.strong_count() > 0);
        known.insert(Arc::as_ptr(target), (Arc::downgrade(target), client.clone()));
        client
    }
}

impl BackgroundHost for RedisClients {
    fn redis(&self, target: &Arc<RedisTarget>, call: RedisScriptCall) -> LocalFuture<'static, RedisResult> {
        if self.is_closed.get() {
            return Box::pin(std::future::ready(Err(RedisFault::Down)));
        }
        let (settings, answer) = match self.client(target) {
            RedisClient::Server(link) => (link.settings(), script::on_link(link, self.digests.clone(), call)),
            RedisClient::Cluster(cluster) => (cluster.settings(), cluster.run(self.digests.clone(), call)),
        };
        let (counters, now) = (self.tools.counters.clone(), self.tools.now);
        Box::pin(async move {
            let result = answer.await;
            if let Err(fault) = &result {
                counters.fault(fault);
            }
            if let Err(RedisFault::Refused(why)) = &result {
                outages::refused(&settings, why, now().mono_ms());
            }
            result
        })
    }

    fn spawn(&self, task: LocalFuture<'static, ()>) {
        if !self.is_closed.get() {
            tokio::task::spawn_local(task);
        }
    }

    fn sleep(&self, delay: Duration) -> LocalFuture<'static, ()> {
        (self.tools.sleep)(delay)
    }

    fn rest(&self, delay: Duration) -> LocalFuture<'static, bool> {
        let (sleep, mut ending) = ((self.tools.sleep)(delay), self.is_ending.subscribe());
        Box::pin(async move {
            tokio::select! {
                () = sleep => true,
                // The sender goes with the worker.
                _ = ending.wait_for(|is_ending| *is_ending) => false,
            }
        })
    }

    fn now(&self) -> Now {
        (self.tools.now)()
    }

    fn count_degraded(&self) {
        self.tools.counters.degraded.add(1);
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
