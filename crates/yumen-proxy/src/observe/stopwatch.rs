//! Time measurement of one exchange, for sampled and traced requests, and for those with a debug token.
//!
//! This file reads the exact clock. It must not know plugin types or output formats.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;

use yumen_base::Now;
use yumen_plugin::{AttemptTiming, ExchangeTimeline, Phase, PluginInstance, PluginTiming};
use yumen_snapshot::MatchExplanation;

use super::RecentRequest;
use crate::fault::Fault;
use crate::runtime::clock;

/// Maximum number of plugin phases that are recorded per exchange; further ones are left out.
const RAN_MAX: usize = 128;
/// Maximum number of attempts that are recorded per exchange.
const ATTEMPTS_MAX: usize = 16;

/// The measurements of one exchange.
pub(crate) struct ExchangeStopwatch {
    /// Number of requests that the sample represents; 0 for a request that is only explained.
    pub(crate) weight: u32,
    /// Whether the response contains the explanation.
    pub(crate) explains: bool,
    /// Whether a plugin reads the timeline.
    traces: Cell<bool>,
    /// The revision of the snapshot that serves the exchange.
    pub(crate) revision: Cell<u64>,
    pub(crate) request: RefCell<Option<RecentRequest>>,
    /// The match of the route; recorded for explanations only.
    pub(crate) arrival: RefCell<Option<MatchExplanation>>,
    pub(crate) plugins: RefCell<Vec<PluginTiming>>,
    pub(crate) attempts: RefCell<Vec<AttemptTiming>>,
    started_ns: u64,
    /// Time at which the worker last resumed the exchange.
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
            traces: Cell::new(false),
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

    /// Has attempts recorded for the timeline.
    pub(crate) fn trace(&self) {
        self.traces.set(true);
    }

    /// Whether attempts are recorded.
    pub(crate) fn records_attempts(&self) -> bool {
        self.explains || self.traces.get()
    }

    /// The measurements so far, for plugins.
    pub(crate) fn timeline(&self) -> ExchangeTimeline {
        let now = clock::exact();
        let total_us = self.total_ns() / 1000;
        ExchangeTimeline {
            started: Now {
                mono_us: now.mono_us.saturating_sub(total_us),
                unix_ms: now.unix_ms.saturating_sub(total_us / 1000),
            },
            plugins: self.plugins.borrow().clone(),
            attempts: self.attempts.borrow().clone(),
        }
    }

    /// Returns the time since the start.
    pub(crate) fn total_ns(&self) -> u64 {
        clock::nanos().saturating_sub(self.started_ns)
    }

    /// Returns the time in which the worker ran the exchange. Valid only while the exchange is polled.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ns.get() + clock::nanos().saturating_sub(self.resumed_ns.get())
    }

    /// Starts a running interval, before each poll.
    pub(crate) fn resume(&self) {
        self.resumed_ns.set(clock::nanos());
    }

    /// Ends a running interval, after each poll.
    pub(crate) fn pause(&self) {
        self.busy_ns.set(self.busy_ns());
    }

    /// Records the time of a plugin in a phase; repeated calls, as for body chunks, are added up.
    pub(crate) fn ran(
        &self,
        instance: &PluginInstance,
        phase: Phase,
        run_ns: u64,
        wait_ns: u64,
        answered: bool,
    ) {
        let mut all = self.plugins.borrow_mut();
        // Cloned for explanations only, since samples are frequent.
        let origin = self.explains.then(|| instance.origin.clone());
        let is_same =
            |ran: &&mut PluginTiming| ran.name == instance.name && ran.phase == phase && ran.origin == origin;
        if let Some(ran) = all.iter_mut().rev().find(is_same) {
            ran.run_ns += run_ns;
            ran.wait_ns += wait_ns;
            ran.answered |= answered;
        } else if all.len() < RAN_MAX {
            let started_ns = self.total_ns().saturating_sub(run_ns + wait_ns);
            let name = instance.name;
            all.push(PluginTiming { name, phase, origin, started_ns, run_ns, wait_ns, answered });
        }
    }

    /// Measures a synchronous phase of a plugin.
    pub(crate) fn run<T>(&self, instance: &PluginInstance, phase: Phase, call: impl FnOnce() -> T) -> T {
        let started_ns = clock::nanos();
        let result = call();
        self.ran(instance, phase, clock::nanos().saturating_sub(started_ns), 0, false);
        result
    }

    /// Measures a step of a plugin: the polls are running time, the rest is waiting time.
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

    /// Starts the measurement of an attempt, or restarts it for a new connection.
    pub(crate) fn begin_attempt(&self) {
        self.lap_ns.set(clock::nanos());
        self.connect_ns.set(None);
    }

    /// Records the connect time, also of a failed connect.
    pub(crate) fn connected(&self) {
        self.connect_ns.set(Some(self.split()));
    }

    /// Records the end of an attempt.
    pub(crate) fn attempted(&self, endpoint: SocketAddr, fault: Option<Fault>) {
        let fault = fault.map_or("", |fault| fault.kind.facts().2);
        let (connect_ns, head_ns) = (self.connect_ns.take(), self.split());
        let started_ns = self.total_ns().saturating_sub(connect_ns.unwrap_or(0) + head_ns);
        let tried = AttemptTiming { endpoint, started_ns, connect_ns, head_ns, fault };
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
