//! Configuration stores: the [`Store`] trait, the file, memory, embedded and etcd stores, and the last good
//! state.
//!
//! A store keeps texts under keys and counts revisions; it does not interpret the texts.

mod directory;
pub mod embedded;
pub mod engine;
pub mod etcd;
pub mod fallback;
pub mod file;
pub mod keyring;
pub mod last_good;
pub mod memory;
pub mod read_only;
mod recent;
pub mod seal;
pub mod starter;
pub mod state;
pub mod store;
#[cfg(test)]
mod test_kit;

pub use embedded::{EmbeddedMedium, EmbeddedStore};
pub use etcd::EtcdStore;
pub use fallback::{FallbackStore, StateOrigin, open_or_last_good};
pub use file::{FileEvent, FileStore, WatchGuard};
pub use keyring::{KeyringError, derive_keys, open_keyring};
pub use last_good::{FormerState, LastGoodTask, LastGoodVersion, LastGoodVersions, load_last_good};
pub use memory::{MemoryMedium, MemoryStore};
pub use read_only::ReadOnlyStore;
pub use recent::HistoryRetention;
pub use seal::{Keyring, SealError, TextSeal};
pub use state::{Authorship, EntryChange, ResourceKey, Revision, StoreCommit, StoreEntry, StoreState};
pub use store::{Draft, Proposal, Store, StoreError, commit};
