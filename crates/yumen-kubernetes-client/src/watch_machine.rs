//! The list and watch of one kind as a state machine without I/O: the caller performs steps and feeds results.
//!
//! The rules follow client-go's reflector and kube-runtime. The objects that outputs describe always equal a state
//! that the API server had, and that state never moves backwards.

use std::collections::VecDeque;

use crate::error::ApiError;
use crate::kind::WatchTarget;
use crate::object::{ObjectPage, RawObject, RawObjectChange, WatchLine};
use crate::watch_backoff::WatchBackoff;

/// Objects of one page.
const PAGE_OBJECTS: u32 = 500;
/// The time without a line after which a watch counts as dead: the bound by the API server is 290 s, plus a margin.
pub(crate) const SILENCE_MS: u64 = 320_000;
/// The longest pause before a denied or absent kind is tried again, in milliseconds.
const RETRY_MS: u64 = 30_000;
/// The longest pause, but for jitter of a second, while the API server cannot be reached, in milliseconds. A connection that
/// is refused costs it nothing, and after its return endpoints must not stay stale for half a minute.
const UNREACHABLE_MS: u64 = 5_000;
/// The time after a recheck in which an absent kind is tried every second: a definition is served some moments after it
/// was installed. In milliseconds.
const EAGER_MS: u64 = 10_000;
/// The time for which objects of an absent kind stay in force: its definition may be replaced. In milliseconds.
const ABSENT_KEPT_MS: u64 = 60_000;
/// A watch that ends before this time after its start counts as a failure, in milliseconds.
const WATCH_LIVED_MS: u64 = 1000;
/// Lists older than the known state that are refused in a row, about 25 s. A quorum read is never stale, so a further
/// one means that the cluster was restored from a backup.
const OLDER_LISTS_MAX: u32 = 5;

/// The next action of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchStep {
    /// Find the version to use; answer with [`WatchInput::Served`].
    Discover,
    /// Read one page; answer with [`WatchInput::Page`].
    List {
        /// The API version.
        version: String,
        /// Objects of the page; absent for all.
        limit: Option<u32>,
        /// The token of the previous page.
        continue_token: Option<String>,
    },
    /// Open a watch and feed its lines while [`WatchMachine::is_watching`], then the reason of its end.
    Watch {
        /// The API version.
        version: String,
        /// The position; the watch reports changes after it.
        resource_version: String,
    },
    /// Do nothing until a moment, or until a [`WatchInput::Recheck`].
    Pause {
        /// On the clock of the caller, in milliseconds.
        until_ms: u64,
    },
}

/// A result of a step.
#[derive(Debug)]
pub enum WatchInput<'i> {
    /// The first version of [`WatchTarget::versions`] that is served, if any.
    Served(Option<String>),
    /// The body of a page.
    Page(&'i [u8]),
    /// One line of the watch.
    Line(&'i [u8]),
    /// The API server ended the watch.
    Ended,
    /// The step failed.
    Failed(ApiError),
    /// The watch had no line for 320 s.
    Silent,
    /// A definition of the group changed: the version is looked up again.
    Recheck,
}

/// An event for the owner of the objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchOutput {
    /// All objects of the kind. Objects that are missing were deleted.
    Replaced(Vec<RawObject>),
    /// One change.
    Changed(RawObjectChange),
    /// The kind is not installed. Objects stay in force for 60 s; then an empty [`WatchOutput::Replaced`] follows.
    Absent,
    /// The identity may not read the kind; the text names the missing rule. Objects stay in force.
    Denied(String),
    /// A request failed and is repeated. Objects stay in force.
    Failed(ApiError),
}

/// A list whose pages are being collected.
#[derive(Debug, Default)]
struct ListProgress {
    objects: Vec<RawObject>,
    continue_token: Option<String>,
    /// Whether the list is read without pages, after a token expired.
    is_whole: bool,
}

#[derive(Debug)]
enum MachinePhase {
    Discover,
    List(ListProgress),
    Watch { since_ms: u64 },
}

/// The reason why a kind yields no objects, and the attempts since.
#[derive(Debug, Default)]
struct ObstacleState {
    current: WatchObstacle,
    /// Whether a failure was reported since the obstacle was: the obstacle is then reported again.
    has_failed: bool,
    tries: u32,
}

/// The reason why a kind yields no objects.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum WatchObstacle {
    #[default]
    Nothing,
    Denied,
    /// Since when; `is_emptied` once objects were withdrawn.
    Absent {
        since_ms: u64,
        is_emptied: bool,
    },
}

/// The state machine of one kind.
#[derive(Debug)]
pub struct WatchMachine {
    kind: WatchTarget,
    phase: MachinePhase,
    pause_until_ms: u64,
    obstacle: ObstacleState,
    api_version: Option<String>,
    /// The position of the watch; absent if a list is needed.
    position: Option<Box<str>>,
    /// The highest version that an output described.
    newest: u64,
    /// Lists in a row that were older than `newest`.
    older_lists: u32,
    /// Responses 404 in a row of a version that discovery had named.
    missing: u32,
    is_listed: bool,
    rechecked_ms: Option<u64>,
    /// The last moment at which the API server confirmed the state of the objects.
    confirmed_ms: Option<u64>,
    backoff: WatchBackoff,
    outputs: VecDeque<WatchOutput>,
}

impl WatchMachine {
    /// A machine that starts with discovery. `seed` varies the jitter of pauses.
    pub fn new(kind: WatchTarget, seed: u64) -> WatchMachine {
        WatchMachine {
            kind,
            phase: MachinePhase::Discover,
            pause_until_ms: 0,
            obstacle: ObstacleState::default(),
            api_version: None,
            position: None,
            newest: 0,
            older_lists: 0,
            missing: 0,
            is_listed: false,
            rechecked_ms: None,
            confirmed_ms: None,
            backoff: WatchBackoff::new(seed),
            outputs: VecDeque::new(),
        }
    }

    /// The kind.
    pub fn kind(&self) -> &WatchTarget {
        &self.kind
    }

    /// Whether lines of an open watch are still read.
    pub fn is_watching(&self) -> bool {
        matches!(self.phase, MachinePhase::Watch { .. })
    }

    /// Whether objects were listed at least once.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// The API version in use.
    pub fn api_version(&self) -> Option<&str> {
        self.api_version.as_deref()
    }

    /// The last moment at which a list, a line or a bookmark confirmed the objects, on the clock of the caller.
    pub fn confirmed_ms(&self) -> Option<u64> {
        self.confirmed_ms
    }

    /// The next step. Call it again after each result.
    pub fn next(&mut self, now_ms: u64) -> WatchStep {
        if now_ms < self.pause_until_ms {
            return WatchStep::Pause { until_ms: self.pause_until_ms };
        }
        let version = self.api_version.clone().unwrap_or_default();
        match &mut self.phase {
            MachinePhase::Discover => WatchStep::Discover,
            MachinePhase::List(progress) => WatchStep::List {
                version,
                limit: (!progress.is_whole).then_some(PAGE_OBJECTS),
                continue_token: progress.continue_token.clone(),
            },
            MachinePhase::Watch { since_ms } => {
                *since_ms = now_ms;
                let position = self.position.as_deref().unwrap_or_default();
                WatchStep::Watch { version, resource_version: position.to_owned() }
            }
        }
    }

    /// Takes a result and returns the events that follow from it, in order.
    pub fn take(&mut self, input: WatchInput<'_>, now_ms: u64) -> Vec<WatchOutput> {
        match input {
            WatchInput::Served(version) => {
                // The kind is back: a 404 of its list would be a passing one, and the time starts again.
                if let (Some(_), WatchObstacle::Absent { since_ms, is_emptied: false }) =
                    (&version, &mut self.obstacle.current)
                {
                    *since_ms = now_ms;
                }
                self.take_version(version, now_ms);
            }
            WatchInput::Page(text) => match ObjectPage::decode(text) {
                Ok(page) => self.take_page(page, now_ms),
                Err(cause) => {
                    self.restart(ApiError::Malformed(format!("list {}: {cause}", self.kind.plural)), now_ms)
                }
            },
            WatchInput::Line(text) => match WatchLine::decode(text) {
                Ok(line) => self.take_line(line, now_ms),
                // A list shows whether the object or the connection is broken.
                Err(cause) => {
                    self.restart(ApiError::Malformed(format!("watch {}: {cause}", self.kind.plural)), now_ms)
                }
            },
            WatchInput::Ended => self.take_end(now_ms),
            WatchInput::Silent => self.phase = MachinePhase::Discover,
            WatchInput::Failed(error) => self.take_failure(error, now_ms),
            WatchInput::Recheck => self.recheck(now_ms),
        }
        self.outputs.drain(..).collect()
    }

    fn take_version(&mut self, version: Option<String>, now_ms: u64) {
        let Some(version) = version else {
            self.missing = 0;
            self.mark_absent(now_ms);
            self.phase = MachinePhase::Discover;
            let is_eager = self.rechecked_ms.is_some_and(|at_ms| now_ms - at_ms < EAGER_MS);
            self.pause_until_ms = now_ms + if is_eager { 1000 } else { self.obstacle_pause_ms() };
            return;
        };
        if self.api_version.as_ref() != Some(&version) {
            // Objects of another version have other JSON, and a position belongs to one storage.
            self.api_version = Some(version);
            self.position = None;
        }
        self.phase = match self.position {
            Some(_) => MachinePhase::Watch { since_ms: now_ms },
            None => MachinePhase::List(ListProgress::default()),
        };
    }

    fn take_page(&mut self, page: ObjectPage, now_ms: u64) {
        let MachinePhase::List(progress) = &mut self.phase else { return };
        progress.objects.extend(page.objects);
        if page.continue_token.is_some() {
            progress.continue_token = page.continue_token;
            return;
        }
        let objects = std::mem::take(&mut progress.objects);
        let version = page.resource_version.parse::<u64>().ok();
        if version.is_some_and(|version| version < self.newest) && self.older_lists < OLDER_LISTS_MAX {
            self.older_lists += 1;
            let cause = format!("version {} is older than the known {}", page.resource_version, self.newest);
            return self.restart(ApiError::Malformed(format!("list {}: {cause}", self.kind.plural)), now_ms);
        }
        self.older_lists = 0;
        self.missing = 0;
        self.obstacle.current = WatchObstacle::Nothing;
        self.obstacle.tries = 0;
        self.newest = version.unwrap_or(0);
        self.position = Some(page.resource_version);
        self.is_listed = true;
        self.confirmed_ms = Some(now_ms);
        self.phase = MachinePhase::Watch { since_ms: now_ms };
        self.outputs.push_back(WatchOutput::Replaced(objects));
    }

    fn take_line(&mut self, line: WatchLine, now_ms: u64) {
        if !self.is_watching() {
            return;
        }
        match line {
            WatchLine::Change(change) => {
                let (RawObjectChange::Put(object) | RawObjectChange::Delete(object)) = &change;
                // Versions count within one storage. A change at or before the position was reported already: an API
                // server that restarted may repeat changes, and an old one would bring back a deleted object.
                if let Some(version) = object.version_number() {
                    if version <= self.newest {
                        return;
                    }
                    self.newest = version;
                }
                self.position = Some(object.resource_version.clone());
                self.outputs.push_back(WatchOutput::Changed(change));
            }
            WatchLine::Bookmark(version) => match version.parse::<u64>() {
                Ok(number) if number < self.newest => return,
                Ok(number) => {
                    self.newest = number;
                    self.position = Some(version);
                }
                Err(_) => self.position = Some(version),
            },
            WatchLine::Error { code, message } => {
                let message = format!("watch {}: {code}: {message}", self.kind.plural);
                let error = match code {
                    410 => ApiError::Gone(message),
                    429 => ApiError::Throttled { after_ms: 1000, message },
                    _ => ApiError::Refused { code, message },
                };
                return self.take_failure(error, now_ms);
            }
        }
        self.obstacle.current = WatchObstacle::Nothing;
        self.missing = 0;
        self.confirmed_ms = Some(now_ms);
    }

    fn take_end(&mut self, now_ms: u64) {
        let MachinePhase::Watch { since_ms } = self.phase else { return };
        // The version is looked up before each watch, so a change is seen without rights on definitions.
        self.phase = MachinePhase::Discover;
        if now_ms.saturating_sub(since_ms) < WATCH_LIVED_MS {
            self.pause_until_ms = now_ms + self.backoff.pause_ms(now_ms);
        }
    }

    fn take_failure(&mut self, error: ApiError, now_ms: u64) {
        match error {
            ApiError::Gone(_) => {
                // Tokens expire before a slow list ends; without pages there is no token.
                let is_whole =
                    matches!(&self.phase, MachinePhase::List(progress) if progress.continue_token.is_some());
                self.position = None;
                self.phase = MachinePhase::List(ListProgress { is_whole, ..ListProgress::default() });
                self.pause_until_ms = now_ms + self.backoff.pause_ms(now_ms);
            }
            ApiError::Denied(message) => self.take_denial(message, now_ms),
            ApiError::NotFound(_) => {
                self.missing += 1;
                self.phase = MachinePhase::Discover;
                self.pause_until_ms = now_ms + self.backoff.pause_ms(now_ms).min(UNREACHABLE_MS);
                // The first 404 may be a version that was just removed.
                if self.missing > 1 {
                    self.mark_absent(now_ms);
                }
            }
            ApiError::Throttled { after_ms, .. } => {
                // Its pause is the server's to choose: after an outage the own backoff is long, just when the storage starts.
                let own_ms = self.backoff.pause_ms(now_ms).min(UNREACHABLE_MS);
                self.pause_until_ms = now_ms + after_ms.max(own_ms);
                self.report_failure(error);
            }
            // The same request would be refused again; a list needs no position.
            ApiError::Refused { code, .. } if code < 500 => self.restart(error, now_ms),
            error => {
                let pause_ms = self.backoff.pause_ms(now_ms);
                let bound_ms = match error {
                    ApiError::Unreachable(_) => UNREACHABLE_MS + pause_ms % 1000,
                    _ => u64::MAX,
                };
                self.pause_until_ms = now_ms + pause_ms.min(bound_ms);
                self.report_failure(error);
            }
        }
    }

    fn take_denial(&mut self, message: String, now_ms: u64) {
        if matches!(self.phase, MachinePhase::Discover) {
            // Discovery may be denied where lists are granted: the versions are tried in order.
            let guess = self.kind.versions.get(self.missing as usize % self.kind.versions.len().max(1));
            let guess = self.api_version.clone().or_else(|| guess.cloned());
            return self.take_version(guess, now_ms);
        }
        // Where only lists are granted, the list every 30 s replaces the watch.
        self.position = None;
        self.phase = MachinePhase::Discover;
        // Short at first: an API server that starts denies rights that it grants once its rules are loaded.
        self.pause_until_ms = now_ms + self.obstacle_pause_ms();
        if std::mem::take(&mut self.obstacle.has_failed) || self.obstacle.current != WatchObstacle::Denied {
            self.obstacle.current = WatchObstacle::Denied;
            self.outputs.push_back(WatchOutput::Denied(message));
        }
    }

    /// The pause before a denied or absent kind is tried again: 1 s, doubled up to 30 s. It does not share the backoff of
    /// failures, which is long after an outage, just when the API server denies and lacks kinds for a moment.
    fn obstacle_pause_ms(&mut self) -> u64 {
        let pause_ms = (1000 << self.obstacle.tries.min(5)).min(RETRY_MS);
        self.obstacle.tries += 1;
        pause_ms
    }

    /// Lists again from the start after a pause.
    fn restart(&mut self, error: ApiError, now_ms: u64) {
        self.position = None;
        self.phase = MachinePhase::List(ListProgress::default());
        self.pause_until_ms = now_ms + self.backoff.pause_ms(now_ms);
        self.report_failure(error);
    }

    fn report_failure(&mut self, error: ApiError) {
        self.obstacle.has_failed = true;
        self.outputs.push_back(WatchOutput::Failed(error));
    }

    fn mark_absent(&mut self, now_ms: u64) {
        self.position = None;
        self.api_version = None;
        match self.obstacle.current {
            WatchObstacle::Absent { since_ms, is_emptied: false } if now_ms - since_ms >= ABSENT_KEPT_MS => {
                self.obstacle.current = WatchObstacle::Absent { since_ms, is_emptied: true };
                if self.is_listed {
                    self.outputs.push_back(WatchOutput::Replaced(Vec::new()));
                }
            }
            WatchObstacle::Absent { .. } => {
                if std::mem::take(&mut self.obstacle.has_failed) {
                    self.outputs.push_back(WatchOutput::Absent);
                }
            }
            _ => {
                self.obstacle.current = WatchObstacle::Absent { since_ms: now_ms, is_emptied: false };
                self.outputs.push_back(WatchOutput::Absent);
            }
        }
    }

    fn recheck(&mut self, now_ms: u64) {
        self.rechecked_ms = Some(now_ms);
        if self.is_watching() {
            self.phase = MachinePhase::Discover;
        }
        // Pauses after errors and Retry-After stay.
        if self.obstacle.current != WatchObstacle::Nothing {
            self.pause_until_ms = now_ms;
        }
    }
}

#[cfg(test)]
mod tests;
