//! A worker: one thread with its runtime and the state that its connections share without locks.
//!
//! Owns the pinned snapshot, timers, buffers and connection counts. Independent of protocols or plugins.

mod admission;
mod recycled;
mod snapshots;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::watch;
use yumen_http::{Fields, RequestHead, ResponseHead};
use yumen_plugin::{SinkHandle, TapBudget};
use yumen_snapshot::Publisher;

use crate::copy::CopyContext;
use crate::copy::tunnel_binding::TunnelBindings;
use crate::observe::RequestSampler;
use crate::observe::access_log::AccessLogBuffer;
use crate::observe::counters::WorkerCounters;
use crate::observe::sink_buffers::SinkBuffers;
use crate::runtime::buffer::Buffers;
use crate::runtime::clock;
use crate::runtime::date::DateCache;
use crate::runtime::offload_queue::OffloadQueue;
use crate::runtime::timers::Timers;
use crate::runtime::worker_duty::WorkerDuty;
use crate::settings::WorkerSettings;
use crate::upstream::UpstreamClient;
use admission::WorkerAdmission;
use recycled::RecycledMemory;
pub(crate) use snapshots::PinnedSnapshot;
use snapshots::SnapshotPin;

/// Time for which a draining worker polls every 5 ms whether all connections have ended, in milliseconds.
const DRAIN_BRISK_MS: u64 = 2000;

/// State shared by all connections of a worker.
pub(crate) struct Worker {
    me: Weak<Worker>,
    pub(crate) id: usize,
    pub(crate) settings: Arc<WorkerSettings>,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) buffers: Rc<Buffers>,
    pub(crate) timers: Rc<Timers>,
    /// The client of upstream endpoints.
    pub(crate) upstream: Rc<UpstreamClient>,
    pub(crate) ties: TunnelBindings,
    /// Open connections, load shedding and the drain.
    pub(crate) admission: WorkerAdmission,
    /// Recorders of ended exchanges.
    pub(crate) recorders: ExchangeRecorders,
    /// Services of plugins.
    pub(crate) plugin_services: PluginServices,
    pub(crate) date: DateCache,
    snapshots: SnapshotPin,
    recycled: RecycledMemory,
    random: Cell<u64>,
}

/// Recorders of ended exchanges, beside the counters.
pub(crate) struct ExchangeRecorders {
    pub(crate) access_log: Option<RefCell<AccessLogBuffer>>,
    /// Whether access log lines contain response fields; they are retained only then.
    pub(crate) logs_response: bool,
    /// The sink of records of OTLP.
    pub(crate) otlp_log: Option<SinkHandle>,
    pub(crate) sampler: RequestSampler,
}

/// Services of a worker that only plugins use.
pub(crate) struct PluginServices {
    pub(crate) offload_queue: OffloadQueue,
    pub(crate) redis: Rc<yumen_redis::RedisClients>,
    /// Entries of loggers.
    pub(crate) sinks: SinkBuffers,
    /// Bodies that are tapped for loggers.
    pub(crate) tap_budget: TapBudget,
}

/// The parts from which a worker is built.
pub struct WorkerParts {
    /// The number of the worker, counted from 0.
    pub id: usize,
    /// Settings shared by all workers.
    pub settings: Arc<WorkerSettings>,
    /// Source of snapshots.
    pub publisher: Arc<Publisher>,
    /// Counters of the worker, exported by the metrics.
    pub counters: Arc<WorkerCounters>,
    /// Version of the snapshot that the worker serves.
    pub applied: Arc<AtomicU64>,
    /// Buffer of access log lines; `None` without an access log.
    pub log: Option<AccessLogBuffer>,
    /// The sink of records of OTLP, one per exchange; `None` without them.
    pub otlp_log: Option<SinkHandle>,
    /// The current duty: serve, hand over or end.
    pub duty: watch::Receiver<WorkerDuty>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Worker {
    pub(crate) fn new(parts: WorkerParts) -> Rc<Worker> {
        clock::refresh();
        let WorkerParts { id, settings, publisher, counters, applied, log, otlp_log, seed, duty: _ } = parts;
        let buffers = Rc::new(Buffers::with_backlog(settings.limits.backlog_bytes_max));
        let timers = Rc::<Timers>::default();
        let client =
            UpstreamClient::new(id, settings.clone(), counters.clone(), buffers.clone(), timers.clone());
        Rc::new_cyclic(|me| Worker {
            me: me.clone(),
            id,
            upstream: client,
            ties: TunnelBindings::default(),
            admission: WorkerAdmission::new(&settings),
            recorders: ExchangeRecorders {
                logs_response: log.as_ref().is_some_and(AccessLogBuffer::reads_answer),
                access_log: log.map(RefCell::new),
                otlp_log,
                // A seed of its own: samples must not correlate with the balancing decisions of `random`.
                sampler: RequestSampler::new(seed.rotate_left(32), settings.observation.samples_per_second),
            },
            plugin_services: PluginServices {
                offload_queue: OffloadQueue::default(),
                redis: redis_clients(&timers, &counters),
                sinks: SinkBuffers::default(),
                tap_budget: TapBudget::default(),
            },
            date: DateCache::default(),
            snapshots: SnapshotPin::new(publisher, applied),
            recycled: RecycledMemory::default(),
            // xorshift never leaves the state 0.
            random: Cell::new(seed | 1),
            settings,
            counters,
            buffers,
            timers,
        })
    }

    /// Returns the newest snapshot. An exchange takes the snapshot once and keeps it to its end.
    pub(crate) fn pinned(&self) -> Rc<PinnedSnapshot> {
        self.snapshots.newest()
    }

    /// Returns an empty request head, recycled if possible.
    pub(crate) fn take_request(&self) -> Box<RequestHead> {
        self.recycled.take_head()
    }

    /// Recycles the memory of a request head.
    pub(crate) fn recycle_request_head(&self, head: Box<RequestHead>) {
        self.recycled.keep_head(head);
    }

    /// Returns an empty response head, recycled if possible.
    pub(crate) fn take_response(&self) -> Box<ResponseHead> {
        self.upstream.take_response()
    }

    /// Recycles the memory of a response head.
    pub(crate) fn give_response(&self, head: Box<ResponseHead>) {
        self.upstream.give_response(head);
    }

    /// Returns an empty list of response fields, recycled if possible.
    pub(crate) fn take_edits(&self) -> Fields {
        self.recycled.take_fields()
    }

    /// Recycles the memory of a list of fields.
    pub(crate) fn recycle_fields(&self, fields: Fields) {
        self.recycled.keep_fields(fields);
    }

    /// Counts a new connection; `None` at the limit. Near the limit, idle connections are ended first.
    pub(crate) fn admit(self: &Rc<Self>) -> Option<ConnectionGuard> {
        if self.admission.uses_reserve() {
            self.make_room();
        }
        if !self.admission.enter() {
            self.counters.connections.refused.add(1);
            return None;
        }
        self.counters.connections.accepted.add(1);
        self.counters.connections.open.add(1);
        Some(ConnectionGuard { worker: self.clone() })
    }

    /// Wakes the connections with the longest idle time to end them. A new client takes precedence over an
    /// idle one.
    #[cold]
    pub(crate) fn make_room(&self) {
        if let Some(needed) = self.admission.begin_pass(clock::now().mono_ms()) {
            self.timers.wake_idle(needed);
        }
    }

    /// Whether a pass that ends idle connections is in progress.
    #[inline]
    pub(crate) fn is_ending_idle(&self) -> bool {
        self.admission.is_ending_idle()
    }

    /// Whether a connection that has been idle for `idle_ms` is to end now.
    #[cold]
    pub(crate) fn takes_room(&self, idle_ms: u64) -> bool {
        self.admission.takes_room(clock::now().mono_ms(), idle_ms)
    }

    /// The parts of the worker that copies use.
    #[inline]
    pub(crate) fn copy_context(&self) -> CopyContext<'_> {
        CopyContext {
            buffers: &self.buffers,
            counters: &self.counters,
            settings: &self.settings,
            timers: &self.timers,
        }
    }

    /// A reference-counted handle, for tasks that outlive the call.
    pub(crate) fn shared(&self) -> Option<Rc<Worker>> {
        self.me.upgrade()
    }

    /// A random number; not for secrets.
    pub(crate) fn random(&self) -> u64 {
        // xorshift64*.
        let mut state = self.random.get();
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.random.set(state);
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Housekeeping every 500 ms, off the request path: idle connections, access log, snapshot, tunnels.
    pub(crate) async fn run_chores(self: Rc<Self>) {
        loop {
            self.timers.clone().sleep(500).await;
            let now_ms = clock::now().mono_ms();
            self.upstream.sweep(now_ms);
            if let Some(overload) = &self.admission.overload {
                self.counters.runtime.shed_share.set((overload.shed_share() * 1000.0) as i64);
            }
            self.tend_backlog(now_ms);
            self.recorders.sampler.tick();
            self.counters.runtime.beats.add(1);
            self.flush_log();
            // `pinned` also makes an idle worker take the newest snapshot, on which `?wait=applied` relies
            // (decision 20).
            let ending = self.ties.review(&self.pinned());
            self.counters.connections.tunnels_ended.add(ending as u64);
        }
    }

    /// Enforces the bound of the body backlog and exports its size.
    fn tend_backlog(&self, now_ms: u64) {
        let backlog = &self.buffers.backlog;
        backlog.enforce(now_ms);
        let ended = backlog.take_ended();
        if ended > 0 {
            let bytes = backlog.bytes();
            tracing::warn!(ended, bytes, "body backlog is full: peers that stalled longest were reset");
        }
        self.counters.backlog.ended.add(ended as u64);
        self.counters.backlog.bytes.set(backlog.bytes() as i64);
        self.counters.backlog.bytes_max.set(self.settings.limits.backlog_bytes_max as i64);
        if backlog.has_shrunk() {
            // The allocator retains freed buffers of 64 KiB (decision 54).
            crate::runtime::malloc_trim::request_trim();
        }
    }

    /// Measures the load that [`OverloadGuard`] sheds requests by.
    pub(crate) async fn watch_overload(self: Rc<Self>) {
        if let Some(overload) = &self.admission.overload {
            overload.watch(&self.timers).await;
        }
    }

    pub(crate) fn flush_log(&self) {
        if let Some(log) = &self.recorders.access_log {
            let dropped = log.borrow_mut().flush();
            self.counters.runtime.log_lines_dropped.add(dropped);
        }
    }

    /// Ends idle connections as `duty` requires, and refuses new requests on open ones.
    pub(crate) fn start_drain(&self, duty: WorkerDuty) {
        self.admission.start_drain(duty);
        // An idle connection is polled only when its timer or its socket wakes it.
        self.timers.wake_all();
    }

    /// Waits until all connections have ended or the duty's bound has passed.
    pub(crate) async fn drain(&self, duty: &watch::Receiver<WorkerDuty>) {
        let (mut current, mut duty_since_ms) = (None, 0);
        while self.admission.open() > 0 {
            let now_ms = clock::exact().mono_ms();
            let duty = *duty.borrow();
            if current.replace(duty) != Some(duty) {
                // A new duty restarts its bound.
                duty_since_ms = now_ms;
                self.start_drain(duty);
            }
            if duty.within_ms().is_some_and(|within_ms| now_ms >= duty_since_ms.saturating_add(within_ms)) {
                break;
            }
            // Exchanges that outlast a usual request may take hours; polling less often saves CPU time.
            let pause_ms = if now_ms < duty_since_ms + DRAIN_BRISK_MS { 5 } else { 100 };
            self.timers.clone().sleep(pause_ms).await;
        }
        self.flush_log();
    }
}

/// The count of one open connection; released on drop.
pub(crate) struct ConnectionGuard {
    worker: Rc<Worker>,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.worker.admission.leave();
        self.worker.counters.connections.open.add(-1);
        // A task that panics drops its guard, so its panic is counted here.
        self.worker.counters.note_panic();
    }
}

fn redis_clients(timers: &Rc<Timers>, counters: &WorkerCounters) -> Rc<yumen_redis::RedisClients> {
    let timers = timers.clone();
    yumen_redis::RedisClients::new(yumen_redis::RedisRuntime {
        now: clock::now,
        sleep: Rc::new(move |delay| Box::pin(timers.clone().sleep(delay.as_millis() as u64))),
        tls: crate::tls::plain_client,
        counters: counters.redis.clone(),
    })
}

#[cfg(test)]
pub(crate) mod tests;
