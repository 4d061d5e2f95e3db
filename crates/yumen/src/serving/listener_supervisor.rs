//! The listeners of the configuration: opens, changes and closes their sockets as snapshots demand.
//!
//! Owns the bound sockets of these listeners and the reports about them. The workers accept, and a snapshot decides how
//! a connection is served.

mod binder;
mod claims;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use yumen_base::Problem;
use yumen_proxy::{
    CommandConfirmation, CommandReceipt, ListenAddress, ListenTransport, ListenerCommand, WorkerDuty,
    WorkerListenSockets, clock,
};
use yumen_snapshot::Snapshot;

use super::sockets::{InheritedSockets, SocketHandles, SocketRole};
use crate::control::{ControlMessage, ProblemSource};
use crate::process;
pub(crate) use binder::ListenerServices;
use claims::{ListenerClaims, RequestedListener, SocketClaim};
pub(crate) use state::{ListenerReport, ListenerState, ListenerStates, describe};

/// First delay between two attempts to bind an address; each failure doubles it.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// Longest delay between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Shortest pause between two rounds of attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Opens, changes and closes the listeners of the configuration.
pub(crate) struct ListenerSupervisor {
    services: Arc<ListenerServices>,
    workers: Vec<UnboundedSender<ListenerCommand>>,
    handles: Arc<SocketHandles>,
    /// Addresses of the node's settings, with their owners.
    occupied: BTreeMap<ListenAddress, &'static str>,
    listeners: Vec<RequestedListener>,
    claims: ListenerClaims,
    bound: BTreeMap<ListenAddress, BoundSockets>,
    /// Addresses whose sockets the workers are closing.
    closing: BTreeSet<ListenAddress>,
    failures: BTreeMap<ListenAddress, BindFailure>,
    /// Confirmations of commands that are not awaited yet.
    unconfirmed: Vec<(ConfirmedCommand, CommandConfirmation)>,
    /// Number of the last bound sockets.
    serial: u64,
    states: watch::Sender<ListenerStates>,
    problems: Sender<ControlMessage>,
    /// The problems that were sent last.
    reported: Vec<Problem>,
}

/// Sockets that workers have received, one or more per worker.
struct BoundSockets {
    /// Distinguishes sockets that had one address one after the other.
    serial: u64,
    claim: SocketClaim,
    /// Whether the listener advertises HTTP/3.
    has_http3: bool,
    /// Whether every worker accepts.
    is_open: bool,
}

/// The last failure to bind an address.
struct BindFailure {
    owner: Arc<str>,
    reason: String,
    is_in_use: bool,
    delay: Duration,
    retry_at: Instant,
    /// The same moment, in milliseconds since the Unix epoch.
    retry_at_ms: u64,
}

/// A command that all workers have applied.
#[derive(Debug, Clone, Copy)]
enum ConfirmedCommand {
    Opened { at: ListenAddress, serial: u64 },
    Closed { at: ListenAddress },
}

impl ListenerSupervisor {
    /// Binds or inherits the listeners of the first snapshot. Returns the commands for each worker.
    pub(crate) fn open_first(
        snapshot: &Snapshot,
        services: Arc<ListenerServices>,
        occupied: BTreeMap<ListenAddress, &'static str>,
        inherited: &mut InheritedSockets,
        problems: Sender<ControlMessage>,
    ) -> (ListenerSupervisor, Vec<UnboundedReceiver<ListenerCommand>>) {
        let (workers, commands) = (0..services.workers).map(|_| unbounded_channel()).unzip();
        let mut supervisor = ListenerSupervisor {
            services,
            workers,
            handles: inherited.handles.clone(),
            occupied,
            listeners: Vec::new(),
            claims: ListenerClaims::default(),
            bound: BTreeMap::new(),
            closing: BTreeSet::new(),
            failures: BTreeMap::new(),
            unconfirmed: Vec::new(),
            serial: 0,
            states: watch::Sender::default(),
            problems,
            reported: Vec::new(),
        };
        supervisor.take(snapshot);
        supervisor.reconcile(inherited);
        inherited.drop_rest();
        supervisor.publish();
        (supervisor, commands)
    }

    pub(crate) fn report(&self) -> ListenerReport {
        ListenerReport::new(self.states.subscribe())
    }

    /// Problems of the listeners, for the first report to the predecessor.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let failed = self.claims.sockets.iter().filter_map(|claim| {
            let failure = self.failures.get(&claim.at)?;
            let hint = "free the address or use another one; the gateway retries until the address is free";
            let problem = match claim.role {
                SocketRole::Http3 => Problem::warning(claim.listener.object(), "http3", &*failure.reason),
                _ => Problem::error(claim.listener.object(), "address", &*failure.reason),
            };
            Some(problem.hint(hint))
        });
        self.claims.problems.iter().cloned().chain(failed).collect()
    }

    /// Follows the snapshots until the process stops to serve.
    pub(crate) async fn follow(
        mut self,
        mut snapshots: watch::Receiver<Arc<Snapshot>>,
        mut duty: watch::Receiver<WorkerDuty>,
    ) {
        let handles = self.handles.clone();
        let mut inherited = InheritedSockets::without_passed(handles.clone());
        let mut commands = JoinSet::new();
        // The first reconciliation is of the snapshots that were published since the first listeners were opened.
        snapshots.mark_changed();
        loop {
            for (command, confirmation) in self.unconfirmed.drain(..) {
                commands.spawn(async move { (command, confirmation.wait().await) });
            }
            self.publish();
            let retry_at = self.next_retry();
            tokio::select! {
                _ = duty.wait_for(|duty| duty.is_over()) => break,
                Some(confirmed) = commands.join_next() => {
                    self.confirm(confirmed.ok());
                    while let Some(confirmed) = commands.try_join_next() {
                        self.confirm(confirmed.ok());
                    }
                }
                changed = snapshots.changed() => match changed {
                    Ok(()) => {
                        let snapshot = snapshots.borrow_and_update().clone();
                        self.take(&snapshot);
                    }
                    Err(_) => break,
                },
                () = handles.thawed() => {}
                () = tokio::time::sleep_until(retry_at) => {}
            }
            // Binding a thousand addresses takes tens of milliseconds.
            tokio::task::block_in_place(|| self.reconcile(&mut inherited));
        }
        // The successor reports its own.
        let _ = self.problems.send(ControlMessage::Problems(ProblemSource::Listeners, Vec::new()));
    }

    /// Takes the listeners of a snapshot.
    fn take(&mut self, snapshot: &Snapshot) {
        let listeners: Vec<_> = snapshot.listeners().map(|one| RequestedListener::of(one)).collect();
        let is_same = listeners.len() == self.listeners.len()
            && listeners.iter().zip(&self.listeners).all(|(one, other)| one.is_same(other));
        if !is_same {
            let listeners_max = self.services.node.limits.listeners as usize;
            self.claims = ListenerClaims::of(listeners.clone(), &self.occupied, listeners_max);
            self.listeners = listeners;
        }
    }

    /// Brings the sockets into agreement with the claims, as far as possible now.
    fn reconcile(&mut self, inherited: &mut InheritedSockets) {
        let handles = self.handles.clone();
        let Some(_change) = handles.begin_change() else { return };
        let claims = std::mem::take(&mut self.claims);
        let is_claimed = |at: &ListenAddress, failure: &BindFailure| {
            claims.at(*at).is_some_and(|claim| claim.listener.id == failure.owner)
        };
        self.failures.retain(|at, failure| is_claimed(at, failure));
        for claim in &claims.sockets {
            self.serve(claim, &claims, inherited);
        }
        self.close_replaced(&claims);
        self.name_holders();
        self.claims = claims;
    }

    /// Opens the sockets of a claim, or changes those at its address.
    fn serve(&mut self, claim: &SocketClaim, claims: &ListenerClaims, inherited: &mut InheritedSockets) {
        let http3 = ListenAddress { transport: ListenTransport::Udp, ..claim.at };
        let has_http3 = claim.listener.settings.http3
            && claims.at(http3).is_some_and(|other| other.listener.id == claim.listener.id);
        match self.bound.get(&claim.at) {
            Some(bound) if !is_exchangeable(&bound.claim, claim) => return self.close(claim.at),
            Some(_) => return self.change(claim, has_http3),
            None => {}
        }
        let overlaps = |at: &ListenAddress| overlaps(at, &claim.at);
        let unclaimed: Vec<ListenAddress> =
            self.bound.keys().copied().filter(|at| overlaps(at) && claims.at(*at).is_none()).collect();
        unclaimed.into_iter().for_each(|at| self.close(at));
        let waits = self.failures.get(&claim.at).is_some_and(|failure| failure.retry_at > Instant::now());
        if waits || self.closing.iter().any(overlaps) {
            return;
        }
        match self.services.bind(claim, inherited) {
            Ok(sockets) => self.open(claim, has_http3, sockets),
            Err(error) => self.note_failure(claim, &error),
        }
    }

    fn open(&mut self, claim: &SocketClaim, has_http3: bool, by_worker: Vec<WorkerListenSockets>) {
        self.failures.remove(&claim.at);
        self.serial += 1;
        let (at, serial) = (claim.at, self.serial);
        let (receipt, confirmation) = CommandReceipt::new();
        let listener = self.services.dynamic(claim, has_http3);
        for (worker, sockets) in self.workers.iter().zip(by_worker) {
            let (listener, receipt) = (listener.clone(), receipt.clone());
            // A worker that has ended accepts nothing.
            let _ = worker.send(ListenerCommand::Open { at, sockets, listener, receipt });
        }
        self.unconfirmed.push((ConfirmedCommand::Opened { at, serial }, confirmation));
        self.bound.insert(at, BoundSockets { serial, claim: claim.clone(), has_http3, is_open: false });
    }

    /// Changes the settings of bound sockets, if they differ.
    fn change(&mut self, claim: &SocketClaim, has_http3: bool) {
        let Some(bound) = self.bound.get_mut(&claim.at) else { return };
        if bound.claim.listener.is_same(&claim.listener) && bound.has_http3 == has_http3 {
            return;
        }
        if matches!(claim.role, SocketRole::Http | SocketRole::Stream) {
            let settings = binder::socket_settings(&claim.listener.settings);
            if let Err(error) = self.handles.pass_on(bound.claim.role, claim.role, &settings) {
                tracing::warn!(%error, address = %claim.at.address, "socket options not changed");
            }
        }
        bound.claim = claim.clone();
        bound.has_http3 = has_http3;
        let listener = self.services.dynamic(claim, has_http3);
        for worker in &self.workers {
            let _ = worker.send(ListenerCommand::Change { at: claim.at, listener: listener.clone() });
        }
    }

    /// Closes sockets that nothing claims any more. A listener with a new address keeps its sockets until those of
    /// the new address are open.
    fn close_replaced(&mut self, claims: &ListenerClaims) {
        let served: BTreeSet<&Arc<str>> = self.open_listeners(claims).map(|listener| &listener.id).collect();
        let is_refused = |id: &Arc<str>| claims.refused.get(id).is_some_and(|refusal| !refusal.keeps_former);
        let ids = self.listeners.iter().map(|listener| &listener.id);
        let is_moving: BTreeSet<&Arc<str>> =
            ids.filter(|id| !served.contains(id) && !is_refused(id)).collect();
        let is_replaced = |(at, bound): &(&ListenAddress, &BoundSockets)| {
            claims.at(**at).is_none() && !is_moving.contains(&bound.claim.listener.id)
        };
        let replaced: Vec<ListenAddress> = self.bound.iter().filter(is_replaced).map(|(at, _)| *at).collect();
        replaced.into_iter().for_each(|at| self.close(at));
    }

    fn open_listeners<'c>(&self, claims: &'c ListenerClaims) -> impl Iterator<Item = &'c RequestedListener> {
        let is_open = |claim: &&SocketClaim| {
            claim.role != SocketRole::Http3
                && self
                    .bound
                    .get(&claim.at)
                    .is_some_and(|bound| bound.is_open && bound.claim.listener.id == claim.listener.id)
        };
        claims.sockets.iter().filter(is_open).map(|claim| &claim.listener)
    }

    fn close(&mut self, at: ListenAddress) {
        let Some(BoundSockets { claim, .. }) = self.bound.remove(&at) else { return };
        self.handles.forget(claim.role, at.address);
        if claim.role == SocketRole::Http3 {
            self.services.http3_handovers.remove(at.address);
        }
        let (receipt, confirmation) = CommandReceipt::new();
        for worker in &self.workers {
            let _ = worker.send(ListenerCommand::Close { at, receipt: receipt.clone() });
        }
        self.closing.insert(at);
        self.unconfirmed.push((ConfirmedCommand::Closed { at }, confirmation));
    }

    /// Takes the confirmation of a command; `None` if its task was aborted.
    fn confirm(&mut self, confirmed: Option<(ConfirmedCommand, Result<(), String>)>) {
        match confirmed {
            Some((ConfirmedCommand::Opened { at, serial }, result)) => {
                let Some(bound) = self.bound.get_mut(&at).filter(|bound| bound.serial == serial) else {
                    return;
                };
                match result {
                    Ok(()) => {
                        bound.is_open = true;
                        tracing::info!(listener = &*bound.claim.listener.id, address = %at.address, "listening");
                    }
                    Err(reason) => {
                        let claim = bound.claim.clone();
                        self.close(at);
                        self.note_failure(&claim, &anyhow::anyhow!(reason));
                    }
                }
            }
            Some((ConfirmedCommand::Closed { at }, _)) => {
                self.closing.remove(&at);
                let now = Instant::now();
                for (_, failure) in
                    self.failures.iter_mut().filter(|(other, _)| other.address.port() == at.address.port())
                {
                    // The closed sockets may have been the reason.
                    failure.retry_at = now;
                }
            }
            None => {}
        }
    }

    fn note_failure(&mut self, claim: &SocketClaim, error: &anyhow::Error) {
        // Those that were bound before the failure.
        self.handles.forget(claim.role, claim.at.address);
        let before = self.failures.get(&claim.at);
        let delay = before.map_or(RETRY_MIN, |failure| (failure.delay * 2).min(RETRY_MAX));
        let is_in_use = error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
            .any(|cause| cause.kind() == std::io::ErrorKind::AddrInUse);
        let failure = BindFailure {
            owner: claim.listener.id.clone(),
            reason: format!("cannot listen on {}: {error:#}", claim.at.address),
            is_in_use: is_in_use && claim.at.transport == ListenTransport::Tcp,
            delay,
            retry_at: Instant::now() + delay,
            retry_at_ms: clock::exact().unix_ms + delay.as_millis() as u64,
        };
        self.failures.insert(claim.at, failure);
    }

    /// Adds the processes that hold addresses to the reasons of new failures.
    fn name_holders(&mut self) {
        let in_use: Vec<_> = self.failures.iter_mut().filter(|(_, failure)| failure.is_in_use).collect();
        if in_use.is_empty() {
            return;
        }
        let ports = in_use.iter().map(|(at, _)| at.address.port()).collect();
        let holders = process::with_tcp_listeners_at(&ports);
        for (at, failure) in in_use {
            failure.is_in_use = false;
            if let Some(holders) = holders.get(&at.address.port()) {
                failure.reason.push_str(&format!("; {} has it", holders.join(", ")));
            }
        }
    }

    fn next_retry(&self) -> Instant {
        let now = Instant::now();
        let first = self.failures.values().map(|failure| failure.retry_at).min();
        // An attempt that is due may have to wait for sockets that close, or for a successor that starts.
        first.unwrap_or(now + RETRY_MAX).max(now + RETRY_PAUSE)
    }

    /// Exports states and problems, if they differ from the last ones.
    fn publish(&mut self) {
        let of = |listener: &RequestedListener| {
            let at = listener.address();
            let own = self.bound.get(&at).filter(|bound| bound.claim.listener.id == listener.id);
            let state = match (self.claims.refused.get(&listener.id), own, self.failures.get(&at)) {
                (Some(refusal), ..) => {
                    ListenerState::Failed { reason: refusal.reason.clone(), retry_at_ms: None }
                }
                (None, Some(bound), _) if bound.is_open => ListenerState::Open { bound: at.address },
                (None, _, Some(failure)) if failure.owner == listener.id => ListenerState::Failed {
                    reason: failure.reason.clone(),
                    retry_at_ms: Some(failure.retry_at_ms),
                },
                _ => ListenerState::Opening,
            };
            (listener.id.clone(), state)
        };
        let states: BTreeMap<_, _> = self.listeners.iter().map(of).collect();
        self.states.send_if_modified(|current| {
            let differs = **current != states;
            if differs {
                *current = Arc::new(states);
            }
            differs
        });
        let problems = self.problems();
        if problems != self.reported {
            self.reported.clone_from(&problems);
            // The control thread has ended only if the process ends.
            let _ = self.problems.send(ControlMessage::Problems(ProblemSource::Listeners, problems));
        }
    }
}

/// Whether sockets at one address exclude sockets at the other.
fn overlaps(one: &ListenAddress, other: &ListenAddress) -> bool {
    let (ip, other_ip) = (one.address.ip(), other.address.ip());
    one.transport == other.transport
        && one.address.port() == other.address.port()
        && (ip == other_ip || ip.is_unspecified() || other_ip.is_unspecified())
}

/// Whether the sockets of one claim can serve the other without being bound again.
fn is_exchangeable(one: &SocketClaim, other: &SocketClaim) -> bool {
    let is_tcp = |role| matches!(role, SocketRole::Http | SocketRole::Stream);
    match (one.role, other.role) {
        // The TLS configuration of an endpoint is that of its listener.
        (SocketRole::Http3, SocketRole::Http3) => one.listener.number == other.listener.number,
        (one, other) => one == other || (is_tcp(one) && is_tcp(other)),
    }
}
