//! Where resources live: the trait every store fulfils, and the file store.
//!
//! A store keeps texts under keys and counts revisions; it must not know what the texts mean.

pub mod file;
pub mod starter;
pub mod store;

pub use file::{FileEvent, FileStore, WatchGuard};
pub use starter::ensure_starter;
pub use store::{Change, Entry, Listing, Revision, Store, StoreError, Write};
