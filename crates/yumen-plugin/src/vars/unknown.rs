//! Names that no variable has, noted while settings are understood.
//!
//! All of them come past `Var::parse`, however deep in a plugin's settings they stand. Noting them there spares every
//! plugin from telling them, and none can forget to.

use std::cell::RefCell;
use std::collections::BTreeSet;

/// Names noted so far.
type UnknownNames = BTreeSet<Box<str>>;

thread_local! {
    /// `None` where nobody asks, as on workers.
    static NOTED: RefCell<Option<UnknownNames>> = const { RefCell::new(None) };
}

/// Does `work` and tells which names in what it understood no variable has, in order.
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
