//! The process that takes over: receives what the one before gives, and says how far it is.
//!
//! Knows in which order things change hands; what they are is others' business.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use socket2::Socket;
use yumen_base::{Level, Problem};
use yumen_plugin::Carry;
use yumen_proxy::tls::TICKET_KEY_BYTES;
use yumen_proxy::{Http3Identity, clock};
use yumen_store::{Revision, State};

use super::VARIABLE;
use super::channel::Channel;
use super::held::{Held, names};
use super::message::{FromServing, FromSuccessor, Hello, Offer, PROTOCOL, PROTOCOL_MIN, Ready};
use super::telling::{Before, Telling, show};
use crate::control::Control;
use crate::doors::Start;
use crate::known::Known;
use crate::reach::Hindrance;
use crate::sockets::{Passed, Sockets};
use crate::tls::ToldStaple;

/// Between two looks at whether this process shall end sooner than it would.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// For the process before to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// The connection with the process before.
pub(crate) struct Successor {
    channel: Channel,
    before: Before,
}

/// What the process before gives.
pub(crate) struct Received {
    pub(crate) sockets: Sockets,
    pub(crate) ticket_keys: Vec<[u8; TICKET_KEY_BYTES]>,
    pub(crate) http3_identity: Option<Http3Identity>,
    /// How this process comes to its store.
    pub(crate) start: Start,
    /// Whether the process before goes by what it is told of the configuration.
    pub(crate) follows: bool,
    /// Whether there are others before that one.
    pub(crate) outlives: bool,
    /// The newest revision that was in force everywhere.
    pub(crate) applied: Revision,
    /// What it knows of endpoints that the configuration only names.
    pub(crate) known: Known,
    /// What it shows of the status of certificates.
    pub(crate) staples: Vec<ToldStaple>,
}

/// What the process before is told of, and has a part in, until its last connection has ended.
pub(crate) struct Aftermath {
    pub(crate) carry: Arc<Carry>,
    pub(crate) held: Arc<Held>,
    pub(crate) control: Control,
    /// Whether it goes by what it is told of the configuration.
    pub(crate) follows: bool,
    /// How long those before it may go on where it ends without a word.
    pub(crate) outlived_for: Duration,
}

impl Received {
    /// Of the first process, which has sockets of the service manager's at most.
    pub(crate) fn of_nobody(sockets: Sockets) -> Received {
        Received {
            sockets,
            ticket_keys: Vec::new(),
            http3_identity: None,
            start: Start::First,
            follows: false,
            outlives: false,
            applied: Revision::default(),
            known: Known::default(),
            staples: Vec::new(),
        }
    }
}

impl Successor {
    /// The connection, if this process was started to take over.
    pub(crate) fn from_environment() -> anyhow::Result<Option<Successor>> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let connection = std::io::stdin().as_fd().try_clone_to_owned();
        let connection = connection.context("standard input is no connection to the process before")?;
        // What is started later must not hold the connection open.
        let nothing = std::fs::File::open("/dev/null").context("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing)?;
        Ok(Some(Successor::on(Channel::new(UnixStream::from(connection)))))
    }

    fn on(channel: Channel) -> Successor {
        Successor { channel, before: Before::default() }
    }

    /// Takes what the process before gives.
    pub(crate) fn receive(&self) -> anyhow::Result<Received> {
        let until = Instant::now() + ANSWER_WITHIN;
        let hello: Hello = self.channel.receive(Some(until)).context("nothing is handed over")?;
        if !(PROTOCOL_MIN..=PROTOCOL).contains(&hello.protocol) {
            bail!(
                "yumen {} hands over by protocol {}, and yumen {} knows {PROTOCOL_MIN} to {PROTOCOL}",
                hello.version,
                hello.protocol,
                env!("CARGO_PKG_VERSION")
            );
        }
        let offer: Offer = self.channel.receive(Some(until)).context("no sockets are handed over")?;
        let descriptors = self.channel.receive_descriptors(offer.sockets.len(), until);
        let descriptors = descriptors.context("the sockets do not come")?;
        let passed = offer.sockets.into_iter().zip(descriptors).map(|(label, descriptor)| Passed {
            label: Some(label),
            name: String::new(),
            socket: Socket::from(descriptor),
        });
        let sockets = Sockets::from_outside(passed.collect());
        let keys = offer.ticket_keys.iter().filter_map(|key| BASE64.decode(key).ok()?.try_into().ok());
        let http3_identity = offer.http3_identity.and_then(|(secret, generation)| {
            let secret = BASE64.decode(secret).ok()?.try_into().ok()?;
            Some(Http3Identity::following(secret, generation))
        });
        let start = Start::TakesOver { ended_file: offer.ended_file };
        let (follows, outlives, applied) = (offer.follows, offer.outlives, Revision(offer.applied));
        Ok(Received {
            sockets,
            ticket_keys: keys.collect(),
            http3_identity,
            start,
            follows,
            outlives,
            applied,
            known: Known::of(&offer.known),
            staples: offer.staples,
        })
    }

    /// Tells what comes next.
    pub(crate) fn does(&self, what: &str) {
        // A process before that has gone is noticed where something is wanted of it.
        let _ = self.channel.send(&FromSuccessor::Does(what.to_owned()));
    }

    /// Waits until the store can be opened.
    pub(crate) fn want_store(&self) -> anyhow::Result<()> {
        self.channel.send(&FromSuccessor::WantsStore)?;
        match self.channel.receive(Some(Instant::now() + ANSWER_WITHIN))? {
            FromServing::StoreIsFree => Ok(()),
            FromServing::StoreStays(reason) => bail!("the store stays with the process before: {reason}"),
            _ => bail!("the process before says something else than whether the store is free"),
        }
    }

    /// Says that this process could serve, and waits until it shall; what is known of limits and endpoints then
    /// is known here.
    pub(crate) fn ready(&self, problems: &[Problem], state: &State, carry: &Carry) -> anyhow::Result<()> {
        let errors = problems.iter().filter(|problem| problem.level == Level::Error);
        let last_good = errors.clone().filter(|problem| problem.last_good);
        let ready = Ready {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            last_good: last_good.map(|problem| problem.object.clone()).collect(),
            // Of what expires in this moment, either process says that it is not there any more.
            objects: Some(names(state, 0)),
            broken: errors.map(|problem| (problem.object.clone(), problem.message.clone())).collect(),
        };
        self.channel.send(&FromSuccessor::Ready(ready))?;
        match self.channel.receive(Some(Instant::now() + ANSWER_WITHIN))? {
            FromServing::Serve(told) => {
                carry.take_over(&told, clock::exact());
                Ok(())
            }
            _ => bail!("the process before says something else than to serve"),
        }
    }

    /// Says that this process serves, and waits until that is heard. A process before that has gone meanwhile
    /// leaves all to this one.
    pub(crate) fn serves(&self) -> anyhow::Result<()> {
        let _ = self.channel.send(&FromSuccessor::Serves);
        match self.channel.receive::<FromServing>(Some(Instant::now() + ANSWER_WITHIN)) {
            Ok(FromServing::TakenOver) => {}
            Ok(_) => bail!("the process before says something else than that it was heard"),
            Err(error) => tracing::warn!(%error, "the process before has gone without a word"),
        }
        Ok(())
    }

    /// Says that this process can be asked for the next upgrade. What connections of the old one count is counted
    /// here from now on, and what changes here changes there.
    pub(crate) fn settled(self: Arc<Self>, after: Aftermath) -> anyhow::Result<()> {
        let _ = self.channel.send(&FromSuccessor::Settled);
        let Aftermath { carry, held, control, follows, outlived_for } = after;
        let (hears, heard_by) = (self.clone(), control.clone());
        let hear = move || {
            let has_said_so = hears.hear_all(&carry, &heard_by);
            carry.go_on_alone();
            hears.before.has_ended();
            if !has_said_so {
                // Those before it hear of that in the same moment, and end what they have begun.
                std::thread::sleep(outlived_for);
            }
            heard_by
                .reach
                .note_hindrance(|all| *all = Hindrance::default(), |all| show(&heard_by.messages, all));
            heard_by.reach.go_on_alone();
            tracing::info!("the process before has ended");
        };
        std::thread::Builder::new().name("yumen-successor".into()).spawn(hear)?;
        if follows {
            let Control { messages, reach, .. } = control;
            let tell = move || {
                let (channel, before) = (&self.channel, &self.before);
                Telling { channel, before, held, reach, messages }.run();
            };
            std::thread::Builder::new().name("yumen-telling".into()).spawn(tell)?;
        }
        Ok(())
    }

    /// Hears the process before until its end; whether it said that those before it have ended as well.
    fn hear_all(&self, carry: &Carry, control: &Control) -> bool {
        let hinders = |note: &mut dyn FnMut(&mut Hindrance)| {
            control.reach.note_hindrance(note, |all| show(&control.messages, all));
        };
        let mut has_said_so = false;
        while let Ok(said) = self.channel.receive(None) {
            match said {
                FromServing::Counted(told) => carry.take_over(&told, clock::exact()),
                FromServing::InForce(broken) => {
                    let here = control.shown.broken();
                    let broken: Vec<String> = broken.into_iter().filter(|one| !here.contains(one)).collect();
                    hinders(&mut |all| all.broken_there.clone_from(&broken));
                    self.before.is_in_force();
                }
                FromServing::Followed(tellings) => self.before.has_followed(tellings, &control.reach),
                FromServing::WaitsFor(pid) => hinders(&mut |all| all.behind = pid),
                FromServing::Ended => has_said_so = true,
                _ => {}
            }
        }
        has_said_so
    }

    /// Says that the gateway is ending: the process before shall not stay for long either.
    pub(crate) fn ends(&self) {
        self.channel.send_last(&FromSuccessor::Ends);
    }

    /// Waits until the process before has ended, which hears through this one what changes. No longer than this once
    /// `is_hurried` says so.
    pub(crate) fn outlive(&self, hurried_ms: u64, is_hurried: impl Fn() -> bool) {
        let mut until = None;
        while !self.before.ends_within(LOOK_EVERY) {
            let now = Instant::now();
            if is_hurried() && *until.get_or_insert(now + Duration::from_millis(hurried_ms)) <= now {
                tracing::warn!("the process before does not end");
                return;
            }
        }
    }

    /// Says why this process does not take over.
    pub(crate) fn refuses(&self, error: &anyhow::Error) {
        let _ = self.channel.send(&FromSuccessor::Refuses(format!("{error:#}")));
    }
}

#[cfg(test)]
mod tests;
