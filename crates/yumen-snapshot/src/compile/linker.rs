//! The phases of a compilation: staging of changed objects, linking of their dependents, the snapshot.
//!
//! The queue keeps the order of kinds, so an object is linked after the objects that it refers to.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use yumen_config::{Kind, resource as config};

use super::kind_table::{DependentUpdate, KindCompiler};
use super::names::{ObjectName, RankedName};
use super::quarantine::{self, QuarantineDecision};
use super::{Compiler, StageResult};
use crate::snapshot::Snapshot;

/// Objects that are due for linking.
#[derive(Debug, Default)]
pub(super) struct LinkQueue {
    due: BTreeSet<RankedName>,
}

impl LinkQueue {
    pub(super) fn push(&mut self, name: ObjectName) {
        self.due.insert(name.into());
    }

    pub(super) fn push_all(&mut self, names: impl IntoIterator<Item = ObjectName>) {
        self.due.extend(names.into_iter().map(RankedName::from));
    }

    /// The next object: objects that others refer to come first.
    pub(super) fn pop(&mut self) -> Option<ObjectName> {
        self.due.pop_first().map(|ranked| ranked.name)
    }
}

impl Compiler {
    /// Puts a new text of an object in force, or removes the object, and queues the objects that depend on it.
    pub(super) fn stage_object(&mut self, name: ObjectName, json: Option<Arc<str>>, queue: &mut LinkQueue) {
        self.problems.touch(name.clone());
        // Only appearance and disappearance of a slot concern the dependents.
        let was_present = self.is_present(&name);
        match json {
            Some(json) => self.put(&name, json),
            None => self.delete(&name),
        }
        let update = KindCompiler::of(name.kind).dependents;
        let has_moved = was_present != self.is_present(&name);
        let reports =
            update == DependentUpdate::Report || update == DependentUpdate::ReportOnPresence && has_moved;
        if reports {
            self.problems.touch_all(self.references.dependents_of(&name).cloned());
        }
        if matches!(update, DependentUpdate::Report | DependentUpdate::ReportOnPresence) {
            queue.push(name);
            return;
        }
        if update == DependentUpdate::LinkOnPresence && !has_moved {
            // Dependents know the slot of an upstream, and the slot did not change. Their names are not even collected:
            // thousands of routes may share an upstream.
            queue.push(name);
            return;
        }
        // Collected first, since staging changes the references.
        let dependents: Vec<ObjectName> = self.references.dependents_of(&name).cloned().collect();
        match update {
            // Plugins are built from their metadata, upstreams from certificates. The dependents are staged from their
            // newest text, which may have been broken for lack of this object.
            DependentUpdate::Stage => self.stage_dependents(dependents, queue),
            DependentUpdate::LinkOnPresence | DependentUpdate::StagePlugins => {
                queue.push_all(dependents);
                self.stage_users(&name, queue);
            }
            DependentUpdate::Link | DependentUpdate::LinkTransitively => queue.push_all(dependents),
            // Handled above.
            DependentUpdate::Report | DependentUpdate::ReportOnPresence => {}
        }
        // The object itself is linked too; the queue sorts it before its dependents.
        queue.push(name);
    }

    fn stage_dependents(&mut self, dependents: Vec<ObjectName>, queue: &mut LinkQueue) {
        for dependent in dependents {
            // An upstream inside plugin settings has no text of its own.
            if self.bindings.inline(&dependent).is_some() {
                let problem = self.rebuild_upstream(&dependent).err();
                self.problems.set_staging(&dependent, problem.into_iter().collect());
                self.problems.touch(dependent);
                continue;
            }
            self.stage_again(dependent, queue);
        }
    }

    /// Stages the newest text of an object once more.
    pub(super) fn stage_again(&mut self, name: ObjectName, queue: &mut LinkQueue) {
        // The newest text, not the one in force: it may have been broken for lack of the object that appeared.
        if let Some(json) = self.texts.newest(&name).cloned() {
            self.stage_object(name, Some(json), queue);
        }
    }

    fn put(&mut self, name: &ObjectName, json: Arc<str>) {
        // The text of the predecessor process becomes the last good version if the new text is broken.
        if let Some(inherited) = self.texts.take_inherited(name) {
            self.put(name, inherited);
        }
        let previous = self.texts.in_force(name).filter(|_| self.is_good(name)).cloned();
        let problems = match self.stage_with_warnings(name, &json) {
            Ok(mut warnings) => {
                warnings.extend(self.bind(name));
                self.texts.clear_last_good(name);
                warnings
            }
            Err(problems) => {
                let lacks_guard = self.context.lacks_guard(name.kind, &json, previous.as_deref())
                    || self.context.lacks_client_certificates(name.kind, &json, previous.as_deref())
                    || self.context.closes_broken(name.kind);
                let decision = QuarantineDecision::of(name, &json, previous, lacks_guard);
                self.quarantine(name, &json, decision, problems)
            }
        };
        // Staging compares the new text with the one in force, so the new text is stored last.
        self.texts.set_newest(name, json);
        self.problems.set_staging(name, problems);
    }

    fn delete(&mut self, name: &ObjectName) {
        self.problems.remove(name);
        self.withdraw(name);
        self.texts.remove(name);
    }

    /// Takes an object out of force.
    pub(super) fn withdraw(&mut self, name: &ObjectName) {
        self.texts.clear_last_good(name);
        self.unbind(name);
        (KindCompiler::of(name.kind).withdraw)(self, name);
    }

    /// Builds an object from its text. An error leaves the version in force as it is.
    pub(super) fn stage(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let defects = config::defects(json);
        // The source already found the text unusable, for example for an unset variable (decision 3).
        if !defects.is_empty() {
            return Err(defects.into_iter().map(|defect| quarantine::defect_problem(name, defect)).collect());
        }
        (KindCompiler::of(name.kind).stage)(self, name, json)
    }

    /// Whether a good version of an object is in force.
    pub(super) fn is_good(&self, name: &ObjectName) -> bool {
        (KindCompiler::of(name.kind).is_good)(self, name)
    }

    /// Registers the references of a broken text, so that the object is staged again when their targets appear.
    pub(super) fn register_missing_references(&mut self, name: &ObjectName, json: &str) {
        let Ok(written) = serde_json::from_str::<Value>(json) else { return };
        let plugins = written.get("plugins").and_then(Value::as_object);
        // The text does not decode, so references are read from its raw JSON.
        for plugin in plugins.into_iter().flat_map(|plugins| plugins.keys()) {
            self.references.add(ObjectName::new(Kind::PluginMetadata, plugin.as_str()), name);
        }
        for path in ["/tls/client_cert_id", "/upstream/tls/client_cert_id"] {
            let id = match written.pointer(path) {
                Some(Value::String(id)) => id.clone(),
                // Ids may be numbers, as in APISIX.
                Some(Value::Number(id)) => id.to_string(),
                _ => continue,
            };
            self.references.add(ObjectName::new(Kind::Ssls, id), name);
        }
    }

    /// Links an object to the objects that it refers to.
    pub(super) fn link(&mut self, name: ObjectName, queue: &mut LinkQueue) {
        self.problems.touch(name.clone());
        let row = KindCompiler::of(name.kind);
        let problems = (row.link)(self, &name);
        self.problems.set_linking(&name, problems);
        if row.dependents == DependentUpdate::LinkTransitively {
            queue.push_all(self.references.dependents_of(&name).cloned());
        }
    }

    /// The snapshot of the tables as they are. Clones share their structure, so the cost does not grow with the tables.
    pub(super) fn snapshot(&mut self, revision: u64) -> Snapshot {
        let (consumers, scope_consumers) = self.consumers.indexes();
        Snapshot {
            revision,
            global: self.global.of_node.clone(),
            consumers,
            scope_rules: self.global.by_scope.clone(),
            scope_consumers,
            router: self.routes.table().clone(),
            streams: self.stream_routes.table().clone(),
            upstreams: self.upstreams.table().clone(),
            listeners: self.downstream.listeners.table().clone(),
            scopes: self.compiled_scopes(),
            certificates: self.downstream.server_names.presented(),
            requests_client_certificates: self.downstream.server_names.requests_client_certificates(),
            chains: self.chain_generation,
            no_rules: self.context.empty_chain.clone(),
            recalled: self.upstreams.take_recalled(),
        }
    }
}
