//! Carried state, found by name: counters, health, balancer positions. It outlives snapshots, and portable
//! state is exported to the successor in a handover.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::Value;
use yumen_base::Now;

type Key = (TypeId, Box<str>);
type Shared = Arc<dyn Any + Send + Sync>;

/// Exported state by name.
pub type ExportedState = HashMap<String, Value>;

/// State that a predecessor exports to its successor.
///
/// The format belongs to the type. Unknown members come from another version and are ignored. Times are those of
/// the machine's clocks.
pub trait PortableState: Send + Sync + 'static {
    /// The complete state; `Null` if it equals a new one.
    fn export(&self) -> Value;

    /// Continues from exported state. Counts made in this process meanwhile are kept.
    fn take_over(&self, exported: &Value, now: Now);

    /// Whether counts of a draining predecessor are exported until it exits.
    fn exports_while_draining(&self) -> bool {
        false
    }

    /// The difference between two exports, for `take_over` to add; `Null` for no difference.
    fn since(&self, _before: &Value, _now: &Value) -> Value {
        Value::Null
    }

    /// The predecessor has exited: its share of the state ends.
    fn go_on_alone(&self) {}
}

/// The registry of carried state. An entry lives as long as a snapshot references it.
#[derive(Default)]
pub struct Carry {
    entries: Mutex<HashMap<Key, CarriedEntry, foldhash::fast::RandomState>>,
}

struct CarriedEntry {
    state: Weak<dyn Any + Send + Sync>,
    /// Converts the state into portable state, if its type supports that.
    portable: Option<AsPortable>,
}

type AsPortable = fn(Shared) -> Option<Arc<dyn PortableState>>;

fn as_portable<T: PortableState>(state: Shared) -> Option<Arc<dyn PortableState>> {
    let state: Arc<dyn PortableState> = state.downcast::<T>().ok()?;
    Some(state)
}

impl Carry {
    /// The state under `name`, created if no snapshot references one.
    pub fn keep<T: Send + Sync + 'static>(&self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        self.keep_as(name, make, None)
    }

    /// [`Self::keep`] for portable state. Its name must be stable across versions.
    pub fn get_or_create_portable<T: PortableState>(&self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        self.keep_as(name, make, Some(as_portable::<T>))
    }

    /// The state under `name`, if a snapshot references one.
    pub fn get_shared<T: Send + Sync + 'static>(&self, name: &str) -> Option<Arc<T>> {
        let key = (TypeId::of::<T>(), Box::from(name));
        self.entries().get(&key).and_then(|entry| entry.state.upgrade()).and_then(|any| any.downcast().ok())
    }

    fn keep_as<T: Send + Sync + 'static>(
        &self,
        name: &str,
        make: impl FnOnce() -> T,
        portable: Option<AsPortable>,
    ) -> Arc<T> {
        // The type is part of the key, so that the downcast of a found state succeeds.
        let key = (TypeId::of::<T>(), Box::from(name));
        let mut entries = self.entries();
        let existing =
            entries.get(&key).and_then(|entry| entry.state.upgrade()).and_then(|any| any.downcast().ok());
        if let Some(existing) = existing {
            return existing;
        }
        // Under the lock, so that two builders cannot create the state twice.
        let made = Arc::new(make());
        let state: Weak<T> = Arc::downgrade(&made);
        entries.insert(key, CarriedEntry { state, portable });
        made
    }

    /// Exports all portable state.
    pub fn export(&self) -> ExportedState {
        let exported = self.portables().into_iter().map(|(name, state)| (name, state.export()));
        exported.filter(|(_, exported)| !exported.is_null()).collect()
    }

    /// Differences since the export `before`, and the state now.
    pub fn export_since(&self, before: &ExportedState) -> (ExportedState, ExportedState) {
        let (mut since, mut exported) = (ExportedState::new(), ExportedState::new());
        for (name, state) in self.portables().into_iter().filter(|(_, state)| state.exports_while_draining())
        {
            let (past, now) = (before.get(&name).unwrap_or(&Value::Null), state.export());
            if past.is_null() && now.is_null() {
                continue;
            }
            let more = state.since(past, &now);
            if !more.is_null() {
                since.insert(name.clone(), more);
            }
            if !now.is_null() {
                exported.insert(name, now);
            }
        }
        (since, exported)
    }

    /// Continues from exported state. Names that do not exist here are ignored.
    pub fn take_over(&self, exported: &ExportedState, now: Now) {
        for (name, state) in self.portables() {
            if let Some(exported) = exported.get(&name) {
                state.take_over(exported, now);
            }
        }
    }

    /// The predecessor has exited.
    pub fn go_on_alone(&self) {
        self.portables().iter().for_each(|(_, state)| state.go_on_alone());
    }

    /// Clones the references, so that the lock is not held during an export.
    fn portables(&self) -> Vec<(String, Arc<dyn PortableState>)> {
        let entries = self.entries();
        let portable = entries.iter().filter_map(|((_, name), entry)| {
            let state = entry.portable?(entry.state.upgrade()?)?;
            Some((name.to_string(), state))
        });
        portable.collect()
    }

    /// Removes names that no snapshot references.
    pub fn sweep(&self) {
        let mut entries = self.entries();
        entries.retain(|_, entry| entry.state.strong_count() > 0);
        // Returns memory after a large configuration was replaced by a small one.
        if entries.capacity() > 4 * entries.len().max(64) {
            entries.shrink_to_fit();
        }
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.entries().len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Key, CarriedEntry, foldhash::fast::RandomState>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Carry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carry").field("len", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests;
