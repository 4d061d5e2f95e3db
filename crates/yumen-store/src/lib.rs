//! Where resources live: the trait every store fulfils, the engine of local stores, and the watched file.
//!
//! A store keeps texts under keys and counts revisions; it must not know what the texts mean.

pub mod engine;
pub mod file;
pub mod keyring;
pub mod memory;
pub mod read_only;
pub mod seal;
pub mod starter;
pub mod state;
pub mod store;

pub use file::{FileEvent, FileStore, WatchGuard};
pub use keyring::{KeyringError, open_keyring};
pub use memory::{Memory, MemoryStore};
pub use read_only::ReadOnly;
pub use seal::{Keyring, Seal, SealError};
pub use starter::ensure_starter;
pub use state::{Authorship, Changed, Committed, Entry, Key, Revision, State};
pub use store::{Draft, Proposal, Store, StoreError, commit};
