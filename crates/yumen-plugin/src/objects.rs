//! Other objects of the configuration that a plugin refers to.
//!
//! An upstream is a slot, which the compiler fills.

use std::sync::{Arc, OnceLock};

use yumen_config::resource::UpstreamSpec;
use yumen_config::schema::InvalidSettings;

use crate::proto::ProtoDescriptors;
use crate::{FetchRequest, FetchedCell, OutboundProxy};

/// The objects of the configuration during its compilation. Look-ups are recorded: if their result changes,
/// the plugin is built again.
pub trait ObjectLookup {
    /// The proto object with this id, if it could be compiled.
    fn proto(&self, id: &str) -> Option<Arc<ProtoDescriptors>>;

    /// The upstream with this id, if it could be compiled.
    fn upstream(&self, id: &str) -> Option<UpstreamSlot>;

    /// Registers an inline upstream at `path` in the plugin's settings.
    fn inline_upstream(&self, path: &str, written: UpstreamSpec) -> Result<UpstreamSlot, InvalidSettings>;

    /// [`ObjectLookup::inline_upstream`] whose connections go through a proxy.
    fn inline_upstream_through(
        &self,
        path: &str,
        written: UpstreamSpec,
        proxy: Option<OutboundProxy>,
    ) -> Result<UpstreamSlot, InvalidSettings> {
        match proxy {
            None => self.inline_upstream(path, written),
            Some(_) => Err(InvalidSettings::at(path, "connections through a proxy are not supported here")),
        }
    }

    /// Requests a value from a server and returns its cell, which is empty until the value arrives. The plugin is built
    /// again when a value with [`FetchDelivery::Rebuild`](crate::FetchDelivery) changes.
    fn fetch(&self, _request: FetchRequest) -> Arc<FetchedCell> {
        Arc::default()
    }

    /// Reads a text file that the settings name, of at most 1 MiB. The file is read once per compilation of the object.
    fn read_file(&self, path: &str) -> Result<String, String> {
        Err(format!("the file {path} cannot be read here"))
    }

    /// Records the settings of a group, which should be equal wherever this plugin has `name` at `path`.
    /// Different settings are accepted and reported as a problem.
    fn agree(&self, _path: &str, _name: &str, _settings: &str) {}

    /// Reports a valid setting at `path` that has no effect, with the remedy.
    fn warn(&self, _path: &str, _message: String, _remedy: &str) {}
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
        // The compiler fills a slot once; a second value has no effect.
        let _ = self.0.set(slot);
    }

    /// The slot; `None` if the upstream does not exist.
    pub fn get(&self) -> Option<u32> {
        self.0.get().copied()
    }
}
