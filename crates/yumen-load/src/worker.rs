//! One thread of the generator: its runtime, its request loops and their schedule. Independent of protocols.
//! A request loop has one request in flight: an HTTP/1.1 connection or an HTTP/2 stream.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::task::Context;

use tokio::task::spawn_local;

use crate::alarm::{AlarmQueue, AlarmTimer, RunClock};
use crate::phase::PhaseShared;
use crate::plan::LoadShape;
use crate::prepared::{PreparedPlan, PreparedRequest};
use crate::tally::{ErrorClass, RequestFailure, RequestMoments, SecondCounts, ThreadTally};

const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;
const SCRATCH_BYTES: usize = 64 * 1024;
/// Pause of a closed loop after a failed connection attempt, which otherwise repeats in a tight loop.
const FAILED_CONNECT_PAUSE_NS: u64 = 10 * MILLISECOND_NS;

/// Shared state of one thread's tasks.
pub(crate) struct LoadWorker {
    pub(crate) shared: Arc<PhaseShared>,
    pub(crate) prepared: Arc<PreparedPlan>,
    pub(crate) clock: RunClock,
    pub(crate) alarm: Rc<AlarmQueue>,
    pub(crate) tally: RefCell<ThreadTally>,
    /// Read buffer shared by all connections of the thread.
    pub(crate) scratch: RefCell<Box<[u8]>>,
    pub(crate) bytes_sent: Cell<u64>,
    pub(crate) bytes_received: Cell<u64>,
    pub(crate) thread: usize,
    start_ns: Cell<u64>,
    end_ns: Cell<u64>,
}

/// A loop with one request in flight at a time.
pub(crate) struct RequestLoop {
    /// Index over all threads.
    pub(crate) index: usize,
    /// Time of the first byte of the request in flight.
    pub(crate) sent_ns: Cell<Option<u64>>,
    /// Open loop: due time of the earliest unfinished request.
    due_ns: Cell<u64>,
    busy: Cell<bool>,
    begun: Cell<u64>,
    free_since_ns: Cell<u64>,
    picks: Cell<usize>,
    timer: AlarmTimer,
}

impl LoadWorker {
    pub(crate) fn new(
        shared: Arc<PhaseShared>,
        thread: usize,
        seconds: Sender<SecondCounts>,
    ) -> io::Result<Rc<Self>> {
        let prepared = shared.prepared.clone();
        Ok(Rc::new(Self {
            clock: shared.clock,
            alarm: AlarmQueue::new(shared.clock)?,
            tally: RefCell::new(ThreadTally::new(prepared.plan.good_statuses, Some(seconds))),
            scratch: RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
            bytes_sent: Cell::new(0),
            bytes_received: Cell::new(0),
            thread,
            // Until the start, nothing counts and nothing ends.
            start_ns: Cell::new(u64::MAX),
            end_ns: Cell::new(u64::MAX),
            prepared,
            shared,
        }))
    }

    /// Indexes of this thread's request loops. A connection with all its streams belongs to one thread.
    pub(crate) fn loop_indexes(&self) -> impl Iterator<Item = usize> + use<> {
        let plan = &self.prepared.plan;
        let streams = self.prepared.request_loops() / plan.connections;
        // By turns, so that the threads differ by one connection at most.
        let connections = (self.thread..plan.connections).step_by(plan.threads);
        connections.flat_map(move |connection| (0..streams).map(move |stream| connection * streams + stream))
    }

    /// Waits until every thread is ready. All threads then start at the same time.
    pub(crate) async fn begin(self: &Rc<Self>) {
        self.shared.thread_ready();
        let timer = self.alarm.timer();
        let start_ns = loop {
            match self.shared.start_ns() {
                Some(start_ns) => break start_ns,
                // Polled every millisecond, which is shorter than the delay from readiness to the start.
                None => timer.until(self.clock.now_ns() + MILLISECOND_NS).await,
            }
        };
        // All threads start together, so that their seconds cover the same time.
        timer.until(start_ns).await;
        let plan = &self.prepared.plan;
        let counted_from_ns = start_ns + plan.limits.warmup_ms * MILLISECOND_NS;
        self.start_ns.set(start_ns);
        if let Some(duration_ms) = plan.limits.duration_ms {
            self.end_ns.set(counted_from_ns + duration_ms * MILLISECOND_NS);
        }
        self.tally.borrow_mut().count_from(counted_from_ns);
        spawn_local(tick(self.clone(), counted_from_ns));
    }

    /// Start time of the run on its clock.
    pub(crate) fn start_ns(&self) -> u64 {
        self.start_ns.get()
    }

    /// Waits until the loop's next request is due. `None` at the end of the run.
    pub(crate) async fn next<'a>(&'a self, request_loop: &RequestLoop) -> Option<&'a PreparedRequest> {
        if let LoadShape::Open { rate } = self.prepared.plan.kind {
            let due_ns = self.due_ns(request_loop, request_loop.begun.get(), rate);
            request_loop.due_ns.set(due_ns);
            // In this order: a request after the end must not be taken from the count.
            if due_ns >= self.end_ns.get() || !self.shared.take_request() {
                // Marks the loop as finished for `cut_off`.
                request_loop.due_ns.set(u64::MAX);
                return None;
            }
            request_loop.timer.until(due_ns).await;
            let now = self.clock.now_ns();
            // A request cannot be sent before the loop is free: that delay belongs to the target, not to the
            // generator.
            let possible_ns = due_ns.max(request_loop.free_since_ns.get());
            self.tally.borrow_mut().lagged(now.saturating_sub(possible_ns));
        } else if self.clock.now_ns() >= self.end_ns.get() || !self.shared.take_request() {
            return None;
        }
        // After the wait: `cut_off` counts a request that is due and not begun.
        request_loop.begun.set(request_loop.begun.get() + 1);
        request_loop.busy.set(true);
        request_loop.sent_ns.set(None);
        Some(self.pick(request_loop))
    }

    /// Next target by weight. Each loop starts at a different position in the order.
    pub(crate) fn pick(&self, request_loop: &RequestLoop) -> &PreparedRequest {
        let order = &self.prepared.order;
        let pick = request_loop.picks.get();
        request_loop.picks.set(if pick + 1 == order.len() { 0 } else { pick + 1 });
        &self.prepared.targets[order[pick] as usize]
    }

    /// Records the outcome of a request. A closed loop then pauses after a failed connection attempt.
    pub(crate) async fn finish(&self, request_loop: &RequestLoop, outcome: Result<u16, RequestFailure>) {
        if self.record(request_loop, outcome) {
            request_loop.timer.until(self.clock.now_ns() + FAILED_CONNECT_PAUSE_NS).await;
        }
    }

    /// Records the outcome; returns whether a closed loop should pause.
    fn record(&self, request_loop: &RequestLoop, outcome: Result<u16, RequestFailure>) -> bool {
        let ended_ns = self.clock.now_ns();
        let moments = self.moments(request_loop, ended_ns);
        // Before the pause of a failed attempt, which is no request in flight.
        request_loop.busy.set(false);
        request_loop.free_since_ns.set(ended_ns);
        let mut tally = self.tally.borrow_mut();
        match outcome {
            Ok(status) => {
                tally.answered(moments, status);
                false
            }
            Err(failure) => {
                let connecting = matches!(failure.class, ErrorClass::Connect | ErrorClass::ConnectTimeout);
                tally.failed(moments, failure);
                // An open loop keeps its schedule whatever fails.
                connecting && matches!(self.prepared.plan.kind, LoadShape::Closed)
            }
        }
    }

    fn moments(&self, request_loop: &RequestLoop, ended_ns: u64) -> RequestMoments {
        let open = matches!(self.prepared.plan.kind, LoadShape::Open { .. });
        RequestMoments {
            intended_ns: open.then(|| request_loop.due_ns.get()),
            sent_ns: request_loop.sent_ns.get(),
            ended_ns,
        }
    }

    /// Whether the run has reached its end; otherwise sets `timer` to wake the task then.
    pub(crate) fn is_over(&self, timer: &AlarmTimer, cx: &mut Context<'_>) -> bool {
        let end_ns = self.end_ns.get();
        if end_ns == u64::MAX {
            return false;
        }
        // Costs nothing when repeated: the queue has the entry already.
        timer.set(end_ns);
        timer.is_over(cx) || self.clock.now_ns() >= end_ns
    }

    /// Records the requests that the end of the run cuts off, and ends the last second.
    pub(crate) fn cut_off_all(&self, loops: &[Rc<RequestLoop>]) {
        let now = self.clock.now_ns();
        loops.iter().for_each(|request_loop| self.cut_off(request_loop, now));
        // One nanosecond before the end, which belongs to the next second.
        self.tally.borrow_mut().turn_second(self.end_ns.get().min(now).saturating_sub(1));
    }

    /// Takes the counters at the end of the phase.
    pub(crate) fn take_tally(&self) -> ThreadTally {
        let empty = ThreadTally::new(self.prepared.plan.good_statuses, None);
        let mut tally = self.tally.replace(empty);
        tally.transfer.bytes_sent = self.bytes_sent.get();
        tally.transfer.bytes_received = self.bytes_received.get();
        tally.finish();
        tally
    }

    /// Records the requests of a loop that the end of the run cuts off: the one in flight and, in open loop, all that were
    /// due.
    fn cut_off(&self, request_loop: &RequestLoop, now_ns: u64) {
        // Without them, an overloaded target would hide its longest latencies (coordinated omission).
        let mut tally = self.tally.borrow_mut();
        let ended_ns = now_ns.min(self.end_ns.get());
        if request_loop.busy.get() {
            tally.cut_off(self.moments(request_loop, ended_ns));
        }
        let LoadShape::Open { rate } = self.prepared.plan.kind else { return };
        if self.end_ns.get() == u64::MAX || request_loop.due_ns.get() == u64::MAX {
            return;
        }
        // The request in flight is counted already.
        let mut is_counted = !request_loop.busy.get();
        // Ends by the due time, which grows with the number.
        for number in request_loop.begun.get().. {
            let due_ns = self.due_ns(request_loop, number, rate);
            if due_ns >= ended_ns || !(is_counted || self.shared.take_request()) {
                return;
            }
            is_counted = false;
            tally.cut_off(RequestMoments { intended_ns: Some(due_ns), sent_ns: None, ended_ns });
        }
    }

    /// Due time of a request by number: the loops take turns at a constant rate.
    fn due_ns(&self, request_loop: &RequestLoop, number: u64, rate: f64) -> u64 {
        let turn = number * self.prepared.request_loops() as u64 + request_loop.index as u64;
        // From the start, so that rounding errors do not add up.
        self.start_ns.get() + (turn as f64 * SECOND_NS as f64 / rate) as u64
    }
}

impl RequestLoop {
    pub(crate) fn new(worker: &Rc<LoadWorker>, index: usize) -> Self {
        Self {
            index,
            sent_ns: Cell::new(None),
            due_ns: Cell::new(u64::MAX),
            busy: Cell::new(false),
            begun: Cell::new(0),
            free_since_ns: Cell::new(0),
            // A prime step spreads the positions; equal ones would send every target in bursts.
            picks: Cell::new(index.wrapping_mul(7919) % worker.prepared.order.len()),
            timer: worker.alarm.timer(),
        }
    }
}

/// Ends each second of the timeline, including seconds without events.
async fn tick(worker: Rc<LoadWorker>, counted_from_ns: u64) {
    let timer = worker.alarm.timer();
    timer.until(counted_from_ns).await;
    // The bytes of the warm-up do not count.
    worker.bytes_sent.set(0);
    worker.bytes_received.set(0);
    for second in 1.. {
        timer.until(counted_from_ns + second * SECOND_NS).await;
        worker.tally.borrow_mut().turn_second(worker.clock.now_ns());
    }
}
