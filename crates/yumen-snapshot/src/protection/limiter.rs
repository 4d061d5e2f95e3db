//! Places at an upstream, counted over all workers, and the queue before them.
//!
//! The counts are atomics. The queue is under a lock that is taken only while somebody waits.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use super::outlier::{EndpointEjection, OutlierState};
use super::{ConcurrencyBounds, LimiterFull, ProtectionLimits};

/// What is counted of one endpoint of an upstream.
#[derive(Debug, Default)]
pub struct EndpointCounts {
    /// Requests under way, those in a process before included.
    pub requests: AtomicU32,
    /// Open connections.
    pub connections: AtomicU32,
    /// Whether it is left out, and what speaks for it.
    pub ejection: EndpointEjection,
    predecessor_requests: AtomicU32,
    /// Where those wait who may find room here.
    gate: Weak<UpstreamLimiter>,
}

impl EndpointCounts {
    /// Of an endpoint of the upstream that is counted at `gate`.
    pub fn at(gate: &Arc<UpstreamLimiter>) -> EndpointCounts {
        EndpointCounts { gate: Arc::downgrade(gate), ..EndpointCounts::default() }
    }

    /// So many of the requests under way are in the process before.
    pub(crate) fn set_predecessor_count(&self, count: u32) {
        let freed = settle(&self.requests, &self.predecessor_requests, count);
        if let Some(gate) = self.gate.upgrade().filter(|_| freed > 0) {
            gate.wake_next(freed);
        }
    }
}

/// What is counted of an upstream, and who waits for it.
#[derive(Debug, Default)]
pub struct UpstreamLimiter {
    /// Requests under way, those in a process before included.
    pub requests: AtomicU32,
    /// Open connections.
    pub connections: AtomicU32,
    /// Retries under way.
    pub retries: AtomicU32,
    /// Requests refused because enough were waiting.
    pub refused_full: AtomicU64,
    /// Requests refused because they waited too long.
    pub refused_late: AtomicU64,
    /// Retries not made because they were not in the budget.
    pub retries_refused: AtomicU64,
    /// Requests that waited.
    pub queued: AtomicU64,
    /// What is known of outliers.
    pub outliers: OutlierState,
    pub(super) room: LimiterCapacity,
    predecessor_requests: AtomicU32,
    waiting: AtomicUsize,
    queue: Mutex<PendingQueue>,
}

/// How much there is room for. It is here and not with each snapshot's settings, so that who came before a
/// change, and waits, goes by what holds now.
#[derive(Debug)]
pub(super) struct LimiterCapacity {
    /// At all endpoints together.
    pub(super) all: AtomicBounds,
    /// At each.
    pub(super) each: AtomicBounds,
}

/// Bounds that may change.
#[derive(Debug)]
pub(super) struct AtomicBounds {
    requests: AtomicU32,
    connections: AtomicU32,
}

impl AtomicBounds {
    fn new(bounds: ConcurrencyBounds) -> AtomicBounds {
        AtomicBounds { requests: bounds.requests.into(), connections: bounds.connections.into() }
    }

    #[inline]
    pub(super) fn requests(&self) -> u32 {
        self.requests.load(Relaxed)
    }

    #[inline]
    pub(super) fn connections(&self) -> u32 {
        self.connections.load(Relaxed)
    }

    fn set(&self, bounds: ConcurrencyBounds) {
        self.requests.store(bounds.requests, SeqCst);
        self.connections.store(bounds.connections, SeqCst);
    }
}

impl Default for LimiterCapacity {
    fn default() -> LimiterCapacity {
        LimiterCapacity {
            all: AtomicBounds::new(ConcurrencyBounds::NONE),
            each: AtomicBounds::new(ConcurrencyBounds::NONE),
        }
    }
}

#[derive(Debug, Default)]
struct PendingQueue {
    waiters: VecDeque<PendingRequest>,
    next_id: u64,
    /// How many calls there were.
    calls: u64,
    /// When somebody was last seen.
    now_ms: u64,
}

/// One who waits.
#[derive(Debug)]
struct PendingRequest {
    id: u64,
    worker: usize,
    since_ms: u64,
    /// After which waiting has gone on for long.
    long_wait_ms: u64,
    is_woken: bool,
    /// The last call it need not hear again, by number.
    call: u64,
    /// Endpoints it cannot go to, as bits.
    excluded_endpoints: u128,
    waker: Option<Waker>,
}

impl PendingRequest {
    fn call(&mut self, call: u64) -> Option<Waker> {
        self.is_woken = true;
        self.call = call;
        self.waker.take()
    }

    /// Whether it could go wherever one could who avoids these.
    fn suits(&self, avoided: u128) -> bool {
        self.excluded_endpoints & !avoided == 0
    }
}

impl PendingQueue {
    /// Who is next: the first come, unless the first has waited so long that its client may soon be gone.
    /// Then the last come is: under an overload that lasts, serving in order would serve everybody late.
    /// A worker's own go first while nobody has waited long, since a connection cannot change workers.
    fn next(&self, worker: Option<usize>, call: u64) -> Option<usize> {
        let is_uncalled = |waiter: &PendingRequest| !waiter.is_woken && waiter.call < call;
        let mut uncalled = self.waiters.iter().enumerate().filter(|(_, waiter)| is_uncalled(waiter));
        let (first, oldest) = uncalled.next()?;
        if self.now_ms.saturating_sub(oldest.since_ms) > oldest.long_wait_ms {
            return Some(uncalled.next_back().map_or(first, |(at, _)| at));
        }
        let is_own = |waiter: &PendingRequest| worker.is_none_or(|worker| waiter.worker == worker);
        if is_own(oldest) {
            return Some(first);
        }
        Some(uncalled.find(|(_, waiter)| is_own(waiter)).map_or(first, |(at, _)| at))
    }

    fn new_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    /// Has the next one hear a call.
    fn call_next(&mut self, worker: Option<usize>, call: u64) -> Option<Waker> {
        let at = self.next(worker, call)?;
        self.waiters[at].call(call)
    }

    /// Hands a call on that was of no use to `at`. Whoever avoids all that this one avoids has no use for it either,
    /// so of those who are alike only one is woken, and each at most once by a call.
    fn pass_on(&mut self, at: usize, call: u64) -> Option<Waker> {
        let PendingRequest { excluded_endpoints, worker, .. } = self.waiters[at];
        if excluded_endpoints == 0 {
            return None;
        }
        for waiter in self
            .waiters
            .iter_mut()
            .filter(|waiter| waiter.excluded_endpoints & excluded_endpoints == excluded_endpoints)
        {
            waiter.call = waiter.call.max(call);
        }
        self.call_next(Some(worker), call)
    }

    fn find(&self, id: u64) -> Option<usize> {
        self.waiters.binary_search_by_key(&id, |waiter| waiter.id).ok()
    }
}

impl UpstreamLimiter {
    /// So many of the requests under way are in the process before.
    pub(crate) fn set_predecessor_count(&self, count: u32) {
        self.wake_next(settle(&self.requests, &self.predecessor_requests, count));
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// What there is room for from now on, nothing being no bound. Where that is more, those who wait are to be
    /// called.
    pub fn set_limits(&self, limits: Option<&ProtectionLimits>) {
        let (all, each) = limits
            .map_or((ConcurrencyBounds::NONE, ConcurrencyBounds::NONE), |limits| (limits.all, limits.each));
        self.room.all.set(all);
        self.room.each.set(each);
    }

    /// Has all who wait try again, since what they wait for has changed.
    pub fn call_all(&self) {
        if self.waiting() == 0 {
            return;
        }
        let mut queue = self.lock();
        let call = queue.new_call();
        let wakers: Vec<Waker> = queue.waiters.iter_mut().filter_map(|waiter| waiter.call(call)).collect();
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Endpoints that nobody who waits could go to, as bits: room there is free for all.
    pub fn avoided_by_all(&self) -> u128 {
        if self.waiting() == 0 {
            return u128::MAX;
        }
        self.lock().waiters.iter().fold(u128::MAX, |avoided, waiter| avoided & waiter.excluded_endpoints)
    }

    /// Joins the queue unless `most` are in it. `patience_ms` is half of how long it will wait.
    pub fn wait(
        self: &Arc<Self>,
        most: u32,
        worker: usize,
        now_ms: u64,
        timeout_ms: u64,
    ) -> Option<QueueTicket> {
        let mut queue = self.lock();
        queue.now_ms = queue.now_ms.max(now_ms);
        if queue.waiters.len() >= most as usize {
            self.refused_full.fetch_add(1, Relaxed);
            return None;
        }
        let id = queue.next_id;
        queue.next_id += 1;
        let long_wait_ms = timeout_ms / 2;
        queue.waiters.push_back(PendingRequest {
            id,
            worker,
            since_ms: now_ms,
            long_wait_ms,
            is_woken: false,
            call: 0,
            excluded_endpoints: 0,
            waker: None,
        });
        self.waiting.store(queue.waiters.len(), SeqCst);
        self.queued.fetch_add(1, Relaxed);
        Some(QueueTicket { gate: self.clone(), id, call: Cell::new(0) })
    }

    /// Whether a connection that `worker` has done with is wanted by another worker more than by its own.
    pub fn is_wanted_elsewhere(&self, worker: usize) -> bool {
        if self.waiting() == 0 {
            return false;
        }
        let queue = self.lock();
        queue.next(Some(worker), u64::MAX).is_some_and(|at| queue.waiters[at].worker != worker)
    }

    /// Calls the next of those who wait.
    fn call(&self, worker: Option<usize>) {
        if self.waiting() == 0 {
            return;
        }
        let mut queue = self.lock();
        let call = queue.new_call();
        let waker = queue.call_next(worker, call);
        drop(queue);
        waker.into_iter().for_each(Waker::wake);
    }

    fn wake_next(&self, count: u32) {
        let count = self.waiting().min(count as usize);
        (0..count).for_each(|_| self.call(None));
    }

    fn lock(&self) -> MutexGuard<'_, PendingQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A position in the pending queue; left on drop.
#[derive(Debug)]
pub struct QueueTicket {
    gate: Arc<UpstreamLimiter>,
    id: u64,
    /// The call it tries by.
    call: Cell<u64>,
}

impl QueueTicket {
    /// Whether it is one's turn to try; otherwise `waker` is woken when it is. Whoever is alone may always
    /// try, and at its first look who has nobody before it who could go wherever it can: a place may have come free
    /// before there was anybody to call, and who takes it calls the next.
    pub fn is_woken(&self, waker: &Waker, now_ms: u64) -> bool {
        let mut queue = self.gate.lock();
        queue.now_ms = queue.now_ms.max(now_ms);
        let has_no_predecessor = queue.waiters.len() == 1;
        let Some(at) = queue.find(self.id) else { return true };
        let waiter = &mut queue.waiters[at];
        let is_first_look = waiter.waker.replace(waker.clone()).is_none();
        let (is_woken, excluded_endpoints) =
            (std::mem::take(&mut waiter.is_woken), waiter.excluded_endpoints);
        let is_held_back = || queue.waiters.iter().take(at).any(|ahead| ahead.suits(excluded_endpoints));
        if !is_woken && !has_no_predecessor && (!is_first_look || is_held_back()) {
            return false;
        }
        if !is_woken {
            queue.waiters[at].call = queue.new_call();
        }
        self.call.set(queue.waiters[at].call);
        true
    }

    /// Notes which endpoints it cannot go to, as bits. Others are not held behind it there.
    pub fn avoid(&self, endpoints: u128) {
        let mut queue = self.gate.lock();
        if let Some(at) = queue.find(self.id) {
            queue.waiters[at].excluded_endpoints = endpoints;
        }
    }

    /// Found no room, though others may: the next one who could go where this one cannot is called.
    pub fn pass_on(&self) {
        let mut queue = self.gate.lock();
        let waker = queue.find(self.id).and_then(|at| queue.pass_on(at, self.call.get()));
        drop(queue);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Notes that the wait was in vain.
    pub fn give_up(self) {
        self.gate.refused_late.fetch_add(1, Relaxed);
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        let mut queue = self.gate.lock();
        if let Some(at) = queue.find(self.id) {
            queue.waiters.remove(at);
        }
        self.gate.waiting.store(queue.waiters.len(), SeqCst);
        drop(queue);
        // There may be more room than was taken, or a call that was not followed.
        self.gate.call(None);
    }
}

/// The right of a request to be under way; released on drop.
#[derive(Debug)]
pub struct RequestPermit {
    gate: Arc<UpstreamLimiter>,
    /// Whether nobody is called when it is given back.
    is_quiet: bool,
    endpoint: Option<EndpointSlot>,
    worker: usize,
    retry: Option<RetryPermit>,
}

/// The count of a request at its endpoint; released on drop.
#[derive(Debug)]
pub(crate) struct EndpointSlot(Arc<EndpointCounts>);

impl EndpointSlot {
    pub(super) fn get(endpoint: &Arc<EndpointCounts>, most: u32) -> Option<EndpointSlot> {
        enter(&endpoint.requests, most).then(|| EndpointSlot(endpoint.clone()))
    }
}

impl Drop for EndpointSlot {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, SeqCst);
    }
}

/// The right to one retry; released on drop.
#[derive(Debug)]
pub struct RetryPermit(Arc<UpstreamLimiter>);

impl RetryPermit {
    fn get(gate: &Arc<UpstreamLimiter>, most: u32) -> Option<RetryPermit> {
        enter(&gate.retries, most).then(|| RetryPermit(gate.clone()))
    }
}

impl Drop for RetryPermit {
    fn drop(&mut self) {
        self.0.retries.fetch_sub(1, Relaxed);
    }
}

impl RequestPermit {
    pub(super) fn get(gate: &Arc<UpstreamLimiter>, most: u32, worker: usize) -> Option<RequestPermit> {
        enter(&gate.requests, most).then(|| RequestPermit {
            gate: gate.clone(),
            is_quiet: false,
            endpoint: None,
            worker,
            retry: None,
        })
    }

    /// Goes to an endpoint that had room, which gives up the one before.
    pub(crate) fn move_to(&mut self, endpoint: EndpointSlot) {
        if self.endpoint.replace(endpoint).is_some() {
            self.gate.call(Some(self.worker));
        }
    }

    /// Releases the permit and returns its retry permit.
    pub fn give_back(mut self) -> Option<RetryPermit> {
        self.retry.take()
    }

    /// Releases the permit without waking a waiter.
    pub(crate) fn release_without_wake(mut self) {
        self.is_quiet = true;
    }

    /// A retry permit; `Ok(None)` if the request has one.
    pub(super) fn retry(&self, most: u32) -> Result<Option<RetryPermit>, LimiterFull> {
        match self.retry {
            Some(_) => Ok(None),
            None => RetryPermit::get(&self.gate, most).map(Some).ok_or(LimiterFull),
        }
    }

    /// Counts the request as a retry from now on, by this permit or by the one that it has.
    pub fn note_retry(&mut self, leave: Option<RetryPermit>) {
        self.retry = leave.or(self.retry.take());
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        // Whoever is called finds it free.
        self.endpoint = None;
        self.gate.requests.fetch_sub(1, SeqCst);
        if !self.is_quiet {
            self.gate.call(Some(self.worker));
        }
    }
}

impl PartialEq for EndpointPermit {
    fn eq(&self, other: &EndpointPermit) -> bool {
        Arc::ptr_eq(&self.gate, &other.gate) && Arc::ptr_eq(&self.endpoint, &other.endpoint)
    }
}

/// The right to one open connection; released on drop.
#[derive(Debug)]
pub struct EndpointPermit {
    gate: Arc<UpstreamLimiter>,
    endpoint: Arc<EndpointCounts>,
}

impl EndpointPermit {
    pub(super) fn get(gate: &Arc<UpstreamLimiter>, endpoint: &Arc<EndpointCounts>) -> Option<EndpointPermit> {
        let LimiterCapacity { all, each } = &gate.room;
        if !enter(&gate.connections, all.connections()) {
            return None;
        }
        if !enter(&endpoint.connections, each.connections()) {
            gate.connections.fetch_sub(1, SeqCst);
            return None;
        }
        Some(EndpointPermit { gate: gate.clone(), endpoint: endpoint.clone() })
    }

    /// Whether the connection should be closed rather than kept by `worker`.
    pub fn is_wanted_elsewhere(&self, worker: usize) -> bool {
        self.gate.is_wanted_elsewhere(worker)
    }

    /// Whether it is of this upstream.
    pub fn is_of(&self, gate: &Arc<UpstreamLimiter>) -> bool {
        Arc::ptr_eq(&self.gate, gate)
    }

    /// Whether there are more connections than there may be since, for one, the bounds were lowered.
    pub fn is_excess(&self) -> bool {
        let LimiterCapacity { all, each } = &self.gate.room;
        self.gate.connections.load(Relaxed) > all.connections()
            || self.endpoint.connections.load(Relaxed) > each.connections()
    }

    /// Whether somebody waits who could use it.
    pub fn is_wanted(&self) -> bool {
        self.gate.waiting() > 0
    }
}

impl Drop for EndpointPermit {
    fn drop(&mut self) {
        self.endpoint.connections.fetch_sub(1, SeqCst);
        self.gate.connections.fetch_sub(1, SeqCst);
        self.gate.call(None);
    }
}

/// Has a count say how many are elsewhere now, so that whoever enters need not look there; gives how many are gone.
fn settle(count: &AtomicU32, predecessor_requests: &AtomicU32, now: u32) -> u32 {
    let before = predecessor_requests.swap(now, SeqCst);
    count.fetch_add(now.wrapping_sub(before), SeqCst);
    before.saturating_sub(now)
}

/// Counts one more unless there are `most`.
fn enter(count: &AtomicU32, most: u32) -> bool {
    count.fetch_update(SeqCst, SeqCst, |now| (now < most).then_some(now + 1)).is_ok()
}
