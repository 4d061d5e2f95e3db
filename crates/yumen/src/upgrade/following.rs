//! The process that was taken over from, as to its configuration: it goes by what the one that serves holds.
//!
//! Knows how that is told and who puts it in force, not what it says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use yumen_config::Kind;
use yumen_store::{Key, Revision, State};

use super::held::Held;
use super::message::{Configured, Text};
use crate::control::{Control, Message, News, change_to};

/// What the process that serves says of its configuration, on its way into force here.
pub(super) struct Following {
    held: Arc<Held>,
    control: Control,
    texts: Vec<(Key, Option<Arc<str>>)>,
    is_whole: bool,
    stage: Stage,
}

/// How far the last of it has come.
enum Stage {
    /// It was said that all is in force.
    Idle,
    Compiling(Receiver<u64>),
    /// In force here; the processes before this one follow.
    Spreading(u64),
}

impl Following {
    pub(super) fn new(held: Arc<Held>, control: Control) -> Following {
        Following { held, control, texts: Vec::new(), is_whole: false, stage: Stage::Idle }
    }

    /// Takes a part of what is told; with the last one it goes to be put in force, all at once.
    pub(super) fn take(&mut self, told: Configured) {
        self.is_whole |= told.is_whole;
        self.texts.extend(told.objects.into_iter().filter_map(read));
        if told.is_more_to_come {
            return;
        }
        let mut texts = std::mem::take(&mut self.texts);
        let (before, revision) = (self.held.state(), Revision(told.revision));
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
                let differs = before.differences(&now);
                News::Changes(differs.map(|(key, _, after)| change_to(key, after)).collect(), revision)
            }
        };
        let (answer, answered) = channel();
        // The control thread ends with the process.
        let _ = self.control.messages.send(Message::Successor(news, answer));
        self.stage = Stage::Compiling(answered);
    }

    /// Before it is in force: the processes before this one are told what is held when they hear that something is.
    fn hold(&self, state: State) -> State {
        self.held.hold_instead(state.clone());
        state
    }

    /// Whether what was told last is on its way.
    pub(super) fn is_under_way(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// Waits for so long until what was told last serves every next request here and in all processes before; whether
    /// it has come to that now.
    pub(super) fn has_arrived_within(&mut self, within: Duration) -> bool {
        if let Stage::Compiling(answered) = &self.stage {
            match answered.recv_timeout(within) {
                Ok(number) => self.stage = Stage::Spreading(number),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.stage = Stage::Idle,
            }
        }
        let Stage::Spreading(number) = self.stage else { return false };
        let has_arrived = self.control.reach.is_everywhere_within(number, within);
        if has_arrived {
            self.stage = Stage::Idle;
        }
        has_arrived
    }
}

/// Nothing for a kind of object of a later version: here it would be in force no more than before.
fn read(Text(kind, id, json): Text) -> Option<(Key, Option<Arc<str>>)> {
    Some((Key::new(Kind::from_name(&kind)?, id), json.map(Arc::from)))
}
