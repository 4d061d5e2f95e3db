//! State that outlives a snapshot: counters, health, balancer positions, found by name.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

type Key = (TypeId, Box<str>);

/// Named state. A name lives as long as some snapshot holds it.
#[derive(Default)]
pub struct Carry {
    kept: Mutex<HashMap<Key, Weak<dyn Any + Send + Sync>, foldhash::fast::RandomState>>,
}

impl Carry {
    /// The state under `name`, made now if no snapshot holds it.
    pub fn keep<T: Send + Sync + 'static>(&self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        let key = (TypeId::of::<T>(), Box::from(name));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let held = kept.get(&key).and_then(Weak::upgrade).and_then(|any| any.downcast::<T>().ok());
        if let Some(held) = held {
            return held;
        }
        let made = Arc::new(make());
        let weak: Weak<T> = Arc::downgrade(&made);
        kept.insert(key, weak);
        made
    }

    /// Forgets names that no snapshot holds any more.
    pub fn sweep(&self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, state| state.strong_count() > 0);
        if kept.capacity() > 4 * kept.len().max(64) {
            kept.shrink_to_fit();
        }
    }

    /// How many names are remembered.
    pub fn len(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Debug for Carry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carry").field("len", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests;
