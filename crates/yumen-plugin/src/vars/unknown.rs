//! Unknown names of variables, collected while settings are parsed.
//!
//! Every name passes `Var::parse`, however deep in the settings of a plugin it is. Collecting names there
//! needs no code in plugins.

use std::cell::RefCell;
use std::collections::BTreeSet;

/// Names collected so far.
type UnknownNames = BTreeSet<Box<str>>;

thread_local! {
    /// `None` outside of a collection, as on workers.
    static NOTED: RefCell<Option<UnknownNames>> = const { RefCell::new(None) };
}

/// Runs `work` and returns the unknown names that it parsed, in order.
pub fn unknown_names<T>(work: impl FnOnce() -> T) -> (T, BTreeSet<Box<str>>) {
    let outer = NOTED.replace(Some(BTreeSet::new()));
    let done = work();
    (done, NOTED.replace(outer).unwrap_or_default())
}

pub(super) fn note(name: &str) {
    NOTED.with_borrow_mut(|noted| {
        if let Some(names) = noted {
            names.insert(name.into());
        }
    });
}
