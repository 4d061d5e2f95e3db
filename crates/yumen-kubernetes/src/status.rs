//! Status of objects: drafts of the translation, and their completion by facts of the process.
//!
//! A unit of translation writes a [`StatusDraft`]. [`finish`] turns it into the status to write: it decides the
//! conditions that depend on the process, and keeps entries of other controllers and transition times.

mod draft;
mod finish;
#[cfg(test)]
mod tests;

pub use draft::{ConditionDraft, ConditionState, ConditionValue, StatusDraft, StatusEntry, StatusPlace};
pub use finish::{ListenerFact, RuntimeFacts, finish};
