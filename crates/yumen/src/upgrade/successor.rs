//! The process that takes over: receives the predecessor's state and reports its own progress.
//!
//! Owns the order of the handover, not the state that is handed over.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use socket2::Socket;
use yumen_base::{Problem, ProblemLevel};
use yumen_plugin::Carry;
use yumen_proxy::tls::TICKET_KEY_BYTES;
use yumen_proxy::{Http3Identity, clock};
use yumen_store::{Revision, StoreState};

use super::VARIABLE;
use super::channel::HandoverChannel;
use super::config_sender::{ConfigSender, PredecessorStatus, show};
use super::handover_store::{HandoverStore, names};
use super::message::{
    HandoverHello, HandoverOffer, PROTOCOL, PROTOCOL_MIN, PredecessorMessage, SuccessorMessage,
    SuccessorReady,
};
use crate::applied_tracker::AppliedLag;
use crate::config_source::StoreStart;
use crate::control::ControlHandle;
use crate::known_inputs::KnownInputs;
use crate::sockets::{InheritedSocket, InheritedSockets};
use crate::tls::ExportedStaple;

/// Interval of checks whether the wait for the predecessor must be shortened.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Limit for a reply of the predecessor.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Connection to the predecessor.
pub(crate) struct Successor {
    channel: HandoverChannel,
    before: PredecessorStatus,
}

/// State received from the predecessor.
pub(crate) struct HandoverReceived {
    pub(crate) sockets: InheritedSockets,
    pub(crate) ticket_keys: Vec<[u8; TICKET_KEY_BYTES]>,
    pub(crate) http3_identity: Option<Http3Identity>,
    /// Whether this process may create the store, or must find it.
    pub(crate) start: StoreStart,
    /// Whether the predecessor applies configuration updates.
    pub(crate) follows: bool,
    /// Whether the predecessor has live predecessors.
    pub(crate) outlives: bool,
    /// Newest revision that was applied in all processes.
    pub(crate) applied: Revision,
    /// Known endpoints of host names and services.
    pub(crate) known: KnownInputs,
    /// Known OCSP staples.
    pub(crate) staples: Vec<ExportedStaple>,
}

/// State shared with the predecessor until its last connection has ended.
pub(crate) struct PredecessorSync {
    pub(crate) carry: Arc<Carry>,
    pub(crate) held: Arc<HandoverStore>,
    pub(crate) control: ControlHandle,
    /// Whether the predecessor applies configuration updates.
    pub(crate) follows: bool,
    /// Time that earlier processes may still need if the predecessor exits without a message.
    pub(crate) outlived_for: Duration,
}

impl HandoverReceived {
    /// State of a first process; `sockets` may come from the service manager.
    pub(crate) fn without_predecessor(sockets: InheritedSockets) -> HandoverReceived {
        HandoverReceived {
            sockets,
            ticket_keys: Vec::new(),
            http3_identity: None,
            start: StoreStart::First,
            follows: false,
            outlives: false,
            applied: Revision::default(),
            known: KnownInputs::default(),
            staples: Vec::new(),
        }
    }
}

impl Successor {
    /// Connection to the predecessor; `None` in a process that was started otherwise.
    pub(crate) fn from_environment() -> anyhow::Result<Option<Successor>> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let connection = std::io::stdin().as_fd().try_clone_to_owned();
        let connection = connection.context("standard input is not a connection to the predecessor")?;
        // Child processes must not inherit the channel: its end signals the exit of this process.
        let nothing = std::fs::File::open("/dev/null").context("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing)?;
        Ok(Some(Successor::on(HandoverChannel::new(UnixStream::from(connection)))))
    }

    fn on(channel: HandoverChannel) -> Successor {
        Successor { channel, before: PredecessorStatus::default() }
    }

    /// Receives the predecessor's offer and sockets.
    pub(crate) fn receive(&self) -> anyhow::Result<HandoverReceived> {
        let until = Instant::now() + ANSWER_WITHIN;
        let hello: HandoverHello = self.channel.receive(Some(until)).context("nothing is handed over")?;
        if !(PROTOCOL_MIN..=PROTOCOL).contains(&hello.protocol) {
            bail!(
                "handover protocol mismatch: yumen {} uses {}, yumen {} supports {PROTOCOL_MIN} to {PROTOCOL}",
                hello.version,
                hello.protocol,
                env!("CARGO_PKG_VERSION")
            );
        }
        let offer: HandoverOffer = self.channel.receive(Some(until)).context("no sockets are handed over")?;
        let descriptors = self.channel.receive_descriptors(offer.sockets.len(), until);
        let descriptors = descriptors.context("the sockets do not come")?;
        let passed = offer.sockets.into_iter().zip(descriptors).map(|(label, descriptor)| InheritedSocket {
            label: Some(label),
            name: String::new(),
            socket: Socket::from(descriptor),
        });
        let sockets = InheritedSockets::from_outside(passed.collect());
        let keys = offer.ticket_keys.iter().filter_map(|key| BASE64.decode(key).ok()?.try_into().ok());
        let http3_identity = offer.http3_identity.and_then(|(secret, generation)| {
            let secret = BASE64.decode(secret).ok()?.try_into().ok()?;
            Some(Http3Identity::following(secret, generation))
        });
        let start = StoreStart::TakesOver { ended_file: offer.ended_file };
        let (follows, outlives, applied) = (offer.follows, offer.outlives, Revision(offer.applied));
        Ok(HandoverReceived {
            sockets,
            ticket_keys: keys.collect(),
            http3_identity,
            start,
            follows,
            outlives,
            applied,
            known: KnownInputs::of(&offer.known),
            staples: offer.staples,
        })
    }

    /// Reports the next step.
    pub(crate) fn does(&self, what: &str) {
        // The exit of the predecessor is detected by the next receive.
        let _ = self.channel.send(&SuccessorMessage::Does(what.to_owned()));
    }

    /// Waits until the store can be opened.
    pub(crate) fn acquire_store(&self) -> anyhow::Result<()> {
        self.channel.send(&SuccessorMessage::WantsStore)?;
        match self.channel.receive(Some(Instant::now() + ANSWER_WITHIN))? {
            PredecessorMessage::StoreIsFree => Ok(()),
            PredecessorMessage::StoreStays(reason) => bail!("the predecessor keeps the store: {reason}"),
            _ => bail!("unexpected message from the predecessor while waiting for the store"),
        }
    }

    /// Reports readiness and waits for the command to serve, with the state of limits and endpoints.
    pub(crate) fn ready(
        &self,
        problems: &[Problem],
        state: &StoreState,
        carry: &Carry,
    ) -> anyhow::Result<()> {
        let errors = problems.iter().filter(|problem| problem.level == ProblemLevel::Error);
        let last_good = errors.clone().filter(|problem| problem.last_good);
        let ready = SuccessorReady {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            last_good: last_good.map(|problem| problem.object.clone()).collect(),
            // At time 0 no object counts as expired, so that expiry during the handover is no loss.
            objects: Some(names(state, 0)),
            broken: errors.map(|problem| (problem.object.clone(), problem.message.clone())).collect(),
        };
        self.channel.send(&SuccessorMessage::Ready(ready))?;
        match self.channel.receive(Some(Instant::now() + ANSWER_WITHIN))? {
            PredecessorMessage::Serve(told) => {
                carry.take_over(&told, clock::exact());
                Ok(())
            }
            _ => bail!("unexpected message from the predecessor while waiting to serve"),
        }
    }

    /// Reports that this process serves, and waits for the acknowledgement. If the predecessor has exited,
    /// this process serves alone.
    pub(crate) fn serves(&self) -> anyhow::Result<()> {
        let _ = self.channel.send(&SuccessorMessage::Serves);
        match self.channel.receive::<PredecessorMessage>(Some(Instant::now() + ANSWER_WITHIN)) {
            Ok(PredecessorMessage::TakenOver) => {}
            Ok(_) => bail!("unexpected message from the predecessor instead of an acknowledgement"),
            Err(error) => tracing::warn!(%error, "predecessor exited without acknowledging the handover"),
        }
        Ok(())
    }

    /// Reports that this process accepts upgrade requests. Starts the exchange of counters and configuration
    /// updates with the predecessor.
    pub(crate) fn settled(self: Arc<Self>, after: PredecessorSync) -> anyhow::Result<()> {
        let _ = self.channel.send(&SuccessorMessage::Settled);
        let PredecessorSync { carry, held, control, follows, outlived_for } = after;
        let (hears, heard_by) = (self.clone(), control.clone());
        let hear = move || {
            let has_said_so = hears.receive_until_end(&carry, &heard_by);
            carry.go_on_alone();
            hears.before.has_ended();
            if !has_said_so {
                // Processes before the predecessor notice its exit at the same moment, and drain within this
                // time.
                std::thread::sleep(outlived_for);
            }
            heard_by.reach.set_lag(|all| *all = AppliedLag::default(), |all| show(&heard_by.messages, all));
            heard_by.reach.go_on_alone();
            tracing::info!("predecessor exited");
        };
        std::thread::Builder::new().name("yumen-successor".into()).spawn(hear)?;
        if follows {
            let ControlHandle { messages, reach, .. } = control;
            let tell = move || {
                let (channel, before) = (&self.channel, &self.before);
                ConfigSender { channel, before, held, reach, messages }.run();
            };
            std::thread::Builder::new().name("yumen-telling".into()).spawn(tell)?;
        }
        Ok(())
    }

    /// Receives messages until the predecessor ends. Returns whether all earlier processes have ended as
    /// well.
    fn receive_until_end(&self, carry: &Carry, control: &ControlHandle) -> bool {
        let set_lag = |note: &mut dyn FnMut(&mut AppliedLag)| {
            control.reach.set_lag(note, |all| show(&control.messages, all));
        };
        let mut has_said_so = false;
        while let Ok(said) = self.channel.receive(None) {
            match said {
                PredecessorMessage::Counted(told) => carry.take_over(&told, clock::exact()),
                PredecessorMessage::InForce(broken) => {
                    let here = control.shown.broken();
                    let broken: Vec<String> = broken.into_iter().filter(|one| !here.contains(one)).collect();
                    set_lag(&mut |all| all.broken_in_predecessor.clone_from(&broken));
                    self.before.is_in_force();
                }
                PredecessorMessage::Followed(updates_received) => {
                    self.before.has_followed(updates_received, &control.reach)
                }
                PredecessorMessage::WaitsFor(pid) => set_lag(&mut |all| all.behind = pid),
                PredecessorMessage::Ended => has_said_so = true,
                _ => {}
            }
        }
        has_said_so
    }

    /// Reports the end of the gateway, so that the predecessor shortens its drain.
    pub(crate) fn ends(&self) {
        self.channel.send_last(&SuccessorMessage::Ends);
    }

    /// Waits for the end of the predecessor, which receives configuration updates through this process. Once
    /// `is_hurried` returns `true`, waits at most `hurried_ms`.
    pub(crate) fn wait_for_predecessor_end(&self, hurried_ms: u64, is_hurried: impl Fn() -> bool) {
        let mut until = None;
        while !self.before.wait_for_end(LOOK_EVERY) {
            let now = Instant::now();
            if is_hurried() && *until.get_or_insert(now + Duration::from_millis(hurried_ms)) <= now {
                tracing::warn!("predecessor does not exit");
                return;
            }
        }
    }

    /// Reports the reason why this process aborts the handover.
    pub(crate) fn refuses(&self, error: &anyhow::Error) {
        let _ = self.channel.send(&SuccessorMessage::Refuses(format!("{error:#}")));
    }
}

#[cfg(test)]
mod tests;
