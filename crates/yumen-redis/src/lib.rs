//! Redis clients of one worker, for plugins. Each server has one connection, on which the commands of the
//! worker are pipelined.
//!
//! Independent of plugins or configuration. Time and TLS settings come from [`RedisRuntime`], because the
//! runtime of a worker provides no clock.

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

/// The services of a worker that its clients use.
#[derive(Clone)]
pub struct RedisRuntime {
    /// The cached clock of the worker.
    pub now: fn() -> Now,
    /// A future that completes after the given time.
    pub sleep: Rc<dyn Fn(Duration) -> LocalFuture<'static, ()>>,
    /// The TLS configuration, with or without certificate verification.
    pub tls: fn(bool) -> Result<Arc<rustls::ClientConfig>, String>,
    /// The counters of the worker.
    pub counters: Arc<RedisCounters>,
}

/// Counters of one worker, which is their only writer.
#[derive(Debug, Default)]
pub struct RedisCounters {
    /// Replies received.
    pub round_trips: Counter,
    /// Connections established.
    pub connects: Counter,
    /// Failed commands, in the order of [`FAULTS`].
    pub faults: [Counter; FAULTS.len()],
    /// Requests admitted because their limit could not be checked.
    pub degraded: Counter,
}

/// Names of the faults in metrics.
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

/// A closing worker ends after this number of consecutive checks without pending commands.
const QUIET_LOOKS: usize = 2;

/// The Redis clients of one worker, by target.
pub struct RedisClients {
    tools: RedisRuntime,
    digests: Rc<ScriptDigests>,
    /// Clients by the address of their target. The weak reference keeps the address from being reused, but
    /// not the target alive: a client has its own settings and is removed when no plugin uses the target.
    known: RefCell<HashMap<*const RedisTarget, (Weak<RedisTarget>, RedisClient)>>,
    /// Whether the worker is ending, so that deferred work runs now.
    is_ending: watch::Sender<bool>,
    /// Whether the worker has ended, so that no work is accepted.
    is_closed: Cell<bool>,
}

#[derive(Clone)]
enum RedisClient {
    Server(Rc<RedisConnection>),
    Cluster(Rc<RedisCluster>),
}

impl RedisClients {
    /// Creates the clients of a worker, without connections.
    pub fn new(tools: RedisRuntime) -> Rc<RedisClients> {
        Rc::new(RedisClients {
            tools,
            digests: Rc::default(),
            known: RefCell::default(),
            is_ending: watch::Sender::default(),
            is_closed: Cell::new(false),
        })
    }

    /// Ends the deferred work of plugins and waits up to 500 ms for pending commands. Later commands fail.
    pub async fn close(&self) {
        const PATIENCE_MS: u64 = 500;
        // Without clients and deferred work there is nothing to wait for.
        let was_idle = self.known.borrow().is_empty() && self.is_ending.receiver_count() == 0;
        // Plugins report their last counts then, which the wait below covers (decision 31).
        self.is_ending.send_replace(true);
        let deadline_ms = (self.tools.now)().mono_ms() + PATIENCE_MS;
        // A reply may cause another command, which the next check finds.
        let mut quiet_checks = if was_idle { QUIET_LOOKS } else { 0 };
        while quiet_checks < QUIET_LOOKS && (self.tools.now)().mono_ms() < deadline_ms {
            (self.tools.sleep)(Duration::from_millis(5)).await;
            quiet_checks = if self.waiting() > 0 { 0 } else { quiet_checks + 1 };
        }
        // Only now: the deferred work itself sends commands.
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
        // A copy, since the client may outlive the target of its plugin.
        let settings = Rc::new(RedisTarget::clone(target));
        let on_link = |peer| RedisClient::Server(RedisConnection::new(&self.tools, &settings, peer));
        let client = match &settings.topology {
            RedisTopology::Server(address) => on_link(RedisPeer::Server(address.clone())),
            RedisTopology::Sentinel { sentinels, master_name, login } => {
                on_link(RedisPeer::Master(SentinelSet::new(sentinels, master_name, login)))
            }
            RedisTopology::Cluster(_) => RedisClient::Cluster(RedisCluster::new(&self.tools, &settings)),
        };
        let mut known = self.known.borrow_mut();
        // Clients of removed targets close their connections by the idle timeout.
        // On the rare path of a new target, so that no request pays for the clean-up.
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
        // The runtime of the worker is about to end and would drop the task anyway.
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
                // The sender is dropped with the worker.
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
