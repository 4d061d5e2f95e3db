//! A worker: one thread with its runtime and the state that its connections share without locks.
//!
//! Owns the pinned snapshot, timers, buffers and connection counts. Independent of protocols or plugins.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Deref;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;
use yumen_http::{Fields, RequestHead, ResponseHead};
use yumen_plugin::{Consumer, PluginChain};
use yumen_snapshot::{Publisher, Route, Snapshot};

use crate::copy::CopyContext;
use crate::copy::tunnel_binding::TunnelBindings;
use crate::observe::RequestSampler;
use crate::observe::access_log::AccessLogBuffer;
use crate::observe::counters::WorkerCounters;
use crate::runtime::buffer::Buffers;
use crate::runtime::clock;
use crate::runtime::date::DateCache;
use crate::runtime::offload_queue::OffloadQueue;
use crate::runtime::overload::OverloadGuard;
use crate::runtime::timers::Timers;
use crate::runtime::worker_duty::WorkerDuty;
use crate::settings::{EXCHANGES_KEPT, WorkerSettings};
use crate::upstream::UpstreamClient;

/// The last sixteenth of the connection limit is a reserve. While it is in use, idle connections are ended:
/// a sixteenth of the open ones per pass, at least [`ROOM_MIN`], at most one pass per [`MAKE_ROOM_MS`].
const SPARE_SHARE: usize = 16;
const ROOM_MIN: usize = 16;
const MAKE_ROOM_MS: u64 = 100;
/// A pass ends no more connections after this time, in milliseconds.
const ROOM_MS: u64 = 1000;
/// The shortest idle time before a pass may end a connection, in milliseconds.
const IDLE_MS_MIN: u64 = 1000;

/// Time for which a draining worker polls every 5 ms whether all connections have ended, in milliseconds.
const DRAIN_BRISK_MS: u64 = 2000;

/// The limit of cached merged chains; the cache is cleared when full.
const MERGED_MAX: usize = 65_536;

/// Heads are boxed, so that passing one on moves a pointer.
type Heads<T> = Vec<Box<T>>;

type MergedChains = HashMap<(*const Route, *const Consumer), Rc<PluginChain>, foldhash::fast::RandomState>;

/// A snapshot held by one worker and counted without atomics.
pub(crate) struct PinnedSnapshot {
    snapshot: Arc<Snapshot>,
    version: u64,
    merged: Rc<RefCell<MergedChains>>,
}

impl Deref for PinnedSnapshot {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl PinnedSnapshot {
    /// Returns the chain of a route with the plugins of a consumer merged in. The result is cached until a
    /// route or a consumer changes.
    pub(crate) fn merged(&self, route: &Route, consumer: &Consumer) -> Rc<PluginChain> {
        let key: (*const Route, *const Consumer) = (route, consumer);
        if let Some(chain) = self.merged.borrow().get(&key) {
            return chain.clone();
        }
        let chain = Rc::new(route.chain.with_consumer(consumer));
        let mut merged = self.merged.borrow_mut();
        if merged.len() >= MERGED_MAX {
            merged.clear();
        }
        merged.insert(key, chain.clone());
        chain
    }
}

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
    pub(crate) log: Option<RefCell<AccessLogBuffer>>,
    /// Whether access log lines contain response fields; they are retained only then.
    pub(crate) logs_answer: bool,
    pub(crate) date: DateCache,
    pub(crate) draining: Cell<bool>,
    /// Whether idle connections keep their idle timeout during a drain.
    pub(crate) keeps_idle: Cell<bool>,
    pub(crate) sampler: RequestSampler,
    pub(crate) overload: Option<OverloadGuard>,
    pub(crate) offload_queue: OffloadQueue,
    /// Redis clients of plugins.
    pub(crate) redis: Rc<yumen_redis::RedisClients>,
    publisher: Arc<Publisher>,
    applied: Arc<AtomicU64>,
    pinned: RefCell<Rc<PinnedSnapshot>>,
    requests: RefCell<Heads<RequestHead>>,
    edits: RefCell<Vec<Fields>>,
    random: Cell<u64>,
    open: Cell<usize>,
    /// The number of idle connections that the current pass is still to end, and the start of that pass.
    room_wanted: Cell<usize>,
    made_room_ms: Cell<u64>,
    /// Of the open connections, the number in a lingering close.
    pub(crate) lingering: Cell<usize>,
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
    /// The current duty: serve, hand over or end.
    pub duty: watch::Receiver<WorkerDuty>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Worker {
    pub(crate) fn new(parts: WorkerParts) -> Rc<Worker> {
        clock::refresh();
        let version = parts.publisher.version();
        let snapshot = parts.publisher.load();
        let buffers = Rc::new(Buffers::with_backlog(parts.settings.backlog_bytes_max));
        let timers = Rc::<Timers>::default();
        let (settings, counters) = (parts.settings.clone(), parts.counters.clone());
        let upstream = UpstreamClient::new(parts.id, settings, counters, buffers.clone(), timers.clone());
        Rc::new_cyclic(|me| Worker {
            me: me.clone(),
            id: parts.id,
            overload: OverloadGuard::new(&parts.settings.overload),
            offload_queue: OffloadQueue::default(),
            redis: redis_clients(&timers, &parts.counters),
            counters: parts.counters,
            buffers,
            timers,
            upstream,
            ties: TunnelBindings::default(),
            logs_answer: parts.log.as_ref().is_some_and(AccessLogBuffer::reads_answer),
            log: parts.log.map(RefCell::new),
            date: DateCache::default(),
            draining: Cell::new(false),
            keeps_idle: Cell::new(false),
            sampler: RequestSampler::new(parts.seed.rotate_left(32), parts.settings.samples_per_second),
            settings: parts.settings,
            pinned: RefCell::new(Rc::new(PinnedSnapshot { snapshot, version, merged: Rc::default() })),
            publisher: parts.publisher,
            applied: parts.applied,
            requests: RefCell::default(),
            edits: RefCell::default(),
            random: Cell::new(parts.seed | 1),
            open: Cell::new(0),
            room_wanted: Cell::new(0),
            made_room_ms: Cell::new(0),
            lingering: Cell::new(0),
        })
    }

    /// Returns the newest snapshot. An exchange takes the snapshot once and keeps it to its end.
    pub(crate) fn pinned(&self) -> Rc<PinnedSnapshot> {
        let version = self.publisher.version();
        if version != self.pinned.borrow().version {
            let snapshot = self.publisher.load();
            let before = self.pinned.borrow().clone();
            // Unchanged routes and consumers keep their addresses, so a change of endpoints invalidates no
            // chain.
            let merged = match snapshot.chains() == before.chains() {
                true => before.merged.clone(),
                false => Rc::default(),
            };
            *self.pinned.borrow_mut() = Rc::new(PinnedSnapshot { snapshot, version, merged });
            // Stored after the swap: a version counts as applied only once this worker serves it.
            self.applied.store(version, Ordering::Release);
        }
        self.pinned.borrow().clone()
    }

    /// Returns an empty request head, recycled if possible.
    pub(crate) fn take_request(&self) -> Box<RequestHead> {
        self.requests.borrow_mut().pop().unwrap_or_default()
    }

    /// Recycles the memory of a request head.
    pub(crate) fn recycle_request_head(&self, mut head: Box<RequestHead>) {
        let mut kept = self.requests.borrow_mut();
        if kept.len() < EXCHANGES_KEPT {
            head.clear();
            kept.push(head);
        }
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
        self.edits.borrow_mut().pop().unwrap_or_default()
    }

    /// Recycles the memory of a list of fields.
    pub(crate) fn recycle_fields(&self, mut fields: Fields) {
        let mut kept = self.edits.borrow_mut();
        if fields.capacity() > 0 && kept.len() < EXCHANGES_KEPT {
            fields.clear(4096);
            kept.push(fields);
        }
    }

    /// Counts a new connection; `None` at the limit. Near the limit, idle connections are ended first.
    pub(crate) fn admit(self: &Rc<Self>) -> Option<ConnectionGuard> {
        let most = self.settings.connections_max;
        if self.open.get() >= most - most / SPARE_SHARE {
            self.make_room();
        }
        if self.open.get() >= most {
            self.counters.refused.add(1);
            return None;
        }
        self.open.set(self.open.get() + 1);
        self.counters.accepted.add(1);
        self.counters.connections.add(1);
        Some(ConnectionGuard { worker: self.clone() })
    }

    /// Wakes the connections with the longest idle time to end them. A new client takes precedence over an
    /// idle one.
    #[cold]
    pub(crate) fn make_room(&self) {
        let now_ms = clock::now().mono_ms();
        if now_ms < self.made_room_ms.get() + MAKE_ROOM_MS {
            return;
        }
        self.made_room_ms.set(now_ms);
        let wanted = (self.open.get() / SPARE_SHARE).max(ROOM_MIN);
        self.room_wanted.set(wanted);
        self.timers.wake_idle(wanted);
    }

    /// Whether a pass that ends idle connections is in progress.
    #[inline]
    pub(crate) fn is_ending_idle(&self) -> bool {
        self.room_wanted.get() > 0
    }

    /// Whether a connection that has been idle for `idle_ms` is to end now.
    #[cold]
    pub(crate) fn takes_room(&self, idle_ms: u64) -> bool {
        let is_over = clock::now().mono_ms() > self.made_room_ms.get() + ROOM_MS;
        let wanted = if is_over { 0 } else { self.room_wanted.get() };
        let takes = wanted > 0 && idle_ms >= IDLE_MS_MIN;
        self.room_wanted.set(wanted - usize::from(takes));
        takes
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
            if let Some(overload) = &self.overload {
                self.counters.shed_share.set((overload.shed_share() * 1000.0) as i64);
            }
            self.tend_backlog(now_ms);
            self.sampler.tick();
            self.counters.beats.add(1);
            self.flush_log();
            let ending = self.ties.review(&self.pinned());
            self.counters.tunnels_ended.add(ending as u64);
        }
    }

    /// Enforces the bound of the body backlog and exports its size.
    fn tend_backlog(&self, now_ms: u64) {
        let backlog = &self.buffers.backlog;
        let ended = backlog.enforce(now_ms);
        if ended > 0 {
            let bytes = backlog.bytes();
            tracing::warn!(ended, bytes, "body backlog is full: peers that stalled longest were reset");
        }
        self.counters.backlog_ended.add(ended as u64);
        self.counters.backlog_bytes.set(backlog.bytes() as i64);
        self.counters.backlog_bytes_max.set(self.settings.backlog_bytes_max as i64);
        if backlog.has_shrunk() {
            crate::runtime::malloc_trim::ask_to_give_back();
        }
    }

    /// Measures the load that [`OverloadGuard`] sheds requests by.
    pub(crate) async fn watch_overload(self: Rc<Self>) {
        if let Some(overload) = &self.overload {
            overload.watch(&self.timers).await;
        }
    }

    pub(crate) fn flush_log(&self) {
        if let Some(log) = &self.log {
            let dropped = log.borrow_mut().flush();
            self.counters.log_lines_dropped.add(dropped);
        }
    }

    /// Ends idle connections as `duty` requires, and refuses new requests on open ones.
    pub(crate) fn start_drain(&self, duty: WorkerDuty) {
        self.draining.set(true);
        self.keeps_idle.set(matches!(duty, WorkerDuty::HandOver { .. }));
        self.timers.wake_all();
    }

    /// Waits until all connections have ended or the duty's bound has passed.
    pub(crate) async fn drain(&self, duty: &watch::Receiver<WorkerDuty>) {
        let (mut asked, mut last_request_ms) = (None, 0);
        while self.open.get() > 0 {
            let now_ms = clock::exact().mono_ms();
            let duty = *duty.borrow();
            if asked.replace(duty) != Some(duty) {
                // A new duty restarts its bound.
                last_request_ms = now_ms;
                self.start_drain(duty);
            }
            if duty.within_ms().is_some_and(|within_ms| now_ms >= last_request_ms.saturating_add(within_ms)) {
                break;
            }
            // Exchanges that outlast a usual request may take hours; polling less often saves CPU time.
            let pause_ms = if now_ms < last_request_ms + DRAIN_BRISK_MS { 5 } else { 100 };
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
        self.worker.open.set(self.worker.open.get() - 1);
        self.worker.counters.connections.add(-1);
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
