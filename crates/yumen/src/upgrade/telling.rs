//! The process that serves tells the one before what its configuration is, for as long as that has connections.
//!
//! Knows what differs and who has heard of it, not what it says.

use std::collections::VecDeque;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use yumen_base::Problem;
use yumen_store::{Entry, Key, Revision, State};

use super::channel::Channel;
use super::held::Held;
use super::message::{Configured, FromSuccessor, Text};
use crate::control::{Message, Teller};
use crate::reach::{Hindrance, Reach};

/// Texts that travel together, so that what is counted is not kept waiting by a large configuration.
const TOGETHER_BYTES: usize = 1 << 20;
/// A process that has not followed by then is told of.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(5);

/// What the process before says of itself, for those who wait for it.
#[derive(Default)]
pub(super) struct Before {
    heard: Mutex<Heard>,
    news: Condvar,
}

#[derive(Default)]
struct Heard {
    /// How many tellings are in force there.
    in_force: u64,
    /// And in all processes before it.
    followed: u64,
    /// Publications here that are in force everywhere once so many tellings were followed.
    expected: VecDeque<(u64, (u64, Revision))>,
    has_ended: bool,
}

impl Before {
    pub(super) fn is_in_force(&self) {
        self.heard().in_force += 1;
        self.news.notify_all();
    }

    pub(super) fn has_followed(&self, tellings: u64, reach: &Reach) {
        let mut heard = self.heard();
        heard.followed = heard.followed.max(tellings);
        let mut last = None;
        while let Some((_, news)) = heard.expected.pop_front_if(|(needed, _)| *needed <= tellings) {
            last = Some(news);
        }
        last.into_iter().for_each(|news| reach.note_everywhere(news));
    }

    pub(super) fn has_ended(&self) {
        self.heard().has_ended = true;
        self.news.notify_all();
    }

    /// Waits for so long until it has ended; whether it has.
    pub(super) fn ends_within(&self, within: Duration) -> bool {
        let waited = self.news.wait_timeout_while(self.heard(), within, |heard| !heard.has_ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.has_ended
    }

    /// A publication is in force everywhere as soon as so many tellings were followed.
    fn expect(&self, tellings: u64, news: (u64, Revision), reach: &Reach) {
        let mut heard = self.heard();
        if heard.followed >= tellings {
            return reach.note_everywhere(news);
        }
        // Publications without news wait for the same telling: addresses that were found, say.
        heard.expected.pop_back_if(|(needed, _)| *needed == tellings);
        heard.expected.push_back((tellings, news));
    }

    /// Waits until so many tellings are in force there, or it has ended; `None` where neither came in time.
    fn serves_within(&self, tellings: u64, within: Duration) -> Option<bool> {
        let is_open = |heard: &mut Heard| !heard.has_ended && heard.in_force < tellings;
        let waited = self.news.wait_timeout_while(self.heard(), within, is_open);
        let (heard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match heard.in_force >= tellings {
            true => Some(true),
            false => heard.has_ended.then_some(false),
        }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says what hinders the processes before, where operators look.
pub(super) fn show(messages: &Sender<Message>, hindrance: &Hindrance) {
    let hangs = hindrance.waits_for().map(|pid| {
        // Zero where the system does not say.
        let pid = if pid > 0 { format!(" {pid}") } else { String::new() };
        let message = format!(
            "the process before{pid}, which finishes what it has begun, does not take over what changes: its \
             connections may be served by what was in force before"
        );
        Problem::warning("node", "", message).hint("end it if that lasts")
    });
    let broken = hindrance.broken_there.first().map(|first| {
        let count = hindrance.broken_there.len();
        let message = format!(
            "{count} objects cannot be used by the process before, the first is {first}: its connections are served \
             by what it had of them"
        );
        Problem::warning("node", "", message).hint("end it if that must not be")
    });
    // The control thread ends with the process.
    let _ = messages.send(Message::Told(Teller::Upgrade, hangs.into_iter().chain(broken).collect()));
}

/// Who is told, of what.
pub(super) struct Telling<'t> {
    pub(super) channel: &'t Channel,
    pub(super) before: &'t Before,
    pub(super) held: Arc<Held>,
    pub(super) reach: Arc<Reach>,
    pub(super) messages: Sender<Message>,
}

impl Telling<'_> {
    /// Tells of every publication until the process before has ended.
    ///
    /// One that takes nothing any more may serve all the same: no revision is applied until it has ended. One that
    /// waits for those before it is told on.
    pub(super) fn run(&self) {
        let (mut told, mut known, mut tellings) = (None, 0, 0);
        while let Some(news) = self.reach.next_after(known) {
            // This process ends: what it would say is not what is served.
            let Some(state) = self.held.state() else { return };
            // Addresses, say, are no news: it finds them by itself.
            if has_news(told.as_ref(), &state) {
                if self.tell(told.as_ref(), &state).is_err() {
                    // It hears the end, should it listen again, and ends by itself.
                    self.channel.say_no_more();
                    self.wait(u64::MAX);
                    return;
                }
                tellings += 1;
            }
            self.before.expect(tellings, news, &self.reach);
            if !self.wait(tellings) {
                return;
            }
            (told, known) = (Some(state), news.0);
        }
    }

    /// Waits until so many tellings are in force in the process before; `false` where it has ended. One that takes long
    /// is told of meanwhile.
    fn wait(&self, tellings: u64) -> bool {
        if let Some(serves) = self.before.serves_within(tellings, FOLLOWED_WITHIN) {
            return serves;
        }
        let pid = self.channel.peer().unwrap_or(0);
        self.hinders(|hindrance| hindrance.hangs = Some(pid));
        let serves = loop {
            if let Some(serves) = self.before.serves_within(tellings, Duration::from_secs(60)) {
                break serves;
            }
        };
        self.hinders(|hindrance| hindrance.hangs = None);
        serves
    }

    fn hinders(&self, note: impl FnOnce(&mut Hindrance)) {
        self.reach.note_hindrance(note, |hindrance| show(&self.messages, hindrance));
    }

    fn tell(&self, told: Option<&State>, state: &State) -> std::io::Result<()> {
        let nothing = State::default();
        let (mut objects, mut bytes) = (Vec::new(), 0);
        let say = |objects, is_more_to_come| {
            let (revision, is_whole) = (state.revision.0, told.is_none());
            self.channel.send(&FromSuccessor::Configured(Configured {
                revision,
                is_whole,
                is_more_to_come,
                objects,
            }))
        };
        for (key, after) in news(told.unwrap_or(&nothing), state) {
            let (json, expires_ms) = after.map(Entry::text_and_end).unzip();
            let json = json.map(|json| json.to_string());
            bytes += json.as_ref().map_or(0, String::len) + key.id.len();
            let (kind, id) = (key.kind.name().to_owned(), key.id.to_string());
            objects.push(Text { kind, id, json, expires_ms: expires_ms.flatten() });
            if bytes >= TOGETHER_BYTES {
                bytes = 0;
                say(std::mem::take(&mut objects), true)?;
            }
        }
        say(objects, false)
    }
}

/// Whether there is something to tell to somebody who was told this.
fn has_news(told: Option<&State>, state: &State) -> bool {
    told.is_none_or(|told| news(told, state).next().is_some())
}

/// What differs in text or end; none where an object is gone.
fn news<'s>(told: &'s State, state: &'s State) -> impl Iterator<Item = (&'s Key, Option<&'s Entry>)> {
    told.differences(state).filter_map(|(key, before, after)| {
        (before.map(Entry::text_and_end) != after.map(Entry::text_and_end)).then_some((key, after))
    })
}

#[cfg(test)]
mod tests;
