//! Other objects of the configuration that the settings of a plugin reference.
//!
//! Knows no snapshot: an upstream is a slot, which the compiler fills in.

use std::sync::{Arc, OnceLock};

use yumen_config::resource::UpstreamSpec;
use yumen_config::schema::InvalidSettings;

use crate::proto::ProtoDescriptors;

/// The objects of a configuration during its compilation. Each lookup is recorded: when the object is added,
/// removed or changed, the plugin is built again.
pub trait ObjectLookup {
    /// Returns the proto object `id`, if it is in force.
    fn proto(&self, id: &str) -> Option<Arc<ProtoDescriptors>>;

    /// Returns the upstream object `id`, if it is in force.
    fn upstream(&self, id: &str) -> Option<UpstreamSlot>;

    /// Returns a slot for an upstream that is embedded in the settings at `path`.
    fn inline_upstream(&self, path: &str, written: UpstreamSpec) -> Result<UpstreamSlot, InvalidSettings>;

    /// Records that these settings should be equal in all plugins of this kind that use `name` at `path`.
    /// Objects with different settings come into force and are reported.
    fn agree(&self, _path: &str, _name: &str, _settings: &str) {}
}

/// An upstream that a plugin may select.
#[derive(Debug, Clone, Default)]
pub struct UpstreamSlot(Arc<OnceLock<u32>>);

impl UpstreamSlot {
    /// The upstream in this slot of the snapshot.
    pub fn known(slot: u32) -> UpstreamSlot {
        let cell = UpstreamSlot::default();
        cell.fill(slot);
        cell
    }

    /// Sets the slot, once.
    pub fn fill(&self, slot: u32) {
        // The first value stays; the compiler sets it once.
        let _ = self.0.set(slot);
    }

    /// The slot; `None` if the upstream does not exist.
    pub fn get(&self) -> Option<u32> {
        self.0.get().copied()
    }
}
