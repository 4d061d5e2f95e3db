//! The process that serves while a successor starts. Starts it, hands over to it, and continues to serve if
//! it fails.
//!
//! Owns the order of the handover, not the state that is handed over.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use yumen_config::NodeConfig;
use yumen_plugin::{Carry, ExportedState};
use yumen_proxy::Http3Identity;
use yumen_proxy::tls::TicketKeys;

use super::channel::HandoverChannel;
use super::comparison::HandoverLosses;
use super::config_receiver::ConfigReceiver;
use super::exclusive::ExclusiveStore;
use super::handover_store::HandoverStore;
use super::message::{
    HandoverHello, HandoverOffer, PROTOCOL, PredecessorMessage, SuccessorMessage, SuccessorReady,
};
use super::{HANDED_OVER, VARIABLE};
use crate::control::ControlHandle;
use crate::known_inputs::InputSources;
use crate::listeners::Http3HandoverParts;
use crate::process;
use crate::service;
use crate::sockets::{InheritedSockets, SocketLabel, SocketRole};
use crate::tls::{AcmeOrders, StapleCache};

/// Error of an upgrade that is cut short by the end of the gateway.
pub(super) const ENDING: &str = "the gateway is ending";
const ENDED_EARLY: &str = "successor exited before it was ready";
/// Interval of counter reports after the handover.
const COUNT_EVERY: Duration = Duration::from_millis(100);
/// Limit for a message whose first byte has arrived.
const SAID_WITHIN: Duration = Duration::from_secs(5);
/// Limit for a successor that is ready to start serving.
const BEGIN_WITHIN: Duration = Duration::from_secs(30);
/// Interval of checks whether the gateway is ending.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Limit for responses to upgrade requesters at the end of the process.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// Limit for a serving successor to accept the next upgrade request.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);
/// Time for which writes wait for the handover of the store; later writes are refused.
const WRITES_WAIT: Duration = Duration::from_secs(5);

/// Limit for an ACME order in flight: the successor does not serve its challenges.
const ORDERED_WITHIN: Duration = Duration::from_secs(30);

/// Limit for deletions that the successor has read and this process has not. Both follow the same file or
/// cluster; a file watch without notifications polls once a second.
const DELETIONS_WITHIN: Duration = Duration::from_secs(3);

/// A descriptor with its purpose.
type Labelled = (SocketLabel, OwnedFd);

/// Options of an upgrade request.
#[derive(Debug, Clone, Default)]
pub(crate) struct UpgradeOptions {
    /// Binary of the successor; default: that of the running process.
    pub(crate) binary: Option<PathBuf>,
    /// Whether to upgrade even if objects break.
    pub(crate) force: bool,
}

/// State that the running process hands over.
pub(crate) struct HandoverState {
    pub(crate) sockets: InheritedSockets,
    pub(crate) ticket_keys: Option<Arc<TicketKeys>>,
    pub(crate) http3_identity: Http3Identity,
    pub(crate) http3: Vec<Http3HandoverParts>,
    pub(crate) carry: Arc<Carry>,
    /// Part of the store that only one process can open.
    pub(crate) store: ExclusiveStore,
    /// Path of the pid file, removed after a handover.
    pub(crate) pid_file: String,
    /// Reference for judging the successor; after the handover, overridden by the successor's state.
    pub(crate) held: Arc<HandoverStore>,
    pub(crate) control: ControlHandle,
    pub(crate) knowledge: InputSources,
    pub(crate) staples: Arc<StapleCache>,
    pub(crate) orders: Arc<AcmeOrders>,
}

/// Starts successors, one at a time.
pub(crate) struct Predecessor {
    handover: HandoverState,
    program: PathBuf,
    ready_within: Duration,
    /// Nice value of a new process.
    base_nice: i32,
    is_underway: AtomicBool,
    successor: Mutex<Option<u32>>,
    /// Receives the pid of the successor once it serves.
    handed_over: UnboundedSender<u32>,
    is_over: AtomicBool,
    is_ending: AtomicBool,
    /// Upgrade requesters without a response.
    callers: AtomicUsize,
    counting: Mutex<Option<JoinHandle<()>>>,
    /// Notified when the successor reports the end of the gateway, or exits.
    ended_by_successor: Notify,
}

impl Predecessor {
    /// A process that can hand over, and the channel on which it announces the process id of its successor.
    pub(crate) fn listening(
        handover: HandoverState,
        node: &NodeConfig,
        base_nice: i32,
    ) -> (Arc<Predecessor>, UnboundedReceiver<u32>) {
        let (handed_over, receiver) = unbounded_channel();
        let predecessor = Predecessor {
            handover,
            program: process::program(),
            ready_within: Duration::from_secs(node.upgrade.ready_s.into()),
            base_nice,
            is_underway: AtomicBool::new(false),
            successor: Mutex::default(),
            handed_over,
            is_over: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            callers: AtomicUsize::new(0),
            counting: Mutex::default(),
            ended_by_successor: Notify::new(),
        };
        (Arc::new(predecessor), receiver)
    }

    /// Resolves once, when the successor ends the gateway or exits.
    pub(crate) async fn successor_ends(&self) {
        self.ended_by_successor.notified().await;
    }

    /// Closes the sockets kept for a successor, and refuses further upgrades.
    pub(crate) fn release(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.handover.sockets.release();
    }

    /// Performs an upgrade: blocks until the successor serves, and returns its pid. `tell` receives each
    /// step.
    pub(crate) fn hand_over(
        self: &Arc<Self>,
        ask: &UpgradeOptions,
        tell: &mut dyn FnMut(&str),
    ) -> Result<u32, String> {
        if let Some(successor) = *self.successor.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(format!("process {successor} has already taken over; send the request to it"));
        }
        if self.is_ending.load(Ordering::Acquire) {
            return Err(ENDING.to_owned());
        }
        if self.is_underway.swap(true, Ordering::AcqRel) {
            return Err("an upgrade is under way".to_owned());
        }
        // A child inherits the nice value of the thread that spawns it, and control threads have a raised
        // priority.
        process::reset_nice(self.base_nice);
        service::notify_reloading();
        let began = Instant::now();
        self.wait_for_order(tell);
        let handed = self.attempt_handover(ask, tell);
        match &handed {
            Ok(pid) => tracing::info!(pid, took_ms = began.elapsed().as_millis() as u64, "{HANDED_OVER}"),
            Err(reason) if reason == ENDING => tracing::warn!("the upgrade was given up, {ENDING}"),
            Err(reason) => {
                self.handover.orders.go_on();
                self.is_underway.store(false, Ordering::Release);
                tracing::error!(reason, "upgrade failed, this process continues to serve");
                service::notify("READY=1\nSTATUS=an upgrade failed, serving on");
            }
        }
        handed
    }

    /// Blocks new ACME orders, and waits for the one in flight.
    fn wait_for_order(&self, tell: &mut dyn FnMut(&str)) {
        let orders = &self.handover.orders;
        if orders.is_under_way() {
            let seconds = ORDERED_WITHIN.as_secs();
            tell(&format!("a certificate is being ordered, waiting for it for at most {seconds} s"));
        }
        orders.hold(ORDERED_WITHIN, || self.is_ending.load(Ordering::Acquire));
    }

    fn attempt_handover(
        self: &Arc<Self>,
        ask: &UpgradeOptions,
        tell: &mut dyn FnMut(&str),
    ) -> Result<u32, String> {
        if self.is_ending.load(Ordering::Acquire) {
            return Err(ENDING.to_owned());
        }
        let program = ask.binary.as_deref().unwrap_or(&self.program);
        tell(&format!("starting {}", program.display()));
        let (mut child, channel) =
            start(program).map_err(|error| format!("{}: {error}", program.display()))?;
        let pid = child.id();
        tell(&format!("process {pid} has started"));
        let mut told = ExportedState::new();
        let (pipes, theirs) = self.pipes().map_err(|error| end(&mut child, error.to_string()))?;
        let taken = self.talk(&channel, theirs, ask, &mut told, tell);
        if let Err(reason) = taken {
            let reason = end(&mut child, reason);
            self.take_back(tell);
            return Err(reason);
        }
        // Final only now: until the successor serves, `take_back` can reopen the store.
        self.handover.store.give_away();
        *self.successor.lock().unwrap_or_else(PoisonError::into_inner) = Some(pid);
        for (http3, pipe) in self.handover.http3.iter().zip(pipes) {
            http3.leave.leave(pipe);
        }
        // The service manager accepts readiness only from the main process: set MAINPID before `TakenOver`.
        service::notify(&format!("MAINPID={pid}"));
        let _ = channel.send(&PredecessorMessage::TakenOver);
        let _ = self.handed_over.send(pid);
        self.handover.sockets.release();
        // A requester of the next upgrade must reach the successor's socket.
        let _ = channel.receive::<SuccessorMessage>(Some(Instant::now() + SETTLED_WITHIN));
        // The successor has written its pid, possibly to another file; the file of this process is stale.
        process::remove_pid_file(&self.handover.pid_file);
        self.sync_until_ended(channel, told);
        tell(&format!("process {pid} serves; this process drains"));
        Ok(pid)
    }

    /// From the offer until the successor serves.
    fn talk(
        &self,
        channel: &HandoverChannel,
        pipes: Vec<Labelled>,
        ask: &UpgradeOptions,
        told: &mut ExportedState,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), String> {
        let until = Instant::now() + self.ready_within;
        if let Err(error) = self.offer(channel, pipes) {
            // The successor may have sent its reason before it exited.
            return Err(match channel.receive(Some(Instant::now() + Duration::from_secs(1))) {
                Ok(SuccessorMessage::Refuses(reason)) => reason,
                _ if is_gone(&error) => ENDED_EARLY.to_owned(),
                _ => format!("the sockets could not be handed over: {error}"),
            });
        }
        loop {
            match self.hear(channel, until, || self.is_ending.load(Ordering::Acquire))? {
                SuccessorMessage::Refuses(reason) => return Err(reason),
                SuccessorMessage::Does(what) => tell(&what),
                SuccessorMessage::WantsStore => {
                    let answer = self.lend_store(tell);
                    channel.send(&answer).map_err(|error| error.to_string())?;
                }
                SuccessorMessage::Ready(ready) => {
                    self.judge(&ready, ask)?;
                    tell(&format!("yumen {} could serve", ready.version));
                    break;
                }
                SuccessorMessage::Serves
                | SuccessorMessage::Settled
                | SuccessorMessage::Configured(_)
                | SuccessorMessage::Ends => {
                    return Err("successor served before it was allowed to".to_owned());
                }
            }
        }
        if self.is_ending.load(Ordering::Acquire) {
            return Err(ENDING.to_owned());
        }
        *told = self.handover.carry.tell();
        tell(&format!("handing over {} states of limits and endpoints", told.len()));
        channel.send(&PredecessorMessage::Serve(told.clone())).map_err(|error| error.to_string())?;
        match self.hear(channel, Instant::now() + BEGIN_WITHIN, || false)? {
            SuccessorMessage::Serves => Ok(()),
            SuccessorMessage::Refuses(reason) => Err(reason),
            _ => Err("unexpected message from the successor".to_owned()),
        }
    }

    /// Next message of the successor. Fails on timeout, or once `is_over` returns `true`.
    fn hear(
        &self,
        channel: &HandoverChannel,
        until: Instant,
        is_over: impl Fn() -> bool,
    ) -> Result<SuccessorMessage, String> {
        let mut writes_wait_until = Instant::now() + WRITES_WAIT;
        while !channel.is_told(LOOK_EVERY) {
            let now = Instant::now();
            if is_over() {
                return Err(ENDING.to_owned());
            }
            if now >= until {
                let seconds = self.ready_within.as_secs();
                return Err(format!("the new process was not ready within {seconds} s (upgrade.ready_s)"));
            }
            if now >= writes_wait_until {
                // Writes must not wait for the whole start-up time of a successor.
                self.handover.store.refuse_held();
                writes_wait_until = now + WRITES_WAIT;
            }
        }
        channel.receive(Some(Instant::now() + SAID_WITHIN)).map_err(|error| match is_gone(&error) {
            true => ENDED_EARLY.to_owned(),
            false => format!("the new process cannot be understood: {error}"),
        })
    }

    /// Local ends of the datagram forwarders from the successor, one per HTTP/3 listener, and the remote
    /// ends, together with the forwarders to earlier processes that still exist.
    fn pipes(&self) -> io::Result<(Vec<OwnedFd>, Vec<Labelled>)> {
        let (_, generation) = self.handover.http3_identity.told();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (http3, number) in self.handover.http3.iter().zip(0..) {
            let label = |generation: u8| SocketLabel {
                door: SocketRole::Http3Before,
                asked: http3.asked,
                // Counted from the top, so that forwarders and listeners never share a number.
                listener: u32::MAX - number,
                generation,
            };
            let (own, other) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
            ours.push(own);
            theirs.push((label(generation), other));
            for pipe in http3.before.iter().filter(|pipe| leads_somewhere(&pipe.end)) {
                theirs.push((label(pipe.generation), pipe.end.try_clone()?));
            }
        }
        Ok((ours, theirs))
    }

    fn offer(&self, channel: &HandoverChannel, pipes: Vec<Labelled>) -> io::Result<()> {
        channel.send(&HandoverHello { protocol: PROTOCOL, version: env!("CARGO_PKG_VERSION").to_owned() })?;
        let (sockets, descriptors): (Vec<_>, Vec<_>) =
            self.handover.sockets.handles()?.into_iter().chain(pipes).unzip();
        let keys = self.handover.ticket_keys.as_ref().map(|keys| keys.told()).unwrap_or_default();
        let ticket_keys = keys.iter().map(|key| BASE64.encode(key)).collect();
        let (secret, generation) = self.handover.http3_identity.told();
        let http3_identity = Some((BASE64.encode(secret), generation));
        let ended_file = self.handover.held.ended_file();
        let control = &self.handover.control;
        let (outlives, applied) = (!control.reach.has_no_predecessor(), control.applied.borrow().0);
        let follows = true;
        channel.send(&HandoverOffer {
            sockets,
            ticket_keys,
            http3_identity,
            ended_file,
            follows,
            outlives,
            applied,
            known: self.handover.knowledge.now().told(),
            staples: self.handover.staples.told(),
        })?;
        channel.send_descriptors(&descriptors)
    }

    /// Closes the store so that the successor can open it. Writes wait meanwhile.
    fn lend_store(&self, tell: &mut dyn FnMut(&str)) -> PredecessorMessage {
        let wait = if self.handover.store.defers_writes() { ", writes wait" } else { "" };
        tell(&format!("the store changes hands{wait}"));
        match self.handover.store.lend() {
            Ok(()) => PredecessorMessage::StoreIsFree,
            Err(error) => PredecessorMessage::StoreStays(error.to_string()),
        }
    }

    /// Reopens the store after a failed handover.
    fn take_back(&self, tell: &mut dyn FnMut(&str)) {
        match self.handover.store.take_back() {
            Ok(()) => {}
            Err(error) => {
                tracing::error!(%error, "store cannot be reopened, retrying");
                tell(&format!("the store cannot be reopened: {error}; the gateway keeps trying"));
            }
        }
    }

    /// Compares the successor's configuration with that of this process.
    fn judge(&self, ready: &SuccessorReady, ask: &UpgradeOptions) -> Result<(), String> {
        // A store that has been handed over yields no more changes, and its writes wait.
        let wait = if self.handover.store.defers_writes() { Duration::ZERO } else { DELETIONS_WITHIN };
        let until = Instant::now() + wait;
        loop {
            let losses = HandoverLosses::of(
                ready,
                &self.handover.control.shown.problems(),
                &self.handover.held.objects(),
            );
            if ask.force || losses.is_none() {
                return Ok(());
            }
            let is_ending = self.is_ending.load(Ordering::Acquire);
            if !losses.are_deletions() || is_ending || Instant::now() >= until {
                return Err(losses.told(&ready.version));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Sends counters of this process until its end; receives configuration updates and the end of the
    /// gateway.
    fn sync_until_ended(self: &Arc<Self>, channel: HandoverChannel, told: ExportedState) {
        let predecessor = self.clone();
        let run = move || {
            if predecessor.sync_loop(&channel, told).is_err() {
                // Without a successor nothing updates the configuration: drain soon instead of serving a
                // stale one.
                predecessor.ended_by_successor.notify_one();
            }
            // The successor takes the end of the channel for the end of this process.
            while !predecessor.is_over.load(Ordering::Acquire) {
                std::thread::sleep(COUNT_EVERY);
            }
        };
        let thread = std::thread::Builder::new().name("yumen-handover".into()).spawn(run);
        *self.counting.lock().unwrap_or_else(PoisonError::into_inner) = thread.ok();
    }

    /// Returns at the end of this process. An error means that the successor has ended, has stopped reading,
    /// or sends invalid data.
    fn sync_loop(&self, channel: &HandoverChannel, mut told: ExportedState) -> io::Result<()> {
        let HandoverState { held, control, carry, .. } = &self.handover;
        let mut following = ConfigReceiver::new(held.clone(), control.clone());
        let mut set_lag = None;
        loop {
            let is_over = self.is_over.load(Ordering::Acquire);
            let (since, now) = carry.export_since(&told);
            told = now;
            if !since.is_empty() {
                channel.send(&PredecessorMessage::Counted(since))?;
            }
            if is_over {
                if control.reach.has_no_predecessor() {
                    channel.send(&PredecessorMessage::Ended)?;
                }
                return Ok(());
            }
            let waits_for = control.reach.waits_for();
            if waits_for != set_lag {
                channel.send(&PredecessorMessage::WaitsFor(waits_for))?;
                set_lag = waits_for;
            }
            let wait = match following.is_under_way() {
                true => {
                    if let Some(said) = following.comes_within(COUNT_EVERY) {
                        channel.send(&said)?;
                    }
                    Duration::ZERO
                }
                false => COUNT_EVERY,
            };
            if channel.is_told(wait) {
                self.receive_updates(channel, &mut following)?;
            }
        }
    }

    fn receive_updates(&self, channel: &HandoverChannel, following: &mut ConfigReceiver) -> io::Result<()> {
        match channel.receive(Some(Instant::now() + SAID_WITHIN))? {
            SuccessorMessage::Ends => self.ended_by_successor.notify_one(),
            SuccessorMessage::Configured(told) => following.take(told),
            _ => {}
        }
        Ok(())
    }

    /// Registers an upgrade requester; the process does not end before its response is sent.
    pub(crate) fn begin_call(self: &Arc<Self>) -> UpgradeCaller {
        self.callers.fetch_add(1, Ordering::AcqRel);
        UpgradeCaller(self.clone())
    }

    /// Sends the final counters and waits for the responses to requesters: the process is ending.
    pub(crate) fn finish(&self) {
        self.is_over.store(true, Ordering::Release);
        let until = Instant::now() + ANSWERED_WITHIN;
        while self.callers.load(Ordering::Acquire) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let counting = self.counting.lock().unwrap_or_else(PoisonError::into_inner).take();
        counting.map(JoinHandle::join);
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Guard of one upgrade requester; deregisters it on drop.
pub(crate) struct UpgradeCaller(Arc<Predecessor>);

impl Drop for UpgradeCaller {
    fn drop(&mut self) {
        self.0.callers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Starts the successor with one end of the channel as its standard input.
fn start(program: &Path) -> io::Result<(Child, HandoverChannel)> {
    let (ours, theirs) = UnixStream::pair()?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .env(VARIABLE, "stdin")
        // These variables describe the current process only.
        .env_remove("WATCHDOG_PID")
        .env_remove("LISTEN_PID")
        .env_remove("LISTEN_FDS")
        .env_remove("LISTEN_FDNAMES")
        .spawn()?;
    Ok((child, HandoverChannel::new(ours)))
}

/// Whether the process at the other end still exists.
fn leads_somewhere(pipe: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(pipe, PollFlags::OUT)];
    let told = poll(&mut asked, Some(&Timespec::default()));
    told.is_ok() && !asked[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Ends a failed successor. Adds the exit status to the reason if it exited by itself.
fn end(child: &mut Child, reason: String) -> String {
    let by_itself = (0..20).find_map(|_| {
        let ended = child.try_wait().ok().flatten();
        if ended.is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        ended
    });
    match by_itself {
        Some(status) => format!("{reason} ({status})"),
        None => {
            let started = process::descendants(child.id());
            let _ = child.kill();
            let _ = child.wait();
            // Children of a wrapper hold the sockets too: connections would be queued there unaccepted, and
            // the ports would stay bound.
            started.into_iter().for_each(process::kill);
            reason
        }
    }
}
