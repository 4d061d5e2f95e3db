//! State across snapshots and processes, and its removal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde_json::Value;
use yumen_base::Now;

use super::{Carry, PortableState};

#[test]
fn a_name_leads_to_the_same_state_as_long_as_someone_holds_it() {
    let carry = Carry::default();
    let first = carry.keep("limits/1", || AtomicU64::new(5));
    first.store(7, Relaxed);
    let second = carry.keep("limits/1", || AtomicU64::new(5));
    assert!(Arc::ptr_eq(&first, &second));
    drop((first, second));
    let third = carry.keep("limits/1", || AtomicU64::new(5));
    assert_eq!(third.load(Relaxed), 5, "nobody held it, so it begins anew");
}

#[test]
fn names_and_types_are_kept_apart() {
    let carry = Carry::default();
    let number = carry.keep("a", || 1u64);
    let text = carry.keep("a", || "one");
    let other = carry.keep("b", || 2u64);
    assert_eq!((*number, *text, *other), (1, "one", 2));
    assert_eq!(carry.len(), 3);
}

#[test]
fn sweeping_removes_only_unreferenced_state() {
    let carry = Carry::default();
    assert!(carry.is_empty());
    let shared = carry.keep("held", || 1u64);
    drop(carry.keep("dropped", || 2u64));
    assert_eq!(carry.len(), 2);
    carry.sweep();
    assert_eq!(carry.len(), 1);
    assert!(Arc::ptr_eq(&shared, &carry.keep("held", || 3u64)));
}

/// A counter that also exports changes during the drain.
#[derive(Default)]
struct Count(AtomicU64);

impl PortableState for Count {
    fn export(&self) -> Value {
        match self.0.load(Relaxed) {
            0 => Value::Null,
            count => count.into(),
        }
    }

    fn take_over(&self, exported: &Value, _now: Now) {
        self.0.fetch_add(exported.as_u64().unwrap_or(0), Relaxed);
    }

    fn exports_while_draining(&self) -> bool {
        true
    }

    fn since(&self, before: &Value, now: &Value) -> Value {
        match now.as_u64().unwrap_or(0) - before.as_u64().unwrap_or(0) {
            0 => Value::Null,
            more => more.into(),
        }
    }
}

#[test]
fn exported_state_is_continued() {
    let (old, new) = (Carry::default(), Carry::default());
    let counts = ["a", "b"].map(|name| old.get_or_create_portable(name, Count::default));
    let _not_told = old.keep("c", || 1u64);
    counts[0].0.store(6, Relaxed);
    let mut exported = old.export();
    assert_eq!(exported.keys().collect::<Vec<_>>(), ["a"], "what is as a fresh one is not exported");

    let taken = new.get_or_create_portable("a", Count::default);
    new.take_over(&exported, Now::default());
    assert_eq!(taken.0.load(Relaxed), 6);

    for (more, expected) in [(2, 8), (0, 8), (1, 9)] {
        counts[0].0.fetch_add(more, Relaxed);
        let (since, now) = old.export_since(&exported);
        assert_eq!(since.is_empty(), more == 0);
        new.take_over(&since, Now::default());
        assert_eq!(taken.0.load(Relaxed), expected);
        exported = now;
    }
}
