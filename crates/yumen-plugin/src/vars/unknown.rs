//! Names that no variable has, recorded while settings are compiled.
//!
//! All names pass through `Var::parse`, at any depth of a plugin's settings. Recording them there spares
//! every plugin from reporting them.

use std::cell::RefCell;
use std::collections::BTreeSet;

/// Names recorded so far.
type UnknownNames = BTreeSet<Box<str>>;

thread_local! {
    /// `None` if nothing records, as on workers.
    static NOTED: RefCell<Option<UnknownNames>> = const { RefCell::new(None) };
}

/// Runs `work` and returns the unknown names that it compiled, sorted.
pub fn unknown_names<T>(work: impl FnOnce() -> T) -> (T, BTreeSet<Box<str>>) {
    // [`VarInputs::of`] records inside another recording, which continues afterwards.
    let outer = NOTED.replace(Some(BTreeSet::new()));
    let done = work();
    (done, NOTED.replace(outer).unwrap_or_default())
}

pub(super) fn note(name: &str) {
    NOTED.with_borrow_mut(|recorded| {
        if let Some(names) = recorded {
            names.insert(name.into());
        }
    });
}
