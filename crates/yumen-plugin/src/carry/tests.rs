//! What outlives a snapshot, and what is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Carry;

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
fn sweeping_forgets_only_what_nobody_holds() {
    let carry = Carry::default();
    assert!(carry.is_empty());
    let held = carry.keep("held", || 1u64);
    drop(carry.keep("dropped", || 2u64));
    assert_eq!(carry.len(), 2);
    carry.sweep();
    assert_eq!(carry.len(), 1);
    assert!(Arc::ptr_eq(&held, &carry.keep("held", || 3u64)));
}
