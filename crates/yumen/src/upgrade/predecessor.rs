//! The process that serves while a successor starts. Starts it, hands over to it, and continues to serve if
//! it fails.
//!
//! Owns the order of the handover, not the state that is handed over.

mod child;
mod sync;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use yumen_base::quantity;
use yumen_config::NodeConfig;
use yumen_plugin::{Carry, ExportedState};
use yumen_proxy::Http3Identity;
use yumen_proxy::tls::TicketKeys;

use super::channel::HandoverChannel;
use super::comparison::HandoverLosses;
use super::draining_predecessor::DrainingPredecessor;
use super::error::UpgradeError;
use super::message::{
    DrainLimits, HandoverHello, HandoverOffer, PROTOCOL, PredecessorMessage, SuccessorMessage, SuccessorReady,
};
use crate::config::exclusive_store::ExclusiveStore;
use crate::config::handover_store::HandoverStore;
use crate::control::{ControlHandle, InputSources};
use crate::process;
use crate::process::service;
use crate::serving::http3_handovers::Http3Handovers;
use crate::serving::sockets::{SocketHandles, SocketLabel, SocketRole};
use crate::serving::worker_threads::WorkersView;
use crate::tls::{AcmeOrders, StapleCache};
use child::SuccessorProcess;

/// Limit for a message whose first byte has arrived.
const MESSAGE_WITHIN: Duration = Duration::from_secs(5);
/// Limit for the reason of a successor that does not take the offer.
const REASON_WITHIN: Duration = Duration::from_secs(1);
/// Limit for a successor that is ready to start serving.
const SERVES_WITHIN: Duration = Duration::from_secs(30);
/// Interval of checks whether the gateway is ending.
const POLL_EVERY: Duration = Duration::from_millis(50);
/// Limit for responses to upgrade requesters at the end of the process.
const RESPONSES_WITHIN: Duration = Duration::from_secs(10);
/// Limit for a serving successor to accept the next upgrade request.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);
/// Time for which writes wait for the handover of the store; later writes are refused.
const WRITES_WAIT: Duration = Duration::from_secs(5);
/// Limit for an ACME order in flight: the successor does not serve its challenges.
const ORDER_WITHIN: Duration = Duration::from_secs(30);
/// Limit for deletions that the successor has read and this process has not. Both follow the same file or
/// cluster; a file watch without notifications polls once a second.
const DELETIONS_WITHIN: Duration = Duration::from_secs(3);

/// A descriptor with its purpose.
type LabelledDescriptor = (SocketLabel, OwnedFd);

/// Options of an upgrade request.
#[derive(Debug, Clone, Default)]
pub(crate) struct UpgradeOptions {
    /// Binary of the successor; default: that of the running process.
    pub(crate) binary: Option<PathBuf>,
    /// Whether to upgrade even if objects break.
    pub(crate) force: bool,
    /// Whether to end the drain of an earlier predecessor, which refuses the upgrade otherwise.
    pub(crate) end_drain: bool,
}

/// State that the running process hands over.
pub(crate) struct HandoverState {
    pub(crate) sockets: Arc<SocketHandles>,
    pub(crate) ticket_keys: Option<Arc<TicketKeys>>,
    pub(crate) http3_identity: Http3Identity,
    pub(crate) http3: Arc<Http3Handovers>,
    pub(crate) carry: Arc<Carry>,
    pub(crate) workers: WorkersView,
    /// Part of the store that only one process can open.
    pub(crate) exclusive: ExclusiveStore,
    /// Path of the pid file, removed after a handover.
    pub(crate) pid_file: String,
    /// Reference for judging the successor; after the handover, overridden by the successor's state.
    pub(crate) store: Arc<HandoverStore>,
    pub(crate) control: ControlHandle,
    pub(crate) inputs: InputSources,
    pub(crate) staples: Arc<StapleCache>,
    pub(crate) orders: Arc<AcmeOrders>,
}

/// Starts successors, one at a time.
pub(crate) struct Predecessor {
    handover: HandoverState,
    program: PathBuf,
    ready_within: Duration,
    drain_limits: DrainLimits,
    /// Nice value of a new process.
    base_nice: i32,
    /// Predecessor of this process, which may still drain.
    draining: Option<Arc<DrainingPredecessor>>,
    phase: Mutex<UpgradePhase>,
    /// Receives the pid of the successor once it serves.
    handed_over: UnboundedSender<u32>,
    /// The gateway ends: no upgrade may start or complete.
    is_ending: AtomicBool,
    /// All connections of this process have ended.
    has_drained: AtomicBool,
    /// Upgrade requesters without a response.
    requesters: AtomicUsize,
    sync: Mutex<Option<JoinHandle<()>>>,
    /// Notified when the successor ends the drain, or exits.
    drain_ended: Notify,
}

/// Progress of this process towards its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UpgradePhase {
    Serving,
    Upgrading,
    /// The successor with this pid serves.
    HandedOver(u32),
}

impl Predecessor {
    /// A process that can hand over, and the channel on which it announces the process id of its successor.
    pub(crate) fn new(
        handover: HandoverState,
        node: &NodeConfig,
        base_nice: i32,
        draining: Option<Arc<DrainingPredecessor>>,
    ) -> (Arc<Predecessor>, UnboundedReceiver<u32>) {
        let (handed_over, receiver) = unbounded_channel();
        let predecessor = Predecessor {
            handover,
            program: process::program(),
            ready_within: Duration::from_secs(node.upgrade.ready_s.into()),
            drain_limits: DrainLimits {
                after_handover_ms: u64::from(node.upgrade.drain_s) * 1000,
                early_ms: node.timeouts.drain_ms,
            },
            base_nice,
            draining,
            phase: Mutex::new(UpgradePhase::Serving),
            handed_over,
            is_ending: AtomicBool::new(false),
            has_drained: AtomicBool::new(false),
            requesters: AtomicUsize::new(0),
            sync: Mutex::default(),
            drain_ended: Notify::new(),
        };
        (Arc::new(predecessor), receiver)
    }

    /// Limits of the drain after a handover, and of one that is ended early.
    pub(crate) fn drain_limits(&self) -> DrainLimits {
        self.drain_limits
    }

    /// Resolves once, when the successor ends the drain or exits.
    pub(crate) async fn drain_ended(&self) {
        self.drain_ended.notified().await;
    }

    /// Ends the gateway: closes the sockets kept for a successor, refuses further upgrades, and ends the drain
    /// of this process's predecessor.
    pub(crate) fn end_gateway(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.handover.sockets.release();
        self.draining.iter().for_each(|draining| draining.end_drain());
    }

    /// Performs an upgrade: blocks until the successor serves, and returns its pid. `report` receives each
    /// step.
    pub(crate) fn hand_over(
        self: &Arc<Self>,
        options: &UpgradeOptions,
        report: &mut dyn FnMut(&str),
    ) -> Result<u32, UpgradeError> {
        // Before anything is started: a refused request leaves no trace.
        self.begin(options)?;
        // A child inherits the nice value of the thread that spawns it, and control threads have a raised
        // priority.
        process::reset_nice(self.base_nice);
        service::notify_reloading();
        let began = Instant::now();
        let result = self.end_drain_of_predecessor(report).and_then(|()| {
            self.wait_for_order(report);
            self.attempt_handover(options, report)
        });
        match &result {
            Ok(pid) => tracing::info!(
                pid,
                took_ms = began.elapsed().as_millis() as u64,
                "handover complete, successor serves"
            ),
            Err(UpgradeError::Ending) => tracing::warn!("upgrade aborted: the gateway is ending"),
            Err(reason) => {
                // Only in this branch: an ending process orders nothing any more.
                self.handover.orders.go_on();
                self.handover.sockets.thaw();
                *self.phase() = UpgradePhase::Serving;
                tracing::error!(%reason, "upgrade failed, this process continues to serve");
                service::notify("READY=1\nSTATUS=an upgrade failed, serving on");
            }
        }
        result
    }

    /// Enters `Upgrading`. Fails while another predecessor drains: a process follows one at a time.
    fn begin(&self, options: &UpgradeOptions) -> Result<(), UpgradeError> {
        if let Some(draining) = &self.draining {
            // An exit that is under way must not refuse the upgrade.
            draining.wait_for_imminent_exit();
        }
        // Held until the end of the function: two requests must not both begin.
        let mut phase = self.phase();
        match *phase {
            UpgradePhase::HandedOver(pid) => return Err(UpgradeError::HandedOver(pid)),
            _ if self.is_ending.load(Ordering::Acquire) => return Err(UpgradeError::Ending),
            UpgradePhase::Upgrading => return Err(UpgradeError::InProgress),
            UpgradePhase::Serving => {}
        }
        // Decision 32: a process follows one predecessor at a time.
        match self.draining.as_ref().and_then(|draining| draining.drain_status()) {
            Some(status) if !options.end_drain => return Err(UpgradeError::PredecessorDrains(status)),
            _ => *phase = UpgradePhase::Upgrading,
        }
        Ok(())
    }

    /// Ends the drain of this process's predecessor, if that has not exited, and waits for its exit.
    fn end_drain_of_predecessor(&self, report: &mut dyn FnMut(&str)) -> Result<(), UpgradeError> {
        let Some(draining) = &self.draining else { return Ok(()) };
        let Some(status) = draining.drain_status() else { return Ok(()) };
        let within = draining.early_exit_within();
        let (count, seconds) = (status.connections, within.as_secs());
        report(&format!(
            "ending the drain of the predecessor, {count} client connections, at most {seconds} s"
        ));
        draining.end_drain();
        let until = Instant::now() + within;
        // Polled, so that the end of the gateway is noticed while waiting.
        while !draining.has_exited_within(POLL_EVERY) {
            if self.is_ending.load(Ordering::Acquire) {
                return Err(UpgradeError::Ending);
            }
            if Instant::now() >= until {
                let status = draining.drain_status().unwrap_or(status);
                return Err(UpgradeError::PredecessorHangs { status, seconds });
            }
        }
        Ok(())
    }

    /// Blocks new ACME orders, and waits for the one in flight.
    fn wait_for_order(&self, report: &mut dyn FnMut(&str)) {
        let orders = &self.handover.orders;
        if orders.is_in_progress() {
            let seconds = ORDER_WITHIN.as_secs();
            report(&format!("a certificate is being ordered, waiting for it for at most {seconds} s"));
        }
        orders.hold(ORDER_WITHIN, || self.is_ending.load(Ordering::Acquire));
    }

    fn attempt_handover(
        self: &Arc<Self>,
        options: &UpgradeOptions,
        report: &mut dyn FnMut(&str),
    ) -> Result<u32, UpgradeError> {
        if self.is_ending.load(Ordering::Acquire) {
            return Err(UpgradeError::Ending);
        }
        let program = options.binary.as_deref().unwrap_or(&self.program);
        report(&format!("starting {}", program.display()));
        let successor = SuccessorProcess::start(program)
            .map_err(|error| UpgradeError::Start { program: program.to_owned(), error })?;
        let pid = successor.pid();
        report(&format!("process {pid} has started"));
        // The successor opens the listeners whose sockets it receives.
        self.handover.sockets.freeze();
        // Before the negotiation, which passes the remote ends.
        let (links, remote_links) = match self.datagram_links() {
            Ok(links) => links,
            Err(error) => return Err(successor.end(UpgradeError::Channel(error))),
        };
        let exported = match self.negotiate(&successor.channel, remote_links, options, report) {
            Ok(exported) => exported,
            Err(error) => {
                // First the process, then the store: two processes must not have it open.
                let error = successor.end(error);
                self.take_back(report);
                return Err(error);
            }
        };
        // Final only now: until the successor serves, `take_back` can reopen the store.
        self.handover.exclusive.complete_handover();
        *self.phase() = UpgradePhase::HandedOver(pid);
        self.handover.http3.leave(links);
        // The service manager accepts readiness only from the main process: set MAINPID before `TakenOver`.
        service::notify(&format!("MAINPID={pid}"));
        let channel = successor.into_channel();
        let _ = channel.send(&PredecessorMessage::TakenOver);
        let _ = self.handed_over.send(pid);
        // The successor has handles of its own; these would keep the ports open.
        self.handover.sockets.release();
        // A requester of the next upgrade must reach the successor's socket.
        let _ = channel.receive::<SuccessorMessage>(Some(Instant::now() + SETTLED_WITHIN));
        // The successor has written its pid, possibly to another file; the file of this process is stale.
        process::remove_pid_file(&self.handover.pid_file);
        // Last: from here on the two exchange counters and configuration.
        self.start_sync(channel, exported);
        report(&format!("process {pid} serves; this process drains"));
        Ok(pid)
    }

    /// From the offer until the successor serves. Returns the state of limits and endpoints that it has
    /// received.
    fn negotiate(
        &self,
        channel: &HandoverChannel,
        links: Vec<LabelledDescriptor>,
        options: &UpgradeOptions,
        report: &mut dyn FnMut(&str),
    ) -> Result<ExportedState, UpgradeError> {
        // One limit for the whole start of the successor, however many messages it sends.
        let until = Instant::now() + self.ready_within;
        if let Err(error) = self.offer(channel, links) {
            // The successor may have sent its reason before it exited.
            return Err(match channel.receive(Some(Instant::now() + REASON_WITHIN)) {
                Ok(SuccessorMessage::Refuses(reason)) => UpgradeError::Refused(reason),
                _ => UpgradeError::of_channel(error),
            });
        }
        loop {
            match self.receive(channel, until, || self.is_ending.load(Ordering::Acquire))? {
                SuccessorMessage::Refuses(reason) => return Err(UpgradeError::Refused(reason)),
                SuccessorMessage::Does(step) => report(&step),
                SuccessorMessage::WantsStore => {
                    // Requested last by the successor, so writes wait as briefly as possible.
                    let reply = self.release_store(report);
                    channel.send(&reply).map_err(UpgradeError::of_channel)?;
                }
                SuccessorMessage::Ready(ready) => {
                    // Before the order to serve: nothing is irreversible yet.
                    self.validate(&ready, options)?;
                    report(&format!("yumen {} could serve", ready.version));
                    break;
                }
                // A successor that serves before the order would share the queues with this process.
                SuccessorMessage::Serves
                | SuccessorMessage::Settled
                | SuccessorMessage::Configured(_)
                | SuccessorMessage::EndDrain => return Err(UpgradeError::ServedEarly),
            }
        }
        if self.is_ending.load(Ordering::Acquire) {
            return Err(UpgradeError::Ending);
        }
        // As late as possible, so that the counts are fresh.
        let exported = self.handover.carry.export();
        report(&format!("handing over {} of limits and endpoints", quantity(exported.len(), "state")));
        channel.send(&PredecessorMessage::Serve(exported.clone())).map_err(UpgradeError::of_channel)?;
        // | false| Not aborted any more: the successor may serve at any moment.
        match self.receive(channel, Instant::now() + SERVES_WITHIN, || false)? {
            SuccessorMessage::Serves => Ok(exported),
            SuccessorMessage::Refuses(reason) => Err(UpgradeError::Refused(reason)),
            _ => Err(UpgradeError::UnexpectedMessage),
        }
    }

    /// Next message of the successor. Fails on timeout, or once `is_over` returns `true`.
    fn receive(
        &self,
        channel: &HandoverChannel,
        until: Instant,
        is_over: impl Fn() -> bool,
    ) -> Result<SuccessorMessage, UpgradeError> {
        let mut writes_wait_until = Instant::now() + WRITES_WAIT;
        while !channel.is_readable_within(POLL_EVERY) {
            let now = Instant::now();
            if is_over() {
                return Err(UpgradeError::Ending);
            }
            if now >= until {
                return Err(UpgradeError::NotReady { seconds: self.ready_within.as_secs() });
            }
            if now >= writes_wait_until {
                // Writes must not wait for the whole start-up time of a successor.
                self.handover.exclusive.refuse_deferred();
                writes_wait_until = now + WRITES_WAIT;
            }
        }
        let message = channel.receive(Some(Instant::now() + MESSAGE_WITHIN));
        message.map_err(|error| match UpgradeError::of_channel(error) {
            UpgradeError::Channel(error) => UpgradeError::InvalidMessage(error),
            closed => closed,
        })
    }

    /// Local ends of the datagram links from the successor, one per HTTP/3 listener, and the remote ends.
    fn datagram_links(&self) -> io::Result<(Vec<OwnedFd>, Vec<LabelledDescriptor>)> {
        let (mut local, mut remote) = (Vec::new(), Vec::new());
        for (configured, number) in self.handover.http3.addresses().into_iter().zip(0..) {
            let (own, other) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
            local.push(own);
            let label = SocketLabel {
                role: SocketRole::Http3Predecessor,
                configured,
                // Counted from the top, so that links and listeners never share a number.
                listener: u32::MAX - number,
            };
            remote.push((label, other));
        }
        Ok((local, remote))
    }

    fn offer(&self, channel: &HandoverChannel, links: Vec<LabelledDescriptor>) -> io::Result<()> {
        // First, since its form never changes: the other side decides by it whether it can read the rest.
        channel.send(&HandoverHello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned() })?;
        let state = &self.handover;
        let (sockets, descriptors): (Vec<_>, Vec<_>) =
            state.sockets.duplicates()?.into_iter().chain(links).unzip();
        // Resumption continues: clients keep their tickets across the upgrade.
        let keys = state.ticket_keys.as_ref().map(|keys| keys.export()).unwrap_or_default();
        let (secret, generation) = state.http3_identity.export();
        channel.send(&HandoverOffer {
            sockets,
            ticket_keys: keys.iter().map(|key| BASE64.encode(key)).collect(),
            http3_identity: Some((BASE64.encode(secret), generation)),
            ended_file: state.store.ended_file(),
            applied: state.control.applied.borrow().0,
            drain: self.drain_limits,
            known: state.inputs.now().export(),
            staples: state.staples.export(),
        })?;
        // After the messages that describe them, in the same order.
        channel.send_descriptors(&descriptors)
    }

    /// Closes the store so that the successor can open it. Writes wait meanwhile.
    fn release_store(&self, report: &mut dyn FnMut(&str)) -> PredecessorMessage {
        let wait = if self.handover.exclusive.defers_writes() { ", writes wait" } else { "" };
        report(&format!("the store changes hands{wait}"));
        match self.handover.exclusive.release_for_handover() {
            Ok(()) => PredecessorMessage::StoreIsFree,
            Err(error) => PredecessorMessage::StoreStays(error.to_string()),
        }
    }

    /// Reopens the store after a failed handover.
    fn take_back(&self, report: &mut dyn FnMut(&str)) {
        if let Err(error) = self.handover.exclusive.take_back() {
            tracing::error!(%error, "store cannot be reopened, retrying");
            report(&format!("the store cannot be reopened: {error}; the gateway keeps trying"));
        }
    }

    /// Compares the successor's configuration with that of this process.
    fn validate(&self, ready: &SuccessorReady, options: &UpgradeOptions) -> Result<(), UpgradeError> {
        // A store that has been handed over yields no more changes, and its writes wait.
        let wait = if self.handover.exclusive.defers_writes() { Duration::ZERO } else { DELETIONS_WITHIN };
        let until = Instant::now() + wait;
        loop {
            let problems = self.handover.control.status.problems();
            // Read anew in each round: the missing deletions may have arrived.
            let losses = HandoverLosses::of(ready, &problems, &self.handover.store.objects());
            // The operator has accepted the losses.
            if options.force || losses.is_none() {
                return Ok(());
            }
            let is_ending = self.is_ending.load(Ordering::Acquire);
            if !losses.are_deletions() || is_ending || Instant::now() >= until {
                return Err(UpgradeError::Losses(losses.message(&ready.version)));
            }
            std::thread::sleep(POLL_EVERY);
        }
    }

    /// Registers an upgrade requester; the process does not end before its response is sent.
    pub(crate) fn register_requester(self: &Arc<Self>) -> UpgradeRequester {
        self.requesters.fetch_add(1, Ordering::AcqRel);
        UpgradeRequester(self.clone())
    }

    fn phase(&self) -> MutexGuard<'_, UpgradePhase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard of one upgrade requester; deregisters it on drop.
pub(crate) struct UpgradeRequester(Arc<Predecessor>);

impl Drop for UpgradeRequester {
    fn drop(&mut self) {
        self.0.requesters.fetch_sub(1, Ordering::AcqRel);
    }
}
