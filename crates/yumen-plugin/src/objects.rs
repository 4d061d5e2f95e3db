//! Other objects of the configuration that a plugin's settings name, as building it sees them.
//!
//! Knows no snapshot: an upstream is a slot, filled in by whoever compiles.

use std::sync::{Arc, OnceLock};

use yumen_config::resource::UpstreamSpec;
use yumen_config::schema::InvalidSettings;

use crate::proto::ProtoDescriptors;

/// The objects there are while a configuration is compiled. Whatever was asked for is noted: when it comes,
/// goes or changes, the plugin is built again.
pub trait ObjectLookup {
    /// The proto object called `id`, unless none is in force.
    fn proto(&self, id: &str) -> Option<Arc<ProtoDescriptors>>;

    /// The upstream object called `id`, unless none is in force.
    fn upstream(&self, id: &str) -> Option<UpstreamSlot>;

    /// An upstream that stands in the plugin's settings at `path`.
    fn inline_upstream(&self, path: &str, written: UpstreamSpec) -> Result<UpstreamSlot, InvalidSettings>;

    /// Notes that these settings should be the same wherever plugins of this kind say `name` at `path`.
    /// Objects whose settings differ all come into force, and are told.
    fn agree(&self, _path: &str, _name: &str, _settings: &str) {}
}

/// An upstream a plugin may choose.
#[derive(Debug, Clone, Default)]
pub struct UpstreamSlot(Arc<OnceLock<u32>>);

impl UpstreamSlot {
    /// The upstream in this slot of the snapshot.
    pub fn known(slot: u32) -> UpstreamSlot {
        let cell = UpstreamSlot::default();
        cell.fill(slot);
        cell
    }

    /// Says which slot it is, once.
    pub fn fill(&self, slot: u32) {
        // The first one stands: nobody fills it twice.
        let _ = self.0.set(slot);
    }

    /// Which slot it is; `None` where there is no such upstream.
    pub fn get(&self) -> Option<u32> {
        self.0.get().copied()
    }
}
