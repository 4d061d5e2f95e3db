//! The process that serves, while another takes over: starts it, gives it what it needs, and goes on itself
//! should it fail.
//!
//! Knows in which order things change hands; what they are is others' business.

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

/// Why nothing comes of an upgrade then.
pub(super) const ENDING: &str = "the gateway is ending";
const ENDED_EARLY: &str = "successor exited before it was ready";
/// Between two tellings of what connections of the old process count.
const COUNT_EVERY: Duration = Duration::from_millis(100);
/// For something that begins to be said to be said to its end.
const SAID_WITHIN: Duration = Duration::from_secs(5);
/// For a process that could serve to begin with it.
const BEGIN_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks at whether the gateway is ending.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// For callers to be answered when the process ends.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// For a process that serves to be asked for the next upgrade.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);
/// So long writes wait for the store to change hands; then they are refused until it has.
const WRITES_WAIT: Duration = Duration::from_secs(5);

/// For an order of a certificate to come to its end: the new process does not show what the authority looks for.
const ORDERED_WITHIN: Duration = Duration::from_secs(30);

/// For this process to hear of deletions the new one knows of: they follow the same file or cluster, and a watch
/// without notices looks once a second.
const DELETIONS_WITHIN: Duration = Duration::from_secs(3);

/// A descriptor, and what it is for.
type Labelled = (SocketLabel, OwnedFd);

/// What can be asked of an upgrade.
#[derive(Debug, Clone, Default)]
pub(crate) struct UpgradeOptions {
    /// Another binary than the one that runs.
    pub(crate) binary: Option<PathBuf>,
    /// Whether objects may break that do not now.
    pub(crate) force: bool,
}

/// What the running process gives away.
pub(crate) struct HandoverState {
    pub(crate) sockets: InheritedSockets,
    pub(crate) ticket_keys: Option<Arc<TicketKeys>>,
    pub(crate) http3_identity: Http3Identity,
    pub(crate) http3: Vec<Http3HandoverParts>,
    pub(crate) carry: Arc<Carry>,
    /// What of the store only one process can have.
    pub(crate) store: ExclusiveStore,
    /// Holds the number of this process as long as it serves.
    pub(crate) pid_file: String,
    /// What the new process is measured by, and this one goes by what that one tells then.
    pub(crate) held: Arc<HandoverStore>,
    pub(crate) control: ControlHandle,
    pub(crate) knowledge: InputSources,
    pub(crate) staples: Arc<StapleCache>,
    pub(crate) orders: Arc<AcmeOrders>,
}

/// Starts processes that take over, one at a time.
pub(crate) struct Predecessor {
    handover: HandoverState,
    program: PathBuf,
    ready_within: Duration,
    /// The nice value a process starts with.
    base_nice: i32,
    is_underway: AtomicBool,
    successor: Mutex<Option<u32>>,
    /// Told once another process serves.
    handed_over: UnboundedSender<u32>,
    is_over: AtomicBool,
    is_ending: AtomicBool,
    /// Those who asked for an upgrade and have no answer yet.
    callers: AtomicUsize,
    counting: Mutex<Option<JoinHandle<()>>>,
    /// Told when the process that serves instead says that the gateway is ending, or is gone.
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

    /// Returns when the process that serves instead is told to end or has gone, once.
    pub(crate) async fn successor_ends(&self) {
        self.ended_by_successor.notified().await;
    }

    /// Closes what is kept for a process that comes after: none will, and one that is about to does not.
    pub(crate) fn release(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.handover.sockets.release();
    }

    /// Has another process take over; waits until it serves, and gives its number. `tell` hears of each step.
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
        // Threads of the configuration are served first, and a process begins as the thread that starts it.
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

    /// Has no order of a certificate begin, and the one under way end.
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
        self.handover.store.give_away();
        *self.successor.lock().unwrap_or_else(PoisonError::into_inner) = Some(pid);
        for (http3, pipe) in self.handover.http3.iter().zip(pipes) {
            http3.leave.leave(pipe);
        }
        // The new process may say that it is ready only once it is the one that is listened to.
        service::notify(&format!("MAINPID={pid}"));
        let _ = channel.send(&PredecessorMessage::TakenOver);
        let _ = self.handed_over.send(pid);
        self.handover.sockets.release();
        // Whoever asks for the next upgrade at once shall find the new process.
        let _ = channel.receive::<SuccessorMessage>(Some(Instant::now() + SETTLED_WITHIN));
        // The new process has written its number, be it to another file: this one's is true no longer.
        process::remove_pid_file(&self.handover.pid_file);
        self.sync_until_ended(channel, told);
        tell(&format!("process {pid} serves; this process drains"));
        Ok(pid)
    }

    /// From the offer to the moment the other one serves.
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
            // It may have said why before it went.
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

    /// What the new process says next, unless it takes too long, or is not waited for any more.
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
                // Whoever writes shall not wait for as long as a process may take.
                self.handover.store.refuse_held();
                writes_wait_until = now + WRITES_WAIT;
            }
        }
        channel.receive(Some(Instant::now() + SAID_WITHIN)).map_err(|error| match is_gone(&error) {
            true => ENDED_EARLY.to_owned(),
            false => format!("the new process cannot be understood: {error}"),
        })
    }

    /// Our ends of what leads from the new process to this one, for each listener with HTTP/3, and the other
    /// ends, with what leads to the processes before this one that are still there.
    fn pipes(&self) -> io::Result<(Vec<OwnedFd>, Vec<Labelled>)> {
        let (_, generation) = self.handover.http3_identity.told();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (http3, number) in self.handover.http3.iter().zip(0..) {
            let label = |generation: u8| SocketLabel {
                door: SocketRole::Http3Before,
                asked: http3.asked,
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

    /// Closes the store, so that the other process can open it. Writes wait meanwhile.
    fn lend_store(&self, tell: &mut dyn FnMut(&str)) -> PredecessorMessage {
        let wait = if self.handover.store.defers_writes() { ", writes wait" } else { "" };
        tell(&format!("the store changes hands{wait}"));
        match self.handover.store.lend() {
            Ok(()) => PredecessorMessage::StoreIsFree,
            Err(error) => PredecessorMessage::StoreStays(error.to_string()),
        }
    }

    /// After a failure: the store is this process's again.
    fn take_back(&self, tell: &mut dyn FnMut(&str)) {
        match self.handover.store.take_back() {
            Ok(()) => {}
            Err(error) => {
                tracing::error!(%error, "store cannot be reopened, retrying");
                tell(&format!("the store cannot be reopened: {error}; the gateway keeps trying"));
            }
        }
    }

    /// Whether the new program makes as much of the configuration as this one.
    fn judge(&self, ready: &SuccessorReady, ask: &UpgradeOptions) -> Result<(), String> {
        // Of a store that has changed hands there is nothing more to hear, and writes wait for it.
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

    /// Tells the other process what connections of this one still count, until they have ended; hears what they shall
    /// be served by, and whether the gateway ends.
    fn sync_until_ended(self: &Arc<Self>, channel: HandoverChannel, told: ExportedState) {
        let predecessor = self.clone();
        let run = move || {
            if predecessor.sync_loop(&channel, told).is_err() {
                // There is nobody any more who would say what is served: what goes on would be served by the past.
                predecessor.ended_by_successor.notify_one();
            }
            // The other one takes the end of the connection for the end of this process.
            while !predecessor.is_over.load(Ordering::Acquire) {
                std::thread::sleep(COUNT_EVERY);
            }
        };
        let thread = std::thread::Builder::new().name("yumen-handover".into()).spawn(run);
        *self.counting.lock().unwrap_or_else(PoisonError::into_inner) = thread.ok();
    }

    /// Returns when this process is over; an error is the end of the other one, which one that does not listen for
    /// long, or says what cannot be read, is taken for.
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

    /// Somebody asks; the process does not end before the answer was given.
    pub(crate) fn begin_call(self: &Arc<Self>) -> UpgradeCaller {
        self.callers.fetch_add(1, Ordering::AcqRel);
        UpgradeCaller(self.clone())
    }

    /// Tells the last of what was counted, and has callers told: the process ends.
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

/// Somebody who waits for an answer.
pub(crate) struct UpgradeCaller(Arc<Predecessor>);

impl Drop for UpgradeCaller {
    fn drop(&mut self) {
        self.0.callers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Starts the process with one end of a connection as its standard input.
fn start(program: &Path) -> io::Result<(Child, HandoverChannel)> {
    let (ours, theirs) = UnixStream::pair()?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .env(VARIABLE, "stdin")
        // These are about this process.
        .env_remove("WATCHDOG_PID")
        .env_remove("LISTEN_PID")
        .env_remove("LISTEN_FDS")
        .env_remove("LISTEN_FDNAMES")
        .spawn()?;
    Ok((child, HandoverChannel::new(ours)))
}

/// Whether there is still a process at the other end.
fn leads_somewhere(pipe: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(pipe, PollFlags::OUT)];
    let told = poll(&mut asked, Some(&Timespec::default()));
    told.is_ok() && !asked[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Ends a process that does not take over; adds how it ended where that was its own doing.
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
            // What a wrapper has started holds what was handed over just as it does: clients would be accepted by
            // nobody, and the ports stay taken.
            started.into_iter().for_each(process::kill);
            reason
        }
    }
}
