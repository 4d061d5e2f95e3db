//! One thread of the generator: its runtime, its request loops and their schedule. Independent of protocols.
//! A request loop has one request in flight: an HTTP/1.1 connection or an HTTP/2 stream.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::task::Poll;

use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;

use crate::alarm::{AlarmQueue, AlarmTimer, RunClock};
use crate::http1::Http1Client;
use crate::plan::{LoadProtocol, LoadShape};
use crate::prepared::{PreparedPlan, PreparedRequest};
use crate::tally::{ErrorClass, RequestFailure, RequestMoments, SecondCounts, ThreadTally};
use crate::{http2, idle, ramp};

const SECOND_NS: u64 = 1_000_000_000;
const MILLISECOND_NS: u64 = 1_000_000;
const CONNECT_AHEAD: usize = 64;
const SCRATCH_BYTES: usize = 64 * 1024;
/// Pause of a closed loop after a failed connection attempt, which otherwise repeats in a tight loop.
const FAILED_CONNECT_PAUSE_NS: u64 = 10 * MILLISECOND_NS;

/// Shared state of all threads of a phase.
pub(crate) struct PhaseShared {
    pub(crate) prepared: Arc<PreparedPlan>,
    pub(crate) clock: RunClock,
    /// Requests that may still be started.
    pub(crate) tickets: AtomicU64,
    /// Threads ready to start.
    ready: AtomicUsize,
    /// Common start time; 0 until all threads are ready.
    start_ns: AtomicU64,
    pub(crate) idle: idle::IdleBarrier,
    pub(crate) ramp: Option<ramp::RampTarget>,
}

impl PhaseShared {
    pub(crate) fn new(prepared: Arc<PreparedPlan>, ramp: Option<ramp::RampTarget>) -> Arc<Self> {
        let tickets = prepared.plan.count.unwrap_or(u64::MAX);
        Arc::new(Self {
            prepared,
            clock: RunClock::start(),
            tickets: AtomicU64::new(tickets),
            ready: AtomicUsize::new(0),
            start_ns: AtomicU64::new(0),
            idle: idle::IdleBarrier::default(),
            ramp,
        })
    }

    /// Start of counting, once all threads are ready.
    pub(crate) fn counted_from_ns(&self) -> Option<u64> {
        let start_ns = self.start_ns.load(Ordering::Acquire);
        (start_ns > 0).then(|| start_ns + self.prepared.plan.warmup_ms * MILLISECOND_NS)
    }
}

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

/// Generates load on the calling thread until the end of the phase.
pub(crate) fn run(
    shared: Arc<PhaseShared>,
    thread: usize,
    intervals: Sender<SecondCounts>,
) -> io::Result<ThreadTally> {
    let runtime = Builder::new_current_thread().enable_io().build_local(LocalOptions::default())?;
    let tally = runtime.block_on(async move {
        let worker = LoadWorker::new(shared, thread, intervals)?;
        let alarm = worker.alarm.clone();
        spawn_local(async move { alarm.drive().await });
        worker.clone().work().await;
        let mut tally = worker.tally.borrow_mut();
        tally.bytes_sent = worker.bytes_sent.get();
        tally.bytes_received = worker.bytes_received.get();
        tally.finish();
        io::Result::Ok(std::mem::replace(&mut *tally, ThreadTally::new((0, 0), None)))
    })?;
    Ok(tally)
}

impl LoadWorker {
    fn new(shared: Arc<PhaseShared>, thread: usize, intervals: Sender<SecondCounts>) -> io::Result<Rc<Self>> {
        let prepared = shared.prepared.clone();
        Ok(Rc::new(Self {
            clock: shared.clock,
            alarm: AlarmQueue::new(shared.clock)?,
            tally: RefCell::new(ThreadTally::new(prepared.plan.good_statuses, Some(intervals))),
            scratch: RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
            bytes_sent: Cell::new(0),
            bytes_received: Cell::new(0),
            thread,
            start_ns: Cell::new(u64::MAX),
            end_ns: Cell::new(u64::MAX),
            prepared,
            shared,
        }))
    }

    async fn work(self: Rc<Self>) {
        match &self.prepared.plan.kind {
            LoadShape::Closed | LoadShape::Open { .. } => self.work_lanes().await,
            LoadShape::Ramp { .. } => {
                self.begin().await;
                ramp::work(&self).await;
            }
            LoadShape::Idle { .. } => {
                self.begin().await;
                idle::work(&self).await;
            }
        }
    }

    async fn work_lanes(self: Rc<Self>) {
        let lanes: Vec<Rc<RequestLoop>> =
            self.own_lanes().map(|index| Rc::new(RequestLoop::new(&self, index))).collect();
        let mut tasks = Vec::new();
        match self.prepared.plan.protocol {
            LoadProtocol::Http1 => {
                let mut clients: Vec<_> =
                    lanes.iter().map(|lane| Http1Client::new(&self, lane.index)).collect();
                if self.connects_ahead() {
                    clients = self.connect_ahead(clients).await;
                }
                self.begin().await;
                for (lane, client) in lanes.iter().zip(clients) {
                    tasks.push(spawn_local(http1_lane(self.clone(), lane.clone(), client)));
                }
            }
            LoadProtocol::Http2 => {
                let sessions = http2::Http2Sessions::new(&self, lanes.len());
                if self.connects_ahead() {
                    sessions.prepare(&self).await;
                }
                self.begin().await;
                for (number, lane) in lanes.iter().enumerate() {
                    let session = sessions.of_lane(&self, number);
                    tasks.push(spawn_local(http2_lane(self.clone(), lane.clone(), session)));
                }
            }
        }
        let end = self.alarm.timer();
        let mut finished = pin!(async {
            for task in tasks {
                // A panicked loop counts as ended.
                let _ = task.await;
            }
        });
        std::future::poll_fn(|cx| {
            let over = finished.as_mut().poll(cx).is_ready();
            if over || (self.end_ns.get() != u64::MAX && self.is_end(&end, cx)) {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
        let now = self.clock.now_ns();
        lanes.iter().for_each(|lane| self.cut_off(lane, now));
        self.tally.borrow_mut().turn_second(self.end_ns.get().min(now).saturating_sub(1));
    }

    fn is_end(&self, timer: &AlarmTimer, cx: &mut std::task::Context<'_>) -> bool {
        timer.set(self.end_ns.get());
        timer.is_over(cx) || self.clock.now_ns() >= self.end_ns.get()
    }

    /// Whether to connect before the start, so that an open loop does not begin with a burst of handshakes.
    ///
    /// Not if every request uses a new connection.
    fn connects_ahead(&self) -> bool {
        matches!(self.prepared.plan.kind, LoadShape::Open { .. }) && !self.prepared.plan.new_connection
    }

    async fn connect_ahead(self: &Rc<Self>, clients: Vec<Http1Client>) -> Vec<Http1Client> {
        let mut ready = Vec::with_capacity(clients.len());
        let mut clients = clients.into_iter().peekable();
        while clients.peek().is_some() {
            // The batch size fits any listen backlog.
            let some = clients.by_ref().take(CONNECT_AHEAD).map(|mut client| {
                let worker = self.clone();
                spawn_local(async move {
                    client.prepare(&worker).await;
                    client
                })
            });
            for connecting in some.collect::<Vec<_>>() {
                ready.extend(connecting.await);
            }
        }
        ready
    }

    /// Request loops of this thread. A connection with all its streams belongs to one thread.
    fn own_lanes(&self) -> impl Iterator<Item = usize> + use<> {
        let plan = &self.prepared.plan;
        let streams = self.prepared.lanes() / plan.connections;
        let connections = (self.thread..plan.connections).step_by(plan.threads);
        connections.flat_map(move |connection| (0..streams).map(move |stream| connection * streams + stream))
    }

    /// Waits until every thread is ready. All threads then start at the same time.
    pub(crate) async fn begin(self: &Rc<Self>) {
        let shared = &self.shared;
        if shared.ready.fetch_add(1, Ordering::AcqRel) + 1 == self.prepared.plan.threads {
            shared.start_ns.store(self.clock.now_ns() + 5 * MILLISECOND_NS, Ordering::Release);
        }
        let timer = self.alarm.timer();
        while shared.start_ns.load(Ordering::Acquire) == 0 {
            timer.until(self.clock.now_ns() + MILLISECOND_NS).await;
        }
        let start_ns = shared.start_ns.load(Ordering::Acquire);
        timer.until(start_ns).await;
        let plan = &self.prepared.plan;
        let counted_from_ns = start_ns + plan.warmup_ms * MILLISECOND_NS;
        self.start_ns.set(start_ns);
        if let Some(duration_ms) = plan.duration_ms {
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
    pub(crate) async fn next<'a>(&'a self, lane: &RequestLoop) -> Option<&'a PreparedRequest> {
        if let LoadShape::Open { rate } = self.prepared.plan.kind {
            let due_ns = self.due_ns(lane, lane.begun.get(), rate);
            lane.due_ns.set(due_ns);
            if due_ns >= self.end_ns.get() || !self.take_ticket() {
                lane.due_ns.set(u64::MAX);
                return None;
            }
            lane.timer.until(due_ns).await;
            let now = self.clock.now_ns();
            // A request cannot be sent before the loop is free: that delay belongs to the target, not to the
            // generator.
            let possible_ns = due_ns.max(lane.free_since_ns.get());
            self.tally.borrow_mut().lagged(now.saturating_sub(possible_ns));
        } else if self.clock.now_ns() >= self.end_ns.get() || !self.take_ticket() {
            return None;
        }
        lane.begun.set(lane.begun.get() + 1);
        lane.busy.set(true);
        lane.sent_ns.set(None);
        Some(self.pick(lane))
    }

    /// Next target by weight. Each loop starts at a different position in the order.
    pub(crate) fn pick(&self, lane: &RequestLoop) -> &PreparedRequest {
        let order = &self.prepared.order;
        let pick = lane.picks.get();
        lane.picks.set(if pick + 1 == order.len() { 0 } else { pick + 1 });
        &self.prepared.targets[order[pick] as usize]
    }

    fn take_ticket(&self) -> bool {
        if self.prepared.plan.count.is_none() {
            return true;
        }
        let tickets = &self.shared.tickets;
        tickets.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Records the outcome of a request; returns whether a closed loop should pause.
    pub(crate) fn record(&self, lane: &RequestLoop, outcome: Result<u16, RequestFailure>) -> bool {
        let ended_ns = self.clock.now_ns();
        let moments = self.moments(lane, ended_ns);
        lane.busy.set(false);
        lane.free_since_ns.set(ended_ns);
        let mut tally = self.tally.borrow_mut();
        match outcome {
            Ok(status) => {
                tally.answered(moments, status);
                false
            }
            Err(failure) => {
                let connecting = matches!(failure.class, ErrorClass::Connect | ErrorClass::ConnectTimeout);
                tally.failed(moments, failure);
                connecting && matches!(self.prepared.plan.kind, LoadShape::Closed)
            }
        }
    }

    fn moments(&self, lane: &RequestLoop, ended_ns: u64) -> RequestMoments {
        let open = matches!(self.prepared.plan.kind, LoadShape::Open { .. });
        RequestMoments { intended_ns: open.then(|| lane.due_ns.get()), sent_ns: lane.sent_ns.get(), ended_ns }
    }

    /// Records the requests cut off by the end of the run: the one in flight and, in open loop, all that were
    /// due.
    fn cut_off(&self, lane: &RequestLoop, now_ns: u64) {
        // Without them, an overloaded target would hide its longest latencies (coordinated omission).
        let mut tally = self.tally.borrow_mut();
        let ended_ns = now_ns.min(self.end_ns.get());
        if lane.busy.get() {
            tally.cut_off(self.moments(lane, ended_ns));
        }
        let LoadShape::Open { rate } = self.prepared.plan.kind else { return };
        if self.end_ns.get() == u64::MAX || lane.due_ns.get() == u64::MAX {
            return;
        }
        // The request in flight has already consumed its ticket.
        let mut has_ticket = !lane.busy.get();
        for number in lane.begun.get().. {
            let due_ns = self.due_ns(lane, number, rate);
            if due_ns >= ended_ns || !(has_ticket || self.take_ticket()) {
                return;
            }
            has_ticket = false;
            tally.cut_off(RequestMoments { intended_ns: Some(due_ns), sent_ns: None, ended_ns });
        }
    }

    /// Due time of a request by number: the loops take turns at a constant rate.
    fn due_ns(&self, lane: &RequestLoop, number: u64, rate: f64) -> u64 {
        let turn = number * self.prepared.lanes() as u64 + lane.index as u64;
        self.start_ns.get() + (turn as f64 * SECOND_NS as f64 / rate) as u64
    }
}

impl RequestLoop {
    fn new(worker: &Rc<LoadWorker>, index: usize) -> Self {
        Self {
            index,
            sent_ns: Cell::new(None),
            due_ns: Cell::new(u64::MAX),
            busy: Cell::new(false),
            begun: Cell::new(0),
            free_since_ns: Cell::new(0),
            picks: Cell::new(index.wrapping_mul(7919) % worker.prepared.order.len()),
            timer: worker.alarm.timer(),
        }
    }

    /// A loop without a schedule of its own, for ramps and idle connections.
    pub(crate) fn unscheduled(worker: &Rc<LoadWorker>, index: usize) -> Self {
        Self::new(worker, index)
    }
}

async fn http1_lane(worker: Rc<LoadWorker>, lane: Rc<RequestLoop>, mut client: Http1Client) {
    while let Some(target) = worker.next(&lane).await {
        let outcome = client.exchange(&worker, target, &lane).await;
        if worker.record(&lane, outcome) {
            lane.timer.until(worker.clock.now_ns() + FAILED_CONNECT_PAUSE_NS).await;
        }
    }
}

async fn http2_lane(worker: Rc<LoadWorker>, lane: Rc<RequestLoop>, session: Rc<http2::Http2Session>) {
    let timer = worker.alarm.timer();
    while let Some(target) = worker.next(&lane).await {
        let outcome = session.exchange(&worker, target, &lane, &timer).await;
        if worker.record(&lane, outcome) {
            lane.timer.until(worker.clock.now_ns() + FAILED_CONNECT_PAUSE_NS).await;
        }
    }
}

/// Ends each second of the timeline, including seconds without events.
async fn tick(worker: Rc<LoadWorker>, counted_from_ns: u64) {
    let timer = worker.alarm.timer();
    timer.until(counted_from_ns).await;
    worker.bytes_sent.set(0);
    worker.bytes_received.set(0);
    for second in 1.. {
        timer.until(counted_from_ns + second * SECOND_NS).await;
        worker.tally.borrow_mut().turn_second(worker.clock.now_ns());
    }
}
