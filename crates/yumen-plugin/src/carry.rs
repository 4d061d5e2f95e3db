//! State that outlives a snapshot: counters, health, balancer positions, found by name. Some of it outlives
//! the process too: it can be told to the one that takes over. Knows no such state itself.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::Value;
use yumen_base::Now;

type Key = (TypeId, Box<str>);
type Shared = Arc<dyn Any + Send + Sync>;

/// What was told, by name.
pub type ExportedState = HashMap<String, Value>;

/// State that the process which takes over goes on with.
///
/// What is told is a document of the type's own; members it does not know are another version's and are
/// passed over. Times in it are those of the machine's clocks.
pub trait PortableState: Send + Sync + 'static {
    /// All there is to tell; `Null` where a fresh one knows as much.
    fn tell(&self) -> Value;

    /// Goes on from what another process told. What was counted here meanwhile is kept.
    fn take_over(&self, told: &Value, now: Now);

    /// Whether what is counted here while both processes serve is told too.
    fn exports_while_draining(&self) -> bool {
        false
    }

    /// What has come between two tellings, for `take_over` to add. `Null` is nothing.
    fn since(&self, _before: &Value, _now: &Value) -> Value {
        Value::Null
    }

    /// The other process has ended: nothing more comes of it, and what it alone had is gone.
    fn go_on_alone(&self) {}
}

/// Named state. A name lives as long as some snapshot holds it.
#[derive(Default)]
pub struct Carry {
    kept: Mutex<HashMap<Key, CarriedEntry, foldhash::fast::RandomState>>,
}

struct CarriedEntry {
    state: Weak<dyn Any + Send + Sync>,
    /// How to see it as what can be told, if it can.
    portable: Option<AsPortable>,
}

type AsPortable = fn(Shared) -> Option<Arc<dyn PortableState>>;

fn as_portable<T: PortableState>(state: Shared) -> Option<Arc<dyn PortableState>> {
    let state: Arc<dyn PortableState> = state.downcast::<T>().ok()?;
    Some(state)
}

impl Carry {
    /// The state under `name`, made now if no snapshot holds it.
    pub fn keep<T: Send + Sync + 'static>(&self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        self.keep_as(name, make, None)
    }

    /// As [`Self::keep`], for what a process that takes over goes on with. Names are known across versions.
    pub fn get_or_create_portable<T: PortableState>(&self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        self.keep_as(name, make, Some(as_portable::<T>))
    }

    /// The state under `name`, if a snapshot holds it.
    pub fn held<T: Send + Sync + 'static>(&self, name: &str) -> Option<Arc<T>> {
        let key = (TypeId::of::<T>(), Box::from(name));
        self.kept().get(&key).and_then(|kept| kept.state.upgrade()).and_then(|any| any.downcast().ok())
    }

    fn keep_as<T: Send + Sync + 'static>(
        &self,
        name: &str,
        make: impl FnOnce() -> T,
        portable: Option<AsPortable>,
    ) -> Arc<T> {
        let key = (TypeId::of::<T>(), Box::from(name));
        let mut kept = self.kept();
        let held = kept.get(&key).and_then(|kept| kept.state.upgrade()).and_then(|any| any.downcast().ok());
        if let Some(held) = held {
            return held;
        }
        let made = Arc::new(make());
        let state: Weak<T> = Arc::downgrade(&made);
        kept.insert(key, CarriedEntry { state, portable });
        made
    }

    /// What a process that takes over goes on with.
    pub fn tell(&self) -> ExportedState {
        let told = self.portables().into_iter().map(|(name, state)| (name, state.tell()));
        told.filter(|(_, told)| !told.is_null()).collect()
    }

    /// What has come since `before` was told, and what is told now.
    pub fn export_since(&self, before: &ExportedState) -> (ExportedState, ExportedState) {
        let (mut since, mut told) = (ExportedState::new(), ExportedState::new());
        for (name, state) in self.portables().into_iter().filter(|(_, state)| state.exports_while_draining())
        {
            let (past, now) = (before.get(&name).unwrap_or(&Value::Null), state.tell());
            if past.is_null() && now.is_null() {
                continue;
            }
            let more = state.since(past, &now);
            if !more.is_null() {
                since.insert(name.clone(), more);
            }
            if !now.is_null() {
                told.insert(name, now);
            }
        }
        (since, told)
    }

    /// Goes on from what another process told. What has no such name here is forgotten.
    pub fn take_over(&self, told: &ExportedState, now: Now) {
        for (name, state) in self.portables() {
            if let Some(told) = told.get(&name) {
                state.take_over(told, now);
            }
        }
    }

    /// The process that was taken over from has ended.
    pub fn go_on_alone(&self) {
        self.portables().iter().for_each(|(_, state)| state.go_on_alone());
    }

    /// Held only while it is looked through: telling may take its time.
    fn portables(&self) -> Vec<(String, Arc<dyn PortableState>)> {
        let kept = self.kept();
        let portable = kept.iter().filter_map(|((_, name), kept)| {
            let state = kept.portable?(kept.state.upgrade()?)?;
            Some((name.to_string(), state))
        });
        portable.collect()
    }

    /// Forgets names that no snapshot holds any more.
    pub fn sweep(&self) {
        let mut kept = self.kept();
        kept.retain(|_, kept| kept.state.strong_count() > 0);
        if kept.capacity() > 4 * kept.len().max(64) {
            kept.shrink_to_fit();
        }
    }

    /// How many names are remembered.
    pub fn len(&self) -> usize {
        self.kept().len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Key, CarriedEntry, foldhash::fast::RandomState>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Carry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carry").field("len", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests;
