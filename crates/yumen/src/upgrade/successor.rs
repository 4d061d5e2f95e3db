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
use super::draining_predecessor::DrainingPredecessor;
use super::message::{
    DrainLimits, HandoverHello, HandoverOffer, PROTOCOL, PROTOCOL_MIN, PredecessorMessage, SuccessorMessage,
    SuccessorReady,
};
use crate::config::handover_store::names;
use crate::config::source::StoreStart;
use crate::endpoints::inputs::KnownInputs;
use crate::serving::sockets::{InheritedSocket, InheritedSockets};
use crate::tls::ExportedStaple;

/// Limit for a reply of the predecessor.
const REPLY_WITHIN: Duration = Duration::from_secs(60);

/// Connection to the predecessor until this process serves.
pub(crate) struct Successor {
    channel: Arc<HandoverChannel>,
}

/// State received from the predecessor.
pub(crate) struct HandoverReceived {
    pub(crate) sockets: InheritedSockets,
    pub(crate) ticket_keys: Vec<[u8; TICKET_KEY_BYTES]>,
    pub(crate) http3_identity: Option<Http3Identity>,
    /// Whether this process may create the store, or must find it.
    pub(crate) start: StoreStart,
    /// Newest revision applied in the predecessor.
    pub(crate) applied: Revision,
    /// Limits of the predecessor's drain.
    pub(crate) drain_limits: DrainLimits,
    /// Known endpoints of host names and services.
    pub(crate) known: KnownInputs,
    /// Known OCSP staples.
    pub(crate) staples: Vec<ExportedStaple>,
}

impl HandoverReceived {
    /// State of a first process; `sockets` may come from the service manager.
    pub(crate) fn without_predecessor(sockets: InheritedSockets) -> HandoverReceived {
        HandoverReceived {
            sockets,
            ticket_keys: Vec::new(),
            http3_identity: None,
            start: StoreStart::First,
            applied: Revision::default(),
            drain_limits: DrainLimits::default(),
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
        let null = std::fs::File::open("/dev/null").context("/dev/null")?;
        rustix::stdio::dup2_stdin(&null)?;
        Ok(Some(Successor::on(HandoverChannel::new(UnixStream::from(connection)))))
    }

    fn on(channel: HandoverChannel) -> Successor {
        Successor { channel: Arc::new(channel) }
    }

    /// Receives the predecessor's offer and sockets.
    pub(crate) fn receive(&self) -> anyhow::Result<HandoverReceived> {
        let until = Instant::now() + REPLY_WITHIN;
        let hello: HandoverHello =
            self.channel.receive(Some(until)).context("no handover message received")?;
        // Before the offer is read, whose form the protocol number determines.
        if !(PROTOCOL_MIN..=PROTOCOL).contains(&hello.protocol) {
            bail!(
                "handover protocol mismatch: yumen {} uses {}, yumen {} supports {PROTOCOL_MIN} to {PROTOCOL}",
                hello.version,
                hello.protocol,
                env!("CARGO_PKG_VERSION")
            );
        }
        let offer: HandoverOffer = self.channel.receive(Some(until)).context("no offer received")?;
        // The number comes from the offer, so both sides agree on it.
        let descriptors = self.channel.receive_descriptors(offer.sockets.len(), until);
        let descriptors = descriptors.context("sockets of the offer not received")?;
        let passed = offer.sockets.into_iter().zip(descriptors).map(|(label, descriptor)| InheritedSocket {
            label: Some(label),
            name: String::new(),
            socket: Socket::from(descriptor),
        });
        let sockets = InheritedSockets::from_outside(passed.collect());
        // A key that cannot be read costs resumptions, not the upgrade.
        let keys = offer.ticket_keys.iter().filter_map(|key| BASE64.decode(key).ok()?.try_into().ok());
        let http3_identity = offer.http3_identity.and_then(|(secret, generation)| {
            let secret = BASE64.decode(secret).ok()?.try_into().ok()?;
            Some(Http3Identity::following(secret, generation))
        });
        Ok(HandoverReceived {
            sockets,
            ticket_keys: keys.collect(),
            http3_identity,
            start: StoreStart::TakesOver { ended_file: offer.ended_file },
            applied: Revision(offer.applied),
            drain_limits: offer.drain,
            known: KnownInputs::parse(&offer.known),
            staples: offer.staples,
        })
    }

    /// Reports the next step.
    pub(crate) fn report_step(&self, step: &str) {
        // The exit of the predecessor is detected by the next receive.
        let _ = self.channel.send(&SuccessorMessage::Does(step.to_owned()));
    }

    /// Waits until the store can be opened.
    pub(crate) fn acquire_store(&self) -> anyhow::Result<()> {
        self.channel.send(&SuccessorMessage::WantsStore)?;
        // The predecessor finishes queued decisions first, which may take long.
        match self.channel.receive(Some(Instant::now() + REPLY_WITHIN))? {
            PredecessorMessage::StoreIsFree => Ok(()),
            PredecessorMessage::StoreStays(reason) => bail!("the predecessor keeps the store: {reason}"),
            _ => bail!("unexpected message from the predecessor while waiting for the store"),
        }
    }

    /// Reports readiness and waits for the command to serve, with the state of limits and endpoints.
    pub(crate) fn report_ready(
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
        match self.channel.receive(Some(Instant::now() + REPLY_WITHIN))? {
            PredecessorMessage::Serve(exported) => {
                // Before the first request is served, so that no limit starts anew.
                carry.take_over(&exported, clock::exact());
                Ok(())
            }
            _ => bail!("unexpected message from the predecessor while waiting to serve"),
        }
    }

    /// Reports that this process serves, and waits for the acknowledgement. Returns the handle of the
    /// predecessor, which drains from now on.
    pub(crate) fn take_over(&self, drain_limits: DrainLimits) -> anyhow::Result<Arc<DrainingPredecessor>> {
        let _ = self.channel.send(&SuccessorMessage::Serves);
        match self.channel.receive::<PredecessorMessage>(Some(Instant::now() + REPLY_WITHIN)) {
            Ok(PredecessorMessage::TakenOver) => {}
            Ok(_) => bail!("unexpected message from the predecessor instead of an acknowledgement"),
            // This process serves alone.
            Err(error) => tracing::warn!(%error, "predecessor exited without acknowledging the handover"),
        }
        Ok(Arc::new(DrainingPredecessor::new(self.channel.clone(), drain_limits)))
    }

    /// Reports the reason why this process aborts the handover.
    pub(crate) fn refuse(&self, error: &anyhow::Error) {
        let _ = self.channel.send(&SuccessorMessage::Refuses(format!("{error:#}")));
    }
}

#[cfg(test)]
mod tests;
