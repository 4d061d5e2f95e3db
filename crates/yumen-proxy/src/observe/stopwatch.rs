//! Where the time of one exchange goes. Only sampled exchanges and those that explain themselves have one.
//!
//! Reads the exact clock; knows no plugin's type and no format.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;

use yumen_plugin::{Origin, Phase, PluginInstance};
use yumen_snapshot::MatchExplanation;

use super::RecentRequest;
use crate::clock;
use crate::fault::Fault;

/// Plugin phases and attempts of one exchange that are told apart.
const RAN_MAX: usize = 128;
const ATTEMPTS_MAX: usize = 16;

/// A plugin in one of its phases.
#[derive(Debug, Clone)]
pub(crate) struct PluginTiming {
    pub(crate) name: &'static str,
    pub(crate) phase: Phase,
    /// Where its settings stand; noted only where it will be told.
    pub(crate) origin: Option<Origin>,
    pub(crate) run_ns: u64,
    pub(crate) wait_ns: u64,
    pub(crate) answered: bool,
}

/// A try on an endpoint.
#[derive(Debug, Clone)]
pub(crate) struct AttemptTiming {
    pub(crate) endpoint: SocketAddr,
    /// `None` where a kept connection did.
    pub(crate) connect_ns: Option<u64>,
    /// From the connection to the head of the answer, or to the fault.
    pub(crate) head_ns: u64,
    /// The fault's word; empty where the endpoint answered.
    pub(crate) fault: &'static str,
}

/// What is measured of one exchange.
pub(crate) struct ExchangeStopwatch {
    /// Requests it stands for; 0 where it was only asked to explain itself.
    pub(crate) weight: u32,
    /// Whether its answer tells what is measured here.
    pub(crate) explains: bool,
    /// The revision it is served from.
    pub(crate) revision: Cell<u64>,
    pub(crate) request: RefCell<Option<RecentRequest>>,
    /// How it came to its route, where that will be told.
    pub(crate) arrival: RefCell<Option<MatchExplanation>>,
    pub(crate) plugins: RefCell<Vec<PluginTiming>>,
    pub(crate) attempts: RefCell<Vec<AttemptTiming>>,
    started_ns: u64,
    /// When the worker last turned to it.
    resumed_ns: Cell<u64>,
    busy_ns: Cell<u64>,
    lap_ns: Cell<u64>,
    connect_ns: Cell<Option<u64>>,
}

impl ExchangeStopwatch {
    pub(crate) fn start(weight: u32, explains: bool) -> ExchangeStopwatch {
        ExchangeStopwatch {
            weight,
            explains,
            revision: Cell::new(0),
            request: RefCell::default(),
            arrival: RefCell::default(),
            plugins: RefCell::default(),
            attempts: RefCell::default(),
            started_ns: clock::nanos(),
            resumed_ns: Cell::new(0),
            busy_ns: Cell::new(0),
            lap_ns: Cell::new(0),
            connect_ns: Cell::new(None),
        }
    }

    /// Since the start.
    pub(crate) fn total_ns(&self) -> u64 {
        clock::nanos().saturating_sub(self.started_ns)
    }

    /// How much of that the worker was busy with it; for the exchange itself, while it is polled.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ns.get() + clock::nanos().saturating_sub(self.resumed_ns.get())
    }

    /// The worker turns to the exchange.
    pub(crate) fn resume(&self) {
        self.resumed_ns.set(clock::nanos());
    }

    /// The worker turns away from it.
    pub(crate) fn pause(&self) {
        self.busy_ns.set(self.busy_ns());
    }

    /// Notes what a plugin did in a phase; more of the same, as for pieces of a body, is added up.
    pub(crate) fn ran(
        &self,
        instance: &PluginInstance,
        phase: Phase,
        run_ns: u64,
        wait_ns: u64,
        answered: bool,
    ) {
        let mut all = self.plugins.borrow_mut();
        let origin = self.explains.then(|| instance.origin.clone());
        let is_same =
            |ran: &&mut PluginTiming| ran.name == instance.name && ran.phase == phase && ran.origin == origin;
        if let Some(ran) = all.iter_mut().rev().find(is_same) {
            ran.run_ns += run_ns;
            ran.wait_ns += wait_ns;
            ran.answered |= answered;
        } else if all.len() < RAN_MAX {
            all.push(PluginTiming { name: instance.name, phase, origin, run_ns, wait_ns, answered });
        }
    }

    /// A plugin's synchronous phase.
    pub(crate) fn run<T>(&self, instance: &PluginInstance, phase: Phase, call: impl FnOnce() -> T) -> T {
        let started_ns = clock::nanos();
        let result = call();
        self.ran(instance, phase, clock::nanos().saturating_sub(started_ns), 0, false);
        result
    }

    /// A plugin's step, which may wait: being polled is running, the rest is waiting.
    pub(crate) async fn step<T>(
        &self,
        instance: &PluginInstance,
        phase: Phase,
        step: impl Future<Output = T>,
        is_answer: impl FnOnce(&T) -> bool,
    ) -> T {
        let (mut run_ns, mut wait_ns) = (0, 0);
        let mut waits_since_ns = None;
        let mut step = pin!(step);
        let result = poll_fn(|cx| {
            let resumed_ns = clock::nanos();
            wait_ns += waits_since_ns.map_or(0, |since_ns| resumed_ns.saturating_sub(since_ns));
            let polled = step.as_mut().poll(cx);
            let paused_ns = clock::nanos();
            run_ns += paused_ns.saturating_sub(resumed_ns);
            waits_since_ns = Some(paused_ns);
            polled
        })
        .await;
        self.ran(instance, phase, run_ns, wait_ns, is_answer(&result));
        result
    }

    /// An attempt begins, or begins again on a new connection.
    pub(crate) fn begin_attempt(&self) {
        self.lap_ns.set(clock::nanos());
        self.connect_ns.set(None);
    }

    /// The attempt has a new connection, or failed to get one.
    pub(crate) fn connected(&self) {
        self.connect_ns.set(Some(self.split()));
    }

    /// The attempt is over.
    pub(crate) fn attempted(&self, endpoint: SocketAddr, fault: Option<Fault>) {
        let fault = fault.map_or("", |fault| fault.kind.facts().2);
        let tried =
            AttemptTiming { endpoint, connect_ns: self.connect_ns.take(), head_ns: self.split(), fault };
        let mut attempts = self.attempts.borrow_mut();
        if attempts.len() < ATTEMPTS_MAX {
            attempts.push(tried);
        }
    }

    fn split(&self) -> u64 {
        let now_ns = clock::nanos();
        now_ns.saturating_sub(self.lap_ns.replace(now_ns))
    }
}
