//! Inputs that plugins are built from beside their settings: protos and upstreams that the settings name, upstreams
//! inside the settings, fetched values.
//!
//! Knows no concrete plugin. A plugin asks for objects while it is built; its owner is staged again when they change.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use yumen_base::Problem;
use yumen_config::resource as config;
use yumen_config::{InvalidSettings, Kind, decode};
use yumen_plugin::proto::ProtoDescriptors;
use yumen_plugin::{FetchRequest, FetchedCell, ObjectLookup, OutboundProxy, UpstreamSlot};

use super::linker::LinkQueue;
use super::names::ObjectName;
use super::plugins::PluginBuilder;
use super::tables::{AgreementHash, AgreementKey, ReferenceGraph, RequestedFetch, SettingsAgreements};
use super::upstream::through_proxy;
use super::{Compiler, StageResult, invalid};
use crate::upstream::UpstreamTunnel;

/// The text of an upstream inside the settings of a plugin.
#[derive(Debug, Clone)]
pub(super) struct InlineSource {
    pub(super) spec: config::UpstreamSpec,
    /// The server behind the endpoint, if that is a proxy.
    pub(super) tunnel: Option<Arc<UpstreamTunnel>>,
}

/// An upstream inside the settings of a plugin.
#[derive(Debug, Clone)]
struct InlineUpstream {
    /// The path in the object.
    path: String,
    source: InlineSource,
    /// The plugin's handle, filled when the upstream is placed.
    slot: UpstreamSlot,
}

/// Objects that the plugins of one object asked for while they were built.
#[derive(Debug, Default)]
struct PluginDependencies {
    names: BTreeSet<ObjectName>,
    inline: Vec<InlineUpstream>,
    /// Slots of named upstreams.
    slots: Vec<u32>,
    agreements: Vec<(AgreementKey, AgreementHash)>,
    fetches: Vec<RequestedFetch>,
}

/// The objects that plugins in force were built from.
#[derive(Debug, Default)]
pub(super) struct PluginBindings {
    /// Dependencies of the object that is being staged. [`Compiler::bind`] or [`PluginBindings::discard_requests`]
    /// empties it before the next object. Plugins ask through a shared reference, hence the cell.
    requested: RefCell<PluginDependencies>,
    /// Objects by the objects that their plugins name.
    users: ReferenceGraph,
    /// The inverse of `users`.
    uses: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    /// Slots that the plugins of an object know, each once.
    slots_of: HashMap<ObjectName, Vec<u32>>,
    /// Upstreams inside settings, by a name of their own.
    inline: HashMap<ObjectName, InlineSource>,
    /// The names of those by the object with the settings.
    inline_of: HashMap<ObjectName, Vec<ObjectName>>,
    agreements: SettingsAgreements,
}

impl PluginBindings {
    /// The upstream of this name inside the settings of a plugin.
    pub(super) fn inline(&self, name: &ObjectName) -> Option<&InlineSource> {
        self.inline.get(name)
    }

    pub(super) fn agreements(&self) -> &SettingsAgreements {
        &self.agreements
    }

    /// Forgets the requests of plugins that were built on trial.
    pub(super) fn discard_requests(&self) {
        self.requested.take();
    }

    /// Registers a fetched value for the object that is being staged.
    pub(super) fn request_fetch(&self, fetch: RequestedFetch) {
        self.requested.borrow_mut().fetches.push(fetch);
    }

    /// Whether anything is registered for an object.
    fn has(&self, name: &ObjectName) -> bool {
        self.uses.contains_key(name) || self.inline_of.contains_key(name)
    }

    fn add_uses(&mut self, name: &ObjectName, used: BTreeSet<ObjectName>) {
        for on in used {
            self.users.add(on.clone(), name);
            self.uses.entry(name.clone()).or_default().insert(on);
        }
    }

    fn remove_uses(&mut self, name: &ObjectName) {
        self.users.remove_all(self.uses.remove(name).into_iter().flatten(), name);
    }
}

/// Looks up objects for the plugin called `plugin` of `owner`.
pub(super) struct CompilerObjects<'c> {
    pub(super) builder: PluginBuilder<'c>,
    pub(super) owner: &'c ObjectName,
    pub(super) plugin: &'c str,
    /// Warnings of the plugin about its settings.
    pub(super) warnings: RefCell<Vec<Problem>>,
}

impl CompilerObjects<'_> {
    /// Registers a request, whether the object exists or not: the plugin is built again when it appears.
    fn note(&self, name: ObjectName) {
        self.builder.bindings.requested.borrow_mut().names.insert(name);
    }
}

impl ObjectLookup for CompilerObjects<'_> {
    fn proto(&self, id: &str) -> Option<Arc<ProtoDescriptors>> {
        self.note(ObjectName::new(Kind::Protos, id));
        self.builder.staged.protos.get(id).cloned()
    }

    fn upstream(&self, id: &str) -> Option<UpstreamSlot> {
        let name = ObjectName::new(Kind::Upstreams, id);
        let slot = self.builder.upstreams.slots.slot_of(&name);
        // Before the lookup can fail: the object is staged again when the upstream appears.
        self.note(name);
        let slot = slot?.0;
        self.builder.bindings.requested.borrow_mut().slots.push(slot);
        Some(UpstreamSlot::known(slot))
    }

    fn inline_upstream(
        &self,
        path: &str,
        written: config::UpstreamSpec,
    ) -> Result<UpstreamSlot, InvalidSettings> {
        self.inline_upstream_through(path, written, None)
    }

    fn inline_upstream_through(
        &self,
        path: &str,
        written: config::UpstreamSpec,
        proxy: Option<OutboundProxy>,
    ) -> Result<UpstreamSlot, InvalidSettings> {
        let source = match &proxy {
            None => InlineSource { spec: written, tunnel: None },
            Some(proxy) => {
                let (spec, tunnel) = through_proxy(&written, proxy)?;
                InlineSource { spec, tunnel: Some(Arc::new(tunnel)) }
            }
        };
        let path = format!("plugins.{}.{path}", self.plugin);
        let name = inline_name(self.owner, &path);
        // A trial: the upstream is placed when the whole object was staged, so that a refused object leaves no trace.
        self.builder.upstreams.build(&name, &source.spec)?;
        let slot = UpstreamSlot::default();
        let inline = InlineUpstream { path, source, slot: slot.clone() };
        self.builder.bindings.requested.borrow_mut().inline.push(inline);
        Ok(slot)
    }

    fn fetch(&self, request: FetchRequest) -> Arc<FetchedCell> {
        let cell = self.builder.context.cells.get(&request);
        let path = format!("plugins.{}", self.plugin).into();
        self.builder.bindings.request_fetch(RequestedFetch {
            request: Arc::new(request),
            cell: cell.clone(),
            path,
        });
        cell
    }

    fn read_file(&self, path: &str) -> Result<String, String> {
        match &self.builder.context.read_file {
            Some(read) => read(path),
            None => Err(format!("the file {path} cannot be read here")),
        }
    }

    fn agree(&self, path: &str, name: &str, settings: &str) {
        let mut hasher = DefaultHasher::new();
        settings.hash(&mut hasher);
        let subject = AgreementKey { plugin: self.plugin.into(), path: path.into(), name: name.into() };
        self.builder.bindings.requested.borrow_mut().agreements.push((subject, hasher.finish()));
    }

    fn warn(&self, path: &str, message: String, remedy: &str) {
        let path = format!("plugins.{}.{path}", self.plugin);
        let warning = Problem::warning(self.owner.to_string(), path, message).hint(remedy);
        self.warnings.borrow_mut().push(warning);
    }
}

/// The name of an upstream inside settings. It collides with no object: only ids of credentials contain slashes, two
/// of them, and the name has a further one.
fn inline_name(owner: &ObjectName, path: &str) -> ObjectName {
    ObjectName::new(owner.kind, format!("{}/{path}", owner.id))
}

impl Compiler {
    pub(super) fn stage_proto(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let refused = |error| vec![invalid(name, error)];
        let written: config::ProtoSpec = decode(json).map_err(refused)?;
        let protos = ProtoDescriptors::compile(&written.content).map_err(refused)?;
        self.staged.protos.insert(name.id.clone(), Arc::new(protos));
        Ok(Vec::new())
    }

    /// Puts the requests of the plugins of a staged object in force, in place of its previous ones.
    pub(super) fn bind(&mut self, name: &ObjectName) -> Vec<Problem> {
        let requested = self.take_requested();
        self.set_agreements(name, requested.agreements);
        self.inputs.set_fetches(name, requested.fetches);
        // Most objects bind nothing; a large table must not pay for empty entries.
        if requested.names.is_empty() && requested.inline.is_empty() && !self.bindings.has(name) {
            return Vec::new();
        }
        self.bindings.remove_uses(name);
        self.bindings.add_uses(name, requested.names);
        let previous = self.bindings.slots_of.remove(name).unwrap_or_default();
        self.pin_slots(name, requested.slots);
        self.upstreams.unpin(&previous);
        self.assign_inline(name, requested.inline)
    }

    /// Adds the requests of a refused object: it is staged again when their objects appear. The previous requests stay,
    /// since the last good version still needs its objects.
    pub(super) fn bind_refused(&mut self, name: &ObjectName) {
        let requested = self.take_requested();
        self.bindings.add_uses(name, requested.names);
        self.inputs.add_fetches(name, requested.fetches);
        self.pin_slots(name, requested.slots);
    }

    /// The requests of the object in staging, those for secrets included.
    fn take_requested(&self) -> PluginDependencies {
        let mut requested = self.bindings.requested.take();
        let (managers, secrets) = self.context.secrets.take_requested();
        requested.names.extend(managers);
        requested.fetches.extend(secrets);
        requested
    }

    /// Pins the slots that the plugins of an object know by number, beside those that are pinned for it.
    fn pin_slots(&mut self, name: &ObjectName, mut slots: Vec<u32>) {
        slots.sort_unstable();
        slots.dedup();
        if let Some(known) = self.bindings.slots_of.get(name) {
            slots.retain(|slot| !known.contains(slot));
        }
        if !slots.is_empty() {
            self.upstreams.pin(&slots);
            self.bindings.slots_of.entry(name.clone()).or_default().extend(slots);
        }
    }

    /// Removes everything that is bound to an object.
    pub(super) fn unbind(&mut self, name: &ObjectName) {
        self.bindings.remove_uses(name);
        self.inputs.set_fetches(name, Vec::new());
        let pinned = self.bindings.slots_of.remove(name).unwrap_or_default();
        self.upstreams.unpin(&pinned);
        drop(self.assign_inline(name, Vec::new()));
        self.set_agreements(name, Vec::new());
    }

    fn set_agreements(&mut self, name: &ObjectName, agreements: Vec<(AgreementKey, AgreementHash)>) {
        let affected = self.bindings.agreements.set(name, agreements);
        self.problems.touch_all(affected);
    }

    /// Places the upstreams inside the plugin settings of an object, and removes those that it no longer has.
    fn assign_inline(&mut self, owner: &ObjectName, all: Vec<InlineUpstream>) -> Vec<Problem> {
        let previous = self.bindings.inline_of.remove(owner).unwrap_or_default();
        let mut problems = Vec::new();
        let mut names = Vec::with_capacity(all.len());
        for InlineUpstream { path, source, slot } in all {
            let name = inline_name(owner, &path);
            self.problems.set_staging(&name, Vec::new());
            match self.assign_upstream_through(&name, &source.spec, "", source.tunnel.clone()) {
                Ok(slot_ids) => slot.fill(slot_ids.0),
                Err(problem) => problems.push(problem),
            }
            self.bindings.inline.insert(name.clone(), source);
            names.push(name);
        }
        for removed in previous.into_iter().filter(|name| !names.contains(name)) {
            self.bindings.inline.remove(&removed);
            self.problems.set_staging(&removed, Vec::new());
            self.remove_upstream(&removed);
        }
        if !names.is_empty() {
            self.bindings.inline_of.insert(owner.clone(), names);
        }
        problems
    }

    /// Stages the objects again whose plugins asked for this one, successfully or not.
    pub(super) fn stage_users(&mut self, on: &ObjectName, queue: &mut LinkQueue) {
        // Collected first, since staging changes the graph.
        let users: Vec<ObjectName> = self.bindings.users.dependents_of(on).cloned().collect();
        for user in users {
            self.stage_again(user, queue);
        }
    }
}

#[cfg(test)]
mod tests;
