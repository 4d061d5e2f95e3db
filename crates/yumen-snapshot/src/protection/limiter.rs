//! Permits of an upstream, counted over all workers, and the queue of requests that wait for one.
//!
//! The counts are atomics. The queue has a lock, which is taken only while a request is queued.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use super::outlier::{EndpointEjection, OutlierState};
use super::{ConcurrencyBounds, LimiterFull, ProtectionLimits};

/// The counts of one endpoint of an upstream.
#[derive(Debug, Default)]
pub struct EndpointCounts {
    /// Requests in flight, including those of the predecessor process.
    pub requests: AtomicU32,
    /// Open connections.
    pub connections: AtomicU32,
    /// The state of outlier detection.
    pub ejection: EndpointEjection,
    predecessor_requests: AtomicU32,
    /// The limiter whose queue is woken when a request ends.
    gate: Weak<UpstreamLimiter>,
}

impl EndpointCounts {
    /// The counts of a new endpoint of the upstream with the limiter `gate`.
    pub fn at(gate: &Arc<UpstreamLimiter>) -> EndpointCounts {
        EndpointCounts { gate: Arc::downgrade(gate), ..EndpointCounts::default() }
    }

    /// Sets the number of requests in flight in the predecessor process.
    pub(crate) fn set_predecessor_count(&self, count: u32) {
        // The predecessor's share is part of the count: admission needs one comparison only (decision 32).
        let freed = settle(&self.requests, &self.predecessor_requests, count);
        // The limiter may have left the configuration while the predecessor still reports.
        if let Some(gate) = self.gate.upgrade().filter(|_| freed > 0) {
            gate.wake_next(freed);
        }
    }
}

/// The counts of an upstream, and its queue.
#[derive(Debug, Default)]
pub struct UpstreamLimiter {
    /// Requests in flight, including those of the predecessor process.
    pub requests: AtomicU32,
    /// Open connections.
    pub connections: AtomicU32,
    /// Retries in flight.
    pub retries: AtomicU32,
    /// Requests refused because the queue was full.
    pub refused_full: AtomicU64,
    /// Requests refused because they were queued for too long.
    pub refused_late: AtomicU64,
    /// Retries refused by the budget.
    pub retries_refused: AtomicU64,
    /// Requests that were queued.
    pub queued: AtomicU64,
    /// The state of outlier detection.
    pub outliers: OutlierState,
    pub(super) room: LimiterCapacity,
    predecessor_requests: AtomicU32,
    waiting: AtomicUsize,
    queue: Mutex<PendingQueue>,
}

/// The bounds in force. They are part of the limiter rather than of each snapshot, so that a queued request of an older
/// snapshot follows the newest bounds.
#[derive(Debug)]
pub(super) struct LimiterCapacity {
    /// Bounds of all endpoints together.
    pub(super) all: AtomicBounds,
    /// Bounds of each endpoint.
    pub(super) each: AtomicBounds,
}

/// Bounds that a configuration change replaces.
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
    /// The number of calls so far. A call offers a freed permit to one queued request after another.
    calls: u64,
    /// The latest time that a worker brought.
    now_ms: u64,
}

/// A queued request.
#[derive(Debug)]
struct PendingRequest {
    id: u64,
    worker: usize,
    since_ms: u64,
    /// The wait after which the request counts as late.
    long_wait_ms: u64,
    is_woken: bool,
    /// The last call that was offered to the request, by number.
    call: u64,
    /// Endpoints that the request cannot use, as bits.
    excluded_endpoints: u128,
    waker: Option<Waker>,
}

impl PendingRequest {
    fn call(&mut self, call: u64) -> Option<Waker> {
        self.is_woken = true;
        self.call = call;
        self.waker.take()
    }

    /// Whether this request can use every endpoint that a request with these exclusions can use.
    fn suits(&self, avoided: u128) -> bool {
        self.excluded_endpoints & !avoided == 0
    }
}

impl PendingQueue {
    /// The next request for a call: the oldest one, or the newest one if the oldest is late. Under a lasting overload,
    /// serving in order would serve every request late. While no request is late, those of `worker` come first, since a
    /// connection cannot change its worker.
    fn next(&self, worker: Option<usize>, call: u64) -> Option<usize> {
        // A woken request has an offer already, and each call reaches a request at most once.
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

    /// Offers a call to the next request.
    fn call_next(&mut self, worker: Option<usize>, call: u64) -> Option<Waker> {
        let at = self.next(worker, call)?;
        self.waiters[at].call(call)
    }

    /// Passes on a call that the request `at` could not use. A request that excludes the same endpoints cannot use it
    /// either and is skipped, so a call wakes each request at most once, and only one of equal exclusions.
    fn pass_on(&mut self, at: usize, call: u64) -> Option<Waker> {
        let PendingRequest { excluded_endpoints, worker, .. } = self.waiters[at];
        // The request could use every endpoint and found none free; the others would find none either.
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
        // Ids ascend and the queue is appended at its end only.
        self.waiters.binary_search_by_key(&id, |waiter| waiter.id).ok()
    }
}

impl UpstreamLimiter {
    /// Sets the number of requests in flight in the predecessor process.
    pub(crate) fn set_predecessor_count(&self, count: u32) {
        self.wake_next(settle(&self.requests, &self.predecessor_requests, count));
    }

    /// The number of queued requests.
    pub fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Replaces the bounds; `None` removes them. After higher bounds, the caller wakes the queue by
    /// [`UpstreamLimiter::call_all`].
    pub fn set_limits(&self, limits: Option<&ProtectionLimits>) {
        let (all, each) = limits
            .map_or((ConcurrencyBounds::NONE, ConcurrencyBounds::NONE), |limits| (limits.all, limits.each));
        // Stored before the caller wakes the queue: a woken request must see the new bounds.
        self.room.all.set(all);
        self.room.each.set(each);
    }

    /// Wakes all queued requests, since the endpoints or bounds changed.
    pub fn call_all(&self) {
        // The common case takes no lock.
        if self.waiting() == 0 {
            return;
        }
        let mut queue = self.lock();
        let call = queue.new_call();
        // Wakers are collected under the lock and run after it: a waker may schedule a task that takes the same lock.
        let wakers: Vec<Waker> = queue.waiters.iter_mut().filter_map(|waiter| waiter.call(call)).collect();
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Endpoints that no queued request can use, as bits. A new request may use them without queueing.
    pub fn avoided_by_all(&self) -> u128 {
        if self.waiting() == 0 {
            // An empty queue holds back no request, whatever the endpoint.
            return u128::MAX;
        }
        self.lock().waiters.iter().fold(u128::MAX, |avoided, waiter| avoided & waiter.excluded_endpoints)
    }

    /// Queues a request, unless the queue has `most` requests. It counts as late after half of `timeout_ms`.
    pub fn wait(
        self: &Arc<Self>,
        most: u32,
        worker: usize,
        now_ms: u64,
        timeout_ms: u64,
    ) -> Option<QueueTicket> {
        let mut queue = self.lock();
        // Workers read their clocks separately; the queue's time must not go back.
        queue.now_ms = queue.now_ms.max(now_ms);
        // The bound is checked under the lock, so two workers cannot exceed it together.
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
        // Sequentially consistent with the permit counts. Either the releasing worker sees the waiter, or the waiter's first
        // attempt sees the free permit; with a weaker order both could miss each other and the request would sleep.
        self.waiting.store(queue.waiters.len(), SeqCst);
        self.queued.fetch_add(1, Relaxed);
        Some(QueueTicket { gate: self.clone(), id, call: Cell::new(0) })
    }

    /// Whether the next request for a freed connection is queued on another worker than `worker`.
    pub fn is_awaited_elsewhere(&self, worker: usize) -> bool {
        // Every kept connection comes through here; without a queue it must not take a lock.
        if self.waiting() == 0 {
            return false;
        }
        let queue = self.lock();
        // The largest call number considers all requests that have not been woken.
        queue.next(Some(worker), u64::MAX).is_some_and(|at| queue.waiters[at].worker != worker)
    }

    /// Offers a freed permit to the next queued request.
    fn call(&self, worker: Option<usize>) {
        // The count is read before the lock: releases without a queue stay free of locks (decision 33).
        if self.waiting() == 0 {
            return;
        }
        let mut queue = self.lock();
        let call = queue.new_call();
        let waker = queue.call_next(worker, call);
        // Unlocked before the wake, so the woken worker does not meet the lock.
        drop(queue);
        waker.into_iter().for_each(Waker::wake);
    }

    fn wake_next(&self, count: u32) {
        // A call beyond the queue would wake no request.
        let count = self.waiting().min(count as usize);
        (0..count).for_each(|_| self.call(None));
    }

    fn lock(&self) -> MutexGuard<'_, PendingQueue> {
        // A panic on one worker must not stop the requests of all others.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A position in the pending queue; left on drop.
#[derive(Debug)]
pub struct QueueTicket {
    gate: Arc<UpstreamLimiter>,
    id: u64,
    /// The call that woke the request.
    call: Cell<u64>,
}

impl QueueTicket {
    /// Whether the request may try to take a permit; otherwise `waker` is woken when it may.
    ///
    /// A request that is alone may always try. So may a request at its first poll, if no request ahead can use the same
    /// endpoints: a permit may have been freed before the queue had a request to wake. A successful request wakes the
    /// next one.
    pub fn is_woken(&self, waker: &Waker, now_ms: u64) -> bool {
        let mut queue = self.gate.lock();
        queue.now_ms = queue.now_ms.max(now_ms);
        let is_alone = queue.waiters.len() == 1;
        // A ticket without an entry cannot be woken; trying is the only way on.
        let Some(at) = queue.find(self.id) else { return true };
        let waiter = &mut queue.waiters[at];
        let is_first_poll = waiter.waker.replace(waker.clone()).is_none();
        let (was_woken, excluded_endpoints) =
            // An offer is used once.
            (std::mem::take(&mut waiter.is_woken), waiter.excluded_endpoints);
        let is_held_back = || queue.waiters.iter().take(at).any(|ahead| ahead.suits(excluded_endpoints));
        if !was_woken && !is_alone && (!is_first_poll || is_held_back()) {
            return false;
        }
        // A request that tries unasked needs a call of its own, so that it can pass the attempt on.
        if !was_woken {
            queue.waiters[at].call = queue.new_call();
        }
        self.call.set(queue.waiters[at].call);
        true
    }

    /// Sets the endpoints that the request cannot use, as bits. It does not hold back others there.
    pub fn avoid(&self, endpoints: u128) {
        let mut queue = self.gate.lock();
        if let Some(at) = queue.find(self.id) {
            queue.waiters[at].excluded_endpoints = endpoints;
        }
    }

    /// Passes the call on to a request that can use other endpoints than this one.
    pub fn pass_on(&self) {
        let mut queue = self.gate.lock();
        let waker = queue.find(self.id).and_then(|at| queue.pass_on(at, self.call.get()));
        // The waker runs outside the lock.
        drop(queue);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Leaves the queue without a permit, after the timeout.
    pub fn give_up(self) {
        // The drop of the ticket leaves the queue and offers an unused call to the next request.
        self.gate.refused_late.fetch_add(1, Relaxed);
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        let mut queue = self.gate.lock();
        if let Some(at) = queue.find(self.id) {
            queue.waiters.remove(at);
        }
        // Stored under the lock, so that the count never lags behind a later change of the queue.
        self.gate.waiting.store(queue.waiters.len(), SeqCst);
        drop(queue);
        // The request may leave with an unused call, or several permits may be free; the next request finds out.
        self.gate.call(None);
    }
}

/// Permit for a request in flight; releases its slots on drop.
#[derive(Debug)]
pub struct RequestPermit {
    gate: Arc<UpstreamLimiter>,
    /// Whether the release wakes no queued request.
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
        // SeqCst, as all counts that `UpstreamLimiter::call` relies on.
        self.0.requests.fetch_sub(1, SeqCst);
    }
}

/// Permit for one retry; releases its slot on drop.
#[derive(Debug)]
pub struct RetryPermit(Arc<UpstreamLimiter>);

impl RetryPermit {
    fn get(gate: &Arc<UpstreamLimiter>, most: u32) -> Option<RetryPermit> {
        enter(&gate.retries, most).then(|| RetryPermit(gate.clone()))
    }
}

impl Drop for RetryPermit {
    fn drop(&mut self) {
        // No request waits for a retry permit, so no order with the queue is required.
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

    /// Moves the request to another endpoint; the slot at the previous one is released.
    pub(crate) fn move_to(&mut self, endpoint: EndpointSlot) {
        // Only a released slot is worth a call; the first endpoint of a request frees nothing.
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
        // `retry` yields no second permit, so at most one of the two is present.
        self.retry = leave.or(self.retry.take());
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        // The slots are released first: a woken request must find them free.
        self.endpoint = None;
        self.gate.requests.fetch_sub(1, SeqCst);
        if !self.is_quiet {
            self.gate.call(Some(self.worker));
        }
    }
}

impl PartialEq for EndpointPermit {
    fn eq(&self, other: &EndpointPermit) -> bool {
        // Identity decides: the counts of different endpoints may be equal by value.
        Arc::ptr_eq(&self.gate, &other.gate) && Arc::ptr_eq(&self.endpoint, &other.endpoint)
    }
}

/// Permit for one open connection; releases its slots on drop.
#[derive(Debug)]
pub struct EndpointPermit {
    gate: Arc<UpstreamLimiter>,
    endpoint: Arc<EndpointCounts>,
}

impl EndpointPermit {
    pub(super) fn get(gate: &Arc<UpstreamLimiter>, endpoint: &Arc<EndpointCounts>) -> Option<EndpointPermit> {
        // The bounds of the limiter, not of a snapshot: they are the newest ones.
        let LimiterCapacity { all, each } = &gate.room;
        // Checked before the count of the upstream changes, so that only a race leads to the undo below. Otherwise two
        // queued requests that wait for this endpoint would wake each other without end.
        if endpoint.connections.load(SeqCst) >= each.connections()
            || !enter(&gate.connections, all.connections())
        {
            return None;
        }
        if !enter(&endpoint.connections, each.connections()) {
            gate.connections.fetch_sub(1, SeqCst);
            // A request that found the upstream full at this instant was queued; its slot is free again.
            gate.call(None);
            return None;
        }
        Some(EndpointPermit { gate: gate.clone(), endpoint: endpoint.clone() })
    }

    /// Whether the connection should be closed rather than kept by `worker`.
    pub fn is_awaited_elsewhere(&self, worker: usize) -> bool {
        self.gate.is_awaited_elsewhere(worker)
    }

    /// Whether the connection is counted by this limiter.
    pub fn is_of(&self, gate: &Arc<UpstreamLimiter>) -> bool {
        Arc::ptr_eq(&self.gate, gate)
    }

    /// Whether there are more connections than allowed, for example since the bounds were lowered.
    pub fn is_excess(&self) -> bool {
        let LimiterCapacity { all, each } = &self.gate.room;
        self.gate.connections.load(Relaxed) > all.connections()
            || self.endpoint.connections.load(Relaxed) > each.connections()
    }

    /// Whether a request is queued that could use the connection.
    pub fn is_awaited(&self) -> bool {
        self.gate.waiting() > 0
    }
}

impl Drop for EndpointPermit {
    fn drop(&mut self) {
        self.endpoint.connections.fetch_sub(1, SeqCst);
        self.gate.connections.fetch_sub(1, SeqCst);
        // A request may have been queued for a connection rather than for a request permit.
        self.gate.call(None);
    }
}

/// Replaces the share of the predecessor process in a count, so that permits need only one comparison. Returns the
/// number of requests that ended there.
fn settle(count: &AtomicU32, predecessor_requests: &AtomicU32, now: u32) -> u32 {
    let before = predecessor_requests.swap(now, SeqCst);
    // Wrapping arithmetic lets one addition serve growth and decline.
    count.fetch_add(now.wrapping_sub(before), SeqCst);
    before.saturating_sub(now)
}

/// Increments a count that is below `most`; returns whether it was.
fn enter(count: &AtomicU32, most: u32) -> bool {
    // Compare and swap instead of add and undo: an excess count, even for an instant, would refuse other requests.
    count.fetch_update(SeqCst, SeqCst, |now| (now < most).then_some(now + 1)).is_ok()
}
