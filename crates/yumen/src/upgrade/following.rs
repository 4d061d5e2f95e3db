//! The process that was taken over from, as to its configuration: it goes by what the one that serves holds.
//!
//! Knows how that is told and who puts it in force, not what it says.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use yumen_config::Kind;
use yumen_store::{Changed, Key, Revision, State};

use super::held::Held;
use super::message::{Configured, FromServing, Text};
use crate::control::{Control, Message, News};

/// The text of an object and its end; none where it is gone.
type Told = (Key, Option<(Arc<str>, Option<u64>)>);

/// What the process that serves says of its configuration, on its way into force here.
pub(super) struct Following {
    held: Arc<Held>,
    control: Control,
    texts: Vec<Told>,
    is_whole: bool,
    /// How much was told, to the last part.
    tellings: u64,
    /// The last of it, while it is not in force here.
    compiling: Option<Receiver<u64>>,
    /// Tellings in force here that the processes before this one have yet to follow, with the numbers of their
    /// publications.
    spreading: VecDeque<(u64, u64)>,
}

impl Following {
    pub(super) fn new(held: Arc<Held>, control: Control) -> Following {
        Following {
            held,
            control,
            texts: Vec::new(),
            is_whole: false,
            tellings: 0,
            compiling: None,
            spreading: VecDeque::new(),
        }
    }

    /// Takes a part of what is told; with the last one it goes to be put in force, all at once.
    pub(super) fn take(&mut self, told: Configured) {
        self.is_whole |= told.is_whole;
        self.texts.extend(told.objects.into_iter().filter_map(read));
        if told.is_more_to_come {
            return;
        }
        let mut texts = std::mem::take(&mut self.texts);
        // A process that ends has nothing to be followed any more.
        let before = self.held.state().unwrap_or_default();
        let revision = Revision(told.revision);
        let news = match std::mem::take(&mut self.is_whole) {
            true => {
                let there: BTreeSet<&Key> = texts.iter().map(|(key, _)| key).collect();
                let gone = before.entries().map(|(key, _)| key).filter(|key| !there.contains(key));
                let gone: Vec<_> = gone.map(|key| (key.clone(), None)).collect();
                texts.extend(gone);
                News::Whole(self.hold(before.with(revision, texts)))
            }
            false => {
                let now = self.hold(before.clone().with(revision, texts));
                let changed = |(key, before, after): (&Key, Option<&_>, Option<&_>)| Changed {
                    key: key.clone(),
                    before: before.cloned(),
                    after: after.cloned(),
                };
                News::Changes(before.differences(&now).map(changed).collect(), revision)
            }
        };
        let (answer, answered) = channel();
        // The control thread ends with the process.
        let _ = self.control.messages.send(Message::Successor(news, answer));
        self.tellings += 1;
        self.compiling = Some(answered);
    }

    /// Before it is in force: the processes before this one are told what is held when they hear that something is.
    fn hold(&self, state: State) -> State {
        self.held.hold_instead(state.clone());
        state
    }

    /// Whether something that was told is on its way.
    pub(super) fn is_under_way(&self) -> bool {
        self.compiling.is_some() || !self.spreading.is_empty()
    }

    /// Waits for so long until there is something to say of what is under way.
    pub(super) fn comes_within(&mut self, within: Duration) -> Option<FromServing> {
        if let Some(answered) = &self.compiling {
            match answered.recv_timeout(within) {
                Ok(number) => {
                    self.compiling = None;
                    self.spreading.push_back((self.tellings, number));
                    return Some(FromServing::InForce(self.control.shown.broken()));
                }
                Err(RecvTimeoutError::Timeout) => return self.has_spread_within(Duration::ZERO),
                Err(RecvTimeoutError::Disconnected) => self.compiling = None,
            }
        }
        self.has_spread_within(within)
    }

    fn has_spread_within(&mut self, within: Duration) -> Option<FromServing> {
        let (_, oldest) = *self.spreading.front()?;
        if !self.control.reach.is_everywhere_within(oldest, within) {
            return None;
        }
        let everywhere = self.control.reach.everywhere();
        let mut followed = 0;
        while let Some((telling, _)) = self.spreading.pop_front_if(|(_, number)| *number <= everywhere) {
            followed = telling;
        }
        Some(FromServing::Followed(followed))
    }
}

/// Nothing for a kind of object of a later version: here it would be in force no more than before.
fn read(Text { kind, id, json, expires_ms }: Text) -> Option<Told> {
    Some((Key::new(Kind::from_name(&kind)?, id), json.map(|json| (json.into(), expires_ms))))
}
