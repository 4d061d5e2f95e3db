//! Where resources live: the trait every store fulfils, the local stores behind it, and the watched file.
//!
//! A store keeps texts under keys and counts revisions; it must not know what the texts mean.

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

pub use embedded::{Embedded, EmbeddedStore};
pub use etcd::EtcdStore;
pub use fallback::{Fallback, Origin, open_or_last_good};
pub use file::{FileEvent, FileStore, WatchGuard};
pub use keyring::{KeyringError, open_keyring};
pub use last_good::{Former, Keeper, Version, Versions};
pub use memory::{Memory, MemoryStore};
pub use read_only::ReadOnly;
pub use recent::Retention;
pub use seal::{Keyring, Seal, SealError};
pub use state::{Authorship, Changed, Committed, Entry, Key, Revision, State};
pub use store::{Draft, Proposal, Store, StoreError, commit};
