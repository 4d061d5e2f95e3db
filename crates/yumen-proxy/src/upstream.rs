//! The client of upstream endpoints: connections and their pools, attempts, admission, subrequests, health.
//!
//! Sees an exchange only as snapshot and plugins describe it. Must not depend on listeners, client
//! connections or workers. `exchange::forward` decides which endpoint is tried, and whether another follows.

pub(crate) mod admission;
pub(crate) mod attempt;
pub(crate) mod call_limit;
pub(crate) mod connected_endpoints;
pub(crate) mod connection;
pub(crate) mod dial;
pub(crate) mod drain;
pub(crate) mod h2_pool;
pub(crate) mod health;
pub(crate) mod interim;
pub(crate) mod mirror_limit;
pub(crate) mod pinned_upstream;
pub(crate) mod pool;
pub mod probe;
pub mod protection;
pub(crate) mod replay;
pub(crate) mod stream_attempt;
pub(crate) mod subrequest;
pub(crate) mod target;
pub(crate) mod upload;
pub(crate) mod wait;

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use yumen_base::Now;
use yumen_http::ResponseHead;
use yumen_snapshot::protection::EndpointPermit;
use yumen_snapshot::upstream::KeepaliveLimits;

use crate::fault::FaultKind;
use crate::observe::counters::WorkerCounters;
use crate::runtime::buffer::Buffers;
use crate::runtime::timers::Timers;
use crate::settings::{EXCHANGES_KEPT, WorkerSettings};
use crate::transport::http2::StreamPermit;
use crate::transport::stream::TransportStream;
use attempt::ConnectFailure;
use call_limit::CallLimiter;
use connected_endpoints::ConnectedEndpoints;
use connection::UpstreamConnection;
use h2_pool::{H2ConnectionPool, StreamAcquisition};
use mirror_limit::MirrorLimiter;
use pool::ConnectionPool;
use replay::ReplayBudget;
use target::EndpointTarget;
use wait::{AttemptWait, wait_for};

/// The client of one worker, and the connections that its exchanges share.
pub(crate) struct UpstreamClient {
    /// The number of the worker.
    pub(crate) worker: usize,
    pub(crate) settings: Arc<WorkerSettings>,
    pub(crate) counters: Arc<WorkerCounters>,
    pub(crate) buffers: Rc<Buffers>,
    pub(crate) timers: Rc<Timers>,
    /// Idle connections for one request at a time.
    pub(crate) pool: RefCell<ConnectionPool>,
    /// Connections of HTTP/2, which many requests share.
    pub(crate) h2_pool: Rc<H2ConnectionPool>,
    pub(crate) connected_endpoints: ConnectedEndpoints,
    pub(crate) replay_budget: Rc<ReplayBudget>,
    pub(crate) mirror_limiter: Rc<MirrorLimiter>,
    /// Calls of plugins to services.
    pub(crate) call_limiter: Rc<CallLimiter>,
    /// Responses whose rest is read and dropped in the background.
    drains: Cell<usize>,
    response_heads: RefCell<SpareBoxes<ResponseHead>>,
    /// The memory of connections that carried a stream, for the next streams.
    spare_connections: RefCell<SpareBoxes<UpstreamConnection>>,
}

/// Memory for the next exchanges; boxed, so that a value is handed on as a pointer.
type SpareBoxes<T> = Vec<Box<T>>;

impl UpstreamClient {
    pub(crate) fn new(
        worker: usize,
        settings: Arc<WorkerSettings>,
        counters: Arc<WorkerCounters>,
        buffers: Rc<Buffers>,
        timers: Rc<Timers>,
    ) -> Rc<UpstreamClient> {
        Rc::new(UpstreamClient {
            worker,
            settings,
            counters,
            buffers,
            timers,
            pool: RefCell::default(),
            h2_pool: Rc::default(),
            connected_endpoints: ConnectedEndpoints::default(),
            replay_budget: Rc::default(),
            mirror_limiter: Rc::default(),
            call_limiter: Rc::default(),
            drains: Cell::new(0),
            response_heads: RefCell::default(),
            spare_connections: RefCell::default(),
        })
    }

    /// A clear response head.
    pub(crate) fn take_response(&self) -> Box<ResponseHead> {
        self.response_heads.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps the memory of a response head.
    pub(crate) fn give_response(&self, mut head: Box<ResponseHead>) {
        let mut pooled = self.response_heads.borrow_mut();
        if pooled.len() < EXCHANGES_KEPT {
            head.clear();
            pooled.push(head);
        }
    }

    /// Boxes the connection of a stream, in memory that another stream has left.
    fn box_stream(&self, connection: UpstreamConnection) -> Box<UpstreamConnection> {
        match self.spare_connections.borrow_mut().pop() {
            Some(mut spare) => {
                *spare = connection;
                spare
            }
            None => Box::new(connection),
        }
    }

    /// Closes a connection, or resets the stream of one if it has not ended.
    fn close(&self, mut connection: Box<UpstreamConnection>) {
        if connection.stream.is_shared() {
            connection.clear();
            let mut spare = self.spare_connections.borrow_mut();
            if spare.len() < EXCHANGES_KEPT {
                spare.push(connection);
            }
        }
    }

    /// Keeps an idle connection for other requests, unless a request on another worker waits for its permit.
    #[inline]
    pub(crate) fn keep(&self, connection: Box<UpstreamConnection>, keepalive: &KeepaliveLimits, now: Now) {
        let is_awaited = |permit: &EndpointPermit| permit.is_awaited_elsewhere(self.worker);
        if !connection.permit.as_ref().is_some_and(is_awaited) {
            self.pool.borrow_mut().give(connection, keepalive, now.mono_ms());
        }
    }

    /// Closes connections that idled too long or that lead to removed endpoints.
    pub(crate) fn sweep(&self, now_ms: u64) {
        let mut pool = self.pool.borrow_mut();
        let removed = self.connected_endpoints.close_removed(&mut pool, &self.h2_pool);
        self.counters.upstream.departed.add(removed as u64);
        pool.sweep(now_ms);
        self.h2_pool.sweep();
        self.connected_endpoints.count_idle(&pool, &self.h2_pool);
        self.counters.upstream.idle.set((pool.len() + self.h2_pool.idle()) as i64);
    }

    /// Opens a connection for one request at a time. `permit` receives the right to it where connections are
    /// limited.
    async fn open(
        &self,
        target: &EndpointTarget<'_>,
        permit: &mut Option<EndpointPermit>,
        wait: &mut impl AttemptWait,
    ) -> Result<TransportStream, FaultKind> {
        target.dial_for_pool(self, permit)?.connect_within(wait).await
    }

    /// Acquires a stream of a shared connection, and establishes one if none has room.
    async fn acquire_stream(
        self: &Rc<Self>,
        target: &EndpointTarget<'_>,
        permit: &mut Option<EndpointPermit>,
        wait: &mut impl AttemptWait,
    ) -> Result<StreamPermit, ConnectFailure> {
        let (pool_key, keepalive) = (target.pool_key(), target.keepalive());
        // One timer covers all rounds, so the wait never exceeds `connect_ms`.
        wait.start(target.connect_ms);
        loop {
            let (over, failure) = match self.h2_pool.acquire(pool_key, keepalive, target.connect_ms) {
                StreamAcquisition::Ready(stream) => return Ok(stream),
                StreamAcquisition::AwaitSettings(connection) => {
                    let over =
                        wait_for(wait, FaultKind::ConnectTimeout, pin!(connection.settings_received())).await;
                    (over, connection.failure.clone())
                }
                StreamAcquisition::AwaitConnect(pending) => {
                    let over = wait_for(wait, FaultKind::ConnectTimeout, pin!(pending.over())).await;
                    (over, pending.failure.clone())
                }
                StreamAcquisition::Connect(task) => {
                    task.begin(self, target.dial_for_pool(self, permit)?, *keepalive);
                    continue;
                }
            };
            match over {
                Ok(Ok(())) => {}
                Ok(Err(kind)) | Err(kind @ FaultKind::ConnectTimeout) => {
                    return Err(ConnectFailure { kind, shared_failure: Some(failure) });
                }
                Err(kind) => return Err(kind.into()),
            }
        }
    }
}
