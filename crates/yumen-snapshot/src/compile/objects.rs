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
use yumen_config::{Invalid, Kind, decode};
use yumen_plugin::proto::Protos;
use yumen_plugin::{Objects, UpstreamSlot};

use super::names::{Dependents, Ranked};
use super::{Compiler, Name, Staged, Table, invalid};

/// An upstream that stands in a plugin's settings, as it was written.
#[derive(Debug, Clone)]
struct Inline {
    path: String,
    written: config::Upstream,
    slot: UpstreamSlot,
}

/// What the plugins of one object asked for while they were built.
#[derive(Debug, Default)]
struct Asked {
    names: BTreeSet<Name>,
    inline: Vec<Inline>,
    slots: Vec<u32>,
    accords: Vec<(On, Terms)>,
}

/// What settings should agree on: the plugin, and a name at a path of its settings.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct On {
    plugin: Box<str>,
    path: Box<str>,
    name: Box<str>,
}

/// The settings, as a number.
type Terms = u64;

/// What plugins were built from.
#[derive(Debug, Default)]
pub(super) struct Bindings {
    asked: RefCell<Asked>,
    protos: Table<Arc<Protos>>,
    /// Objects by what their plugins name, and the other way round.
    users: Dependents,
    uses: BTreeMap<Name, BTreeSet<Name>>,
    /// Upstreams that stand in settings, and in whose.
    inline: HashMap<Name, config::Upstream>,
    inline_of: HashMap<Name, Vec<Name>>,
    /// Slots plugins know. They are never given to another upstream: a plugin that stays in force without
    /// its upstream must not find another one there.
    known_slots: HashSet<u32>,
    /// Who should agree, and on what.
    accords: HashMap<On, BTreeSet<(Name, Terms)>>,
    accords_of: BTreeMap<Name, Vec<(On, Terms)>>,
}

impl Bindings {
    /// Whether a slot may be given to another upstream.
    pub(super) fn may_reuse(&self, slot: u32) -> bool {
        !self.known_slots.contains(&slot)
    }

    /// The upstream of this name as it stands in a plugin's settings.
    pub(super) fn inline(&self, name: &Name) -> Option<&config::Upstream> {
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
pub(super) struct View<'c> {
    pub(super) compiler: &'c Compiler,
    pub(super) owner: &'c Name,
    pub(super) plugin: &'c str,
}

impl View<'_> {
    fn note(&self, name: Name) {
        self.compiler.bindings.asked.borrow_mut().names.insert(name);
    }
}

impl Objects for View<'_> {
    fn proto(&self, id: &str) -> Option<Arc<Protos>> {
        self.note(Name::new(Kind::Protos, id));
        self.compiler.bindings.protos.get(id).cloned()
    }

    fn upstream(&self, id: &str) -> Option<UpstreamSlot> {
        let name = Name::new(Kind::Upstreams, id);
        let slot = self.compiler.slots.get(&name).copied();
        self.note(name);
        let slot = slot?;
        self.compiler.bindings.asked.borrow_mut().slots.push(slot);
        Some(UpstreamSlot::known(slot))
    }

    fn inline_upstream(&self, path: &str, written: config::Upstream) -> Result<UpstreamSlot, Invalid> {
        let path = format!("plugins.{}.{path}", self.plugin);
        let name = inline_name(self.owner, &path);
        self.compiler.build_upstream(&name, &written).map_err(|(at, message)| Invalid::at(at, message))?;
        let slot = UpstreamSlot::default();
        let inline = Inline { path, written, slot: slot.clone() };
        self.compiler.bindings.asked.borrow_mut().inline.push(inline);
        Ok(slot)
    }

    fn agree(&self, path: &str, name: &str, settings: &str) {
        let mut hasher = DefaultHasher::new();
        settings.hash(&mut hasher);
        let on = On { plugin: self.plugin.into(), path: path.into(), name: name.into() };
        self.compiler.bindings.asked.borrow_mut().accords.push((on, hasher.finish()));
    }
}

/// No object has a slash in its id but credentials, and those hold no such plugins.
fn inline_name(owner: &Name, path: &str) -> Name {
    Name::new(owner.kind, format!("{}/{path}", owner.id))
}

impl Compiler {
    pub(super) fn stage_proto(&mut self, name: &Name, json: &str) -> Staged {
        let refused = |error| vec![invalid(name, error)];
        let written: config::Proto = decode(json).map_err(refused)?;
        let protos = Protos::compile(&written.content).map_err(refused)?;
        self.bindings.protos.insert(name.id.clone(), Arc::new(protos));
        Ok(Vec::new())
    }

    /// Puts in force what the plugins of an object asked for while it was staged. Where it was refused, its
    /// last good version still needs what that had.
    pub(super) fn bind(&mut self, name: &Name, is_staged: bool) -> Vec<Problem> {
        let asked = self.bindings.asked.take();
        if is_staged {
            self.settle_accords(name, asked.accords);
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
    pub(super) fn unbind(&mut self, name: &Name) {
        self.forget_uses(name);
        drop(self.place_inline(name, Vec::new()));
        self.settle_accords(name, Vec::new());
    }

    /// Forgets what was asked for in vain: nothing of it comes into force.
    pub(super) fn forget_asked(&self) {
        self.bindings.asked.take();
    }

    /// Notes what an object should agree with others on. The findings about these may change.
    fn settle_accords(&mut self, name: &Name, accords: Vec<(On, Terms)>) {
        if accords.is_empty() && !self.bindings.accords_of.contains_key(name) {
            return;
        }
        for (on, terms) in self.bindings.accords_of.remove(name).into_iter().flatten() {
            let Some(all) = self.bindings.accords.get_mut(&on) else { continue };
            all.remove(&(name.clone(), terms));
            self.touched.extend(all.iter().map(|(other, _)| other.clone()));
            if all.is_empty() {
                self.bindings.accords.remove(&on);
            }
        }
        for (on, terms) in &accords {
            let all = self.bindings.accords.entry(on.clone()).or_default();
            all.insert((name.clone(), *terms));
            self.touched.extend(all.iter().map(|(other, _)| other.clone()));
        }
        if !accords.is_empty() {
            self.bindings.accords_of.insert(name.clone(), accords);
        }
    }

    /// Objects that do not agree with others on something they should.
    pub(super) fn discordant(&self) -> impl Iterator<Item = Name> {
        let differ = |all: &&BTreeSet<(Name, Terms)>| {
            let mut terms = all.iter().map(|(_, terms)| terms);
            let first = terms.next();
            terms.any(|other| Some(other) != first)
        };
        self.bindings.accords.values().filter(differ).flatten().map(|(name, _)| name.clone())
    }

    /// Warnings of what an object and others should agree on and do not.
    pub(super) fn discord_problems(&self, name: &Name) -> Vec<Problem> {
        let accords = self.bindings.accords_of.get(name);
        let told = accords.into_iter().flatten().filter_map(|(on, terms)| {
            let all = self.bindings.accords.get(on)?;
            let (other, _) = all.iter().find(|(_, other)| other != terms)?;
            let On { plugin, path, name: of } = on;
            let message =
                format!("{path} \"{of}\" has other settings in {other}: those that differ count apart");
            let problem = Problem::warning(name.to_string(), format!("plugins.{plugin}.{path}"), message);
            Some(problem.hint(format!("give all plugins with this {path} the same settings")))
        });
        told.collect()
    }

    fn forget_uses(&mut self, name: &Name) {
        for on in self.bindings.uses.remove(name).into_iter().flatten() {
            self.bindings.users.remove(on, name);
        }
    }

    fn place_inline(&mut self, owner: &Name, all: Vec<Inline>) -> Vec<Problem> {
        let before = self.bindings.inline_of.remove(owner).unwrap_or_default();
        let mut problems = Vec::new();
        let mut names = Vec::with_capacity(all.len());
        for Inline { path, written, slot } in all {
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
    pub(super) fn stage_users(&mut self, on: &Name, link: &mut BTreeSet<Ranked>) {
        let users: Vec<Name> = self.bindings.users.of(on).cloned().collect();
        for user in users {
            let text = self.texts.get(&user.kind).and_then(|texts| texts.get(&user.id));
            if let Some(json) = text.cloned() {
                self.stage_one(user, Some(json), link);
            }
        }
    }
}

#[cfg(test)]
mod tests;
