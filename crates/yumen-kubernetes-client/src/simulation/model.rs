//! A model of one kind on an API server: versions, history, compaction, pages, installed versions.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::error::ApiError;

/// Objects by name, each with the version of its last change.
pub(super) type ObjectVersions = BTreeMap<String, u64>;

/// Different names. Few, so that names are deleted and created again.
const NAMES: u64 = 9;
/// The largest page, below the limit of the machine: an API server may return less.
const PAGE: usize = 3;

/// Xorshift (Marsaglia).
pub(super) struct SimulationRandom(u64);

impl SimulationRandom {
    pub(super) fn new(seed: u64) -> SimulationRandom {
        let mut random = SimulationRandom((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.below(2);
        random
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    pub(super) fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

struct ModelEvent {
    version: u64,
    at_ms: u64,
    kind: &'static str,
    name: String,
    /// The state after the event.
    state: ObjectVersions,
}

pub(super) struct ModelServer {
    version: u64,
    /// All events; `compacted` is the start of the part that a new watch may read.
    events: Vec<ModelEvent>,
    objects: ObjectVersions,
    initial: ObjectVersions,
    compacted: u64,
    installed: Option<&'static str>,
    stale_lists: u32,
}

impl ModelServer {
    pub(super) fn new(random: &mut SimulationRandom) -> ModelServer {
        let version = 1 + random.below(1000);
        let mut server = ModelServer {
            version,
            events: Vec::new(),
            objects: ObjectVersions::new(),
            initial: ObjectVersions::new(),
            compacted: version,
            installed: (!random.one_in(8)).then_some("v1"),
            stale_lists: 0,
        };
        for _ in 0..random.below(12) {
            server.mutate(random, 0);
        }
        server
    }

    pub(super) fn objects(&self) -> &ObjectVersions {
        &self.objects
    }

    pub(super) fn installed(&self) -> Option<&'static str> {
        self.installed
    }

    pub(super) fn is_installed(&self) -> bool {
        self.installed.is_some()
    }

    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// The objects as of a version.
    pub(super) fn state_at(&self, version: u64) -> &ObjectVersions {
        let after = self.events.partition_point(|event| event.version <= version);
        after.checked_sub(1).map_or(&self.initial, |index| &self.events[index].state)
    }

    /// Creates, changes or deletes one object.
    pub(super) fn mutate(&mut self, random: &mut SimulationRandom, now_ms: u64) {
        if !self.is_installed() {
            return;
        }
        let name = format!("o{}", random.below(NAMES));
        let kind = match self.objects.contains_key(&name) {
            true if random.below(5) < 2 => "DELETED",
            true => "MODIFIED",
            false => "ADDED",
        };
        // Other kinds use versions too.
        self.version += random.below(4);
        self.record(kind, name, now_ms);
    }

    fn record(&mut self, kind: &'static str, name: String, at_ms: u64) {
        self.version += 1;
        if kind == "DELETED" {
            self.objects.remove(&name);
        } else {
            self.objects.insert(name.clone(), self.version);
        }
        self.events.push(ModelEvent {
            version: self.version,
            at_ms,
            kind,
            name,
            state: self.objects.clone(),
        });
    }

    /// Forgets history up to a random version.
    pub(super) fn compact(&mut self, random: &mut SimulationRandom) {
        let span = self.version - self.compacted + 1;
        self.compacted += random.below(span);
    }

    /// Forgets all history but the newest state. Tokens are older, because other kinds use versions too.
    pub(super) fn expire_tokens(&mut self) {
        self.version += 1;
        self.compacted = self.version;
    }

    /// Removes the definition, after the objects.
    pub(super) fn uninstall(&mut self, now_ms: u64) {
        let names: Vec<String> = self.objects.keys().cloned().collect();
        for name in names {
            self.record("DELETED", name, now_ms);
        }
        self.installed = None;
    }

    /// Serves the kind in a version; returns whether that is a change.
    pub(super) fn install(&mut self, version: &'static str) -> bool {
        let was = self.installed.replace(version);
        was != Some(version)
    }

    /// One page. With `stale`, a first page comes from an older state, but never from the fourth in a row on.
    pub(super) fn list(
        &mut self,
        version: &str,
        limit: Option<u32>,
        token: Option<&str>,
        stale: Option<&mut SimulationRandom>,
    ) -> Result<String, ApiError> {
        if self.installed != Some(version) {
            return Err(ApiError::NotFound(String::new()));
        }
        let (snapshot, offset) = match token {
            Some(token) => {
                let (snapshot, offset) = token.split_once(':').expect("tokens are ours");
                (snapshot.parse().expect("tokens are ours"), offset.parse().expect("tokens are ours"))
            }
            None => (self.first_version(stale), 0),
        };
        if snapshot < self.compacted && token.is_some() {
            return Err(ApiError::Gone(String::new()));
        }
        let state = self.state_at(snapshot);
        let size = limit.map_or(usize::MAX, |limit| PAGE.min(limit as usize));
        let page: Vec<_> = state.iter().skip(offset).take(size).collect();
        let end = offset + page.len();
        let next = if end < state.len() { format!("{snapshot}:{end}") } else { String::new() };
        let items: Vec<String> = page.iter().map(|(name, version)| object(name, **version)).collect();
        let items = items.join(",");
        Ok(format!(
            r#"{{"metadata":{{"resourceVersion":"{snapshot}","continue":"{next}"}},"items":[{items}]}}"#
        ))
    }

    fn first_version(&mut self, stale: Option<&mut SimulationRandom>) -> u64 {
        match stale {
            Some(random) if self.stale_lists < 3 => {
                self.stale_lists += 1;
                self.version - random.below((self.version - self.compacted).min(20) + 1)
            }
            _ => {
                self.stale_lists = 0;
                self.version
            }
        }
    }

    /// The first event after a version that happened at or before a moment, as a line.
    pub(super) fn next_line(&self, after: u64, seen_ms: u64) -> Option<(u64, String)> {
        let index = self.events.partition_point(|event| event.version <= after);
        let event = self.events.get(index).filter(|event| event.at_ms <= seen_ms)?;
        Some((event.version, line(event)))
    }

    /// An event at or before a version, as a line.
    pub(super) fn old_line(&self, until: u64, random: &mut SimulationRandom) -> Option<String> {
        let count = self.events.partition_point(|event| event.version <= until);
        (count > 0).then(|| line(&self.events[random.below(count as u64) as usize]))
    }

    /// The newest version if all events were sent, else the one of the last event that was.
    pub(super) fn bookmark(&self, cursor: u64) -> String {
        let is_complete = self.events.last().is_none_or(|event| event.version <= cursor);
        let version = if is_complete { self.version } else { cursor };
        format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{version}"}}}}}}"#)
    }
}

fn line(event: &ModelEvent) -> String {
    let mut text = format!(r#"{{"type":"{}","object":"#, event.kind);
    // Writing to a String does not fail.
    let _ = write!(text, "{}}}", object(&event.name, event.version));
    text
}

fn object(name: &str, version: u64) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","uid":"u","resourceVersion":"{version}","managedFields":[{{"f":"}}"}}]}},"spec":{{}}}}"#
    )
}
