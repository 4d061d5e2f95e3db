//! The process that serves tells the one before what its configuration is, for as long as that has connections.
//!
//! Knows what differs and who has heard of it, not what it says.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use yumen_base::Problem;
use yumen_store::{Key, State};

use super::channel::Channel;
use super::held::Held;
use super::message::{Configured, FromSuccessor, Text};
use crate::control::{Message, Teller};
use crate::reach::Reach;

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
    /// How often it said that it has followed.
    followed: u64,
    has_ended: bool,
}

impl Before {
    pub(super) fn has_followed(&self) {
        self.heard().followed += 1;
        self.news.notify_all();
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

    /// Waits until it has followed so often, or has ended; `None` where neither came in time.
    fn follows_within(&self, times: u64, within: Duration) -> Option<bool> {
        let is_open = |heard: &mut Heard| !heard.has_ended && heard.followed < times;
        let waited = self.news.wait_timeout_while(self.heard(), within, is_open);
        let (heard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match heard.followed >= times {
            true => Some(true),
            false => heard.has_ended.then_some(false),
        }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    /// One that takes nothing any more may serve all the same: no revision is applied until it has ended.
    pub(super) fn run(&self) {
        let (mut told, mut known, mut times) = (None, 0, 0);
        while let Some(news) = self.reach.next_after(known) {
            let state = self.held.state();
            if !has_news(told.as_ref(), &state) {
                // Addresses, say: those it finds by itself.
                self.reach.note_everywhere(news);
            } else if self.tell(told.as_ref(), &state).is_ok() {
                times += 1;
                if !self.wait(times) {
                    return;
                }
                self.reach.note_everywhere(news);
            } else {
                // It hears the end, should it listen again, and ends by itself.
                self.channel.say_no_more();
                self.wait(u64::MAX);
                return;
            }
            (told, known) = (Some(state), news.0);
        }
    }

    /// Waits until the process before has followed; `false` where it has ended. One that takes long is told of meanwhile.
    fn wait(&self, times: u64) -> bool {
        if let Some(has_followed) = self.before.follows_within(times, FOLLOWED_WITHIN) {
            return has_followed;
        }
        let pid = self.channel.peer().map_or_else(String::new, |pid| format!(" {pid}"));
        let problem = Problem::warning(
            "node",
            "",
            format!(
                "the process before{pid}, which finishes what it has begun, does not take over what changes: its \
                 connections may be served by what was in force before"
            ),
        );
        self.show(vec![problem.hint("end it if that lasts")]);
        let has_followed = loop {
            if let Some(has_followed) = self.before.follows_within(times, Duration::from_secs(60)) {
                break has_followed;
            }
        };
        self.show(Vec::new());
        has_followed
    }

    fn show(&self, problems: Vec<Problem>) {
        // The control thread ends with the process.
        let _ = self.messages.send(Message::Told(Teller::Upgrade, problems));
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
        for (key, json) in news(told.unwrap_or(&nothing), state) {
            let json = json.map(|json| json.to_string());
            bytes += json.as_ref().map_or(0, String::len) + key.id.len();
            objects.push(Text(key.kind.name().to_owned(), key.id.to_string(), json));
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

/// The texts that differ; none where an object is gone.
fn news<'s>(told: &'s State, state: &'s State) -> impl Iterator<Item = (&'s Key, Option<&'s Arc<str>>)> {
    told.differences(state).filter_map(|(key, before, after)| {
        let (before, after) = (before.map(|entry| &entry.json), after.map(|entry| &entry.json));
        (before != after).then_some((key, after))
    })
}

#[cfg(test)]
mod tests;
