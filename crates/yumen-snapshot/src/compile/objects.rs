//! What plugins are made of beside their settings: protos and upstreams that these name, and upstreams that
//! stand in them.
//!
//! Knows no plugin: what was asked for while one was built is noted, and tells when it is built again.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use yumen_base::Problem;
use yumen_config::resource as config;
use yumen_config::{InvalidSettings, Kind, decode};
use yumen_plugin::proto::ProtoDescriptors;
use yumen_plugin::{ObjectLookup, UpstreamSlot};

use super::names::{DependencySet, RankedName};
use super::{Compiler, ObjectName, StageResult, Table, invalid};

/// An upstream that stands in a plugin's settings, as it was written.
#[derive(Debug, Clone)]
struct InlineUpstream {
    path: String,
    written: config::UpstreamSpec,
    slot: UpstreamSlot,
}

/// What the plugins of one object asked for while they were built.
#[derive(Debug, Default)]
struct PluginDependencies {
    names: BTreeSet<ObjectName>,
    inline: Vec<InlineUpstream>,
    slots: Vec<u32>,
    agreements: Vec<(AgreementKey, AgreementHash)>,
}

/// What settings should agree on: the plugin, and a name at a path of its settings.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct AgreementKey {
    plugin: Box<str>,
    path: Box<str>,
    name: Box<str>,
}

/// The settings, as a number.
type AgreementHash = u64;

/// What plugins were built from.
#[derive(Debug, Default)]
pub(super) struct PluginBindings {
    asked: RefCell<PluginDependencies>,
    protos: Table<Arc<ProtoDescriptors>>,
    /// Objects by what their plugins name, and the other way round.
    users: DependencySet,
    uses: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    /// Upstreams that stand in settings, and in whose.
    inline: HashMap<ObjectName, config::UpstreamSpec>,
    inline_of: HashMap<ObjectName, Vec<ObjectName>>,
    /// Slots plugins know. They are never given to another upstream: a plugin that stays in force without
    /// its upstream must not find another one there.
    known_slots: HashSet<u32>,
    /// Who should agree, and on what.
    agreements: HashMap<AgreementKey, BTreeSet<(ObjectName, AgreementHash)>>,
    accords_of: BTreeMap<ObjectName, Vec<(AgreementKey, AgreementHash)>>,
}

impl PluginBindings {
    /// Whether a slot may be given to another upstream.
    pub(super) fn may_reuse(&self, slot: u32) -> bool {
        !self.known_slots.contains(&slot)
    }

    /// The upstream of this name as it stands in a plugin's settings.
    pub(super) fn inline(&self, name: &ObjectName) -> Option<&config::UpstreamSpec> {
        self.inline.get(name)
    }

    pub(super) fn has_proto(&self, id: &str) -> bool {
        self.protos.contains_key(id)
    }

    pub(super) fn remove_proto(&mut self, id: &str) {
        self.protos.remove(id);
    }
}

/// The objects there are, for the plugin called `plugin` of `owner`.
pub(super) struct CompilerObjects<'c> {
    pub(super) compiler: &'c Compiler,
    pub(super) owner: &'c ObjectName,
    pub(super) plugin: &'c str,
}

impl CompilerObjects<'_> {
    fn note(&self, name: ObjectName) {
        self.compiler.bindings.asked.borrow_mut().names.insert(name);
    }
}

impl ObjectLookup for CompilerObjects<'_> {
    fn proto(&self, id: &str) -> Option<Arc<ProtoDescriptors>> {
        self.note(ObjectName::new(Kind::Protos, id));
        self.compiler.bindings.protos.get(id).cloned()
    }

    fn upstream(&self, id: &str) -> Option<UpstreamSlot> {
        let name = ObjectName::new(Kind::Upstreams, id);
        let slot = self.compiler.slots.get(&name).copied();
        self.note(name);
        let slot = slot?;
        self.compiler.bindings.asked.borrow_mut().slots.push(slot);
        Some(UpstreamSlot::known(slot))
    }

    fn inline_upstream(
        &self,
        path: &str,
        written: config::UpstreamSpec,
    ) -> Result<UpstreamSlot, InvalidSettings> {
        let path = format!("plugins.{}.{path}", self.plugin);
        let name = inline_name(self.owner, &path);
        self.compiler
            .build_upstream(&name, &written)
            .map_err(|(at, message)| InvalidSettings::at(at, message))?;
        let slot = UpstreamSlot::default();
        let inline = InlineUpstream { path, written, slot: slot.clone() };
        self.compiler.bindings.asked.borrow_mut().inline.push(inline);
        Ok(slot)
    }

    fn agree(&self, path: &str, name: &str, settings: &str) {
        let mut hasher = DefaultHasher::new();
        settings.hash(&mut hasher);
        let on = AgreementKey { plugin: self.plugin.into(), path: path.into(), name: name.into() };
        self.compiler.bindings.asked.borrow_mut().agreements.push((on, hasher.finish()));
    }
}

/// No object has a slash in its id but credentials, and those hold no such plugins.
fn inline_name(owner: &ObjectName, path: &str) -> ObjectName {
    ObjectName::new(owner.kind, format!("{}/{path}", owner.id))
}

impl Compiler {
    pub(super) fn stage_proto(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let refused = |error| vec![invalid(name, error)];
        let written: config::ProtoSpec = decode(json).map_err(refused)?;
        let protos = ProtoDescriptors::compile(&written.content).map_err(refused)?;
        self.bindings.protos.insert(name.id.clone(), Arc::new(protos));
        Ok(Vec::new())
    }

    /// Puts in force what the plugins of an object asked for while it was staged. Where it was refused, its
    /// last good version still needs what that had.
    pub(super) fn bind(&mut self, name: &ObjectName, is_staged: bool) -> Vec<Problem> {
        let asked = self.bindings.asked.take();
        if is_staged {
            self.register_agreements(name, asked.agreements);
        }
        let has_any = !asked.names.is_empty() || !asked.inline.is_empty();
        if !has_any && !self.bindings.uses.contains_key(name) && !self.bindings.inline_of.contains_key(name) {
            return Vec::new();
        }
        if is_staged {
            self.forget_uses(name);
        }
        self.bindings.known_slots.extend(asked.slots);
        for on in asked.names {
            self.bindings.users.add(on.clone(), name);
            self.bindings.uses.entry(name.clone()).or_default().insert(on);
        }
        if is_staged { self.place_inline(name, asked.inline) } else { Vec::new() }
    }

    /// What is bound to an object that is gone.
    pub(super) fn unbind(&mut self, name: &ObjectName) {
        self.forget_uses(name);
        drop(self.place_inline(name, Vec::new()));
        self.register_agreements(name, Vec::new());
    }

    /// Forgets what was asked for in vain: nothing of it comes into force.
    pub(super) fn forget_asked(&self) {
        self.bindings.asked.take();
    }

    /// Notes what an object should agree with others on. The findings about these may change.
    fn register_agreements(&mut self, name: &ObjectName, agreements: Vec<(AgreementKey, AgreementHash)>) {
        if agreements.is_empty() && !self.bindings.accords_of.contains_key(name) {
            return;
        }
        for (on, terms) in self.bindings.accords_of.remove(name).into_iter().flatten() {
            let Some(all) = self.bindings.agreements.get_mut(&on) else { continue };
            all.remove(&(name.clone(), terms));
            self.touched.extend(all.iter().map(|(other, _)| other.clone()));
            if all.is_empty() {
                self.bindings.agreements.remove(&on);
            }
        }
        for (on, terms) in &agreements {
            let all = self.bindings.agreements.entry(on.clone()).or_default();
            all.insert((name.clone(), *terms));
            self.touched.extend(all.iter().map(|(other, _)| other.clone()));
        }
        if !agreements.is_empty() {
            self.bindings.accords_of.insert(name.clone(), agreements);
        }
    }

    /// Objects that do not agree with others on something they should.
    pub(super) fn disagreeing_objects(&self) -> impl Iterator<Item = ObjectName> {
        let differ = |all: &&BTreeSet<(ObjectName, AgreementHash)>| {
            let mut terms = all.iter().map(|(_, terms)| terms);
            let first = terms.next();
            terms.any(|other| Some(other) != first)
        };
        self.bindings.agreements.values().filter(differ).flatten().map(|(name, _)| name.clone())
    }

    /// Warnings of what an object and others should agree on and do not.
    pub(super) fn disagreement_problems(&self, name: &ObjectName) -> Vec<Problem> {
        let agreements = self.bindings.accords_of.get(name);
        let told = agreements.into_iter().flatten().filter_map(|(on, terms)| {
            let all = self.bindings.agreements.get(on)?;
            let (other, _) = all.iter().find(|(_, other)| other != terms)?;
            let AgreementKey { plugin, path, name: of } = on;
            let message =
                format!("{path} \"{of}\" has other settings in {other}: those that differ count apart");
            let problem = Problem::warning(name.to_string(), format!("plugins.{plugin}.{path}"), message);
            Some(problem.hint(format!("give all plugins with this {path} the same settings")))
        });
        told.collect()
    }

    fn forget_uses(&mut self, name: &ObjectName) {
        for on in self.bindings.uses.remove(name).into_iter().flatten() {
            self.bindings.users.remove(on, name);
        }
    }

    fn place_inline(&mut self, owner: &ObjectName, all: Vec<InlineUpstream>) -> Vec<Problem> {
        let before = self.bindings.inline_of.remove(owner).unwrap_or_default();
        let mut problems = Vec::new();
        let mut names = Vec::with_capacity(all.len());
        for InlineUpstream { path, written, slot } in all {
            let name = inline_name(owner, &path);
            self.staged_problems.remove(&name);
            match self.place_upstream(&name, &written, "") {
                Ok(placed) => slot.fill(placed.0),
                Err(problem) => problems.push(problem),
            }
            self.bindings.inline.insert(name.clone(), written);
            names.push(name);
        }
        for gone in before.into_iter().filter(|name| !names.contains(name)) {
            self.bindings.inline.remove(&gone);
            self.staged_problems.remove(&gone);
            self.remove_upstream(&gone);
        }
        if !names.is_empty() {
            self.bindings.inline_of.insert(owner.clone(), names);
        }
        problems
    }

    /// Builds the plugins again that were built from an object, or in vain.
    pub(super) fn stage_users(&mut self, on: &ObjectName, link: &mut BTreeSet<RankedName>) {
        let users: Vec<ObjectName> = self.bindings.users.of(on).cloned().collect();
        for user in users {
            let text = self.texts.get(&user.kind).and_then(|texts| texts.get(&user.id));
            if let Some(json) = text.cloned() {
                self.stage_object(user, Some(json), link);
            }
        }
    }
}

#[cfg(test)]
mod tests;
