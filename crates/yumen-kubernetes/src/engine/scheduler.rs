//! The state of the translation: objects, outputs, readers, and the loop that runs marked units.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use yumen_base::problem::Problem;
use yumen_base::time::Now;

use super::compact_set::{CompactSet, difference};
use super::object_table::ObjectTable;
use super::output::UnitOutput;
use super::output_tables::{OutputKeys, OutputTables};
use super::read_key::ReadKey;
use super::tracked_view::TrackedView;
use super::unit::TranslationUnit;
use crate::certificates::CertificateInspector;
use crate::delta::{DesiredObject, TranslationDelta};
use crate::derived::IngressGroup;
use crate::model::{ClusterChange, ClusterKind, ClusterObject, ObjectKey};
use crate::ports::PortAllocator;
use crate::resources::{ResourceChange, ResourceName, TranslatedResource};
use crate::settings::TranslationSettings;

/// Inputs of the translation beside objects.
#[derive(Clone)]
pub(super) struct TranslationContext {
    pub(super) settings: TranslationSettings,
    pub(super) certificates: Arc<dyn CertificateInspector>,
    pub(super) ports: RefCell<PortAllocator>,
}

/// The incremental engine.
#[derive(Clone)]
pub(crate) struct TranslationEngine {
    pub(super) context: TranslationContext,
    pub(super) objects: ObjectTable,
    pub(super) tables: OutputTables,
    pub(super) units: HashMap<TranslationUnit, UnitRecord>,
    readers: HashMap<ReadKey, CompactSet<TranslationUnit>>,
    pub(super) marked: BTreeSet<TranslationUnit>,
    /// Number of units that require each referenced object.
    wanted: BTreeMap<ObjectKey, usize>,
    /// Keys that entered or left `wanted` in the batch.
    pub(super) wanted_changes: BTreeSet<ObjectKey>,
    pub(super) undecodable: BTreeMap<ObjectKey, Problem>,
    pub(super) undecodable_changed: bool,
    /// Undecodable objects of the batch: a list that follows lacks them, and they exist.
    reported: BTreeSet<ObjectKey>,
}

/// The last run of a unit.
#[derive(Debug, Clone, Default)]
pub(super) struct UnitRecord {
    /// In order.
    pub(super) reads: Box<[ReadKey]>,
    /// In order.
    pub(super) wanted: Box<[ObjectKey]>,
    pub(super) output: OutputKeys,
}

/// The effect of a required object that was not read yet on the output of its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnreadObjects {
    /// The previous output stays.
    KeepPrevious,
    /// The object counts as missing.
    CountAsMissing,
}

/// Whether a run of a unit had all objects that it requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunInputs {
    Complete,
    /// A required object does not exist, or was not read yet.
    Lacking,
}

impl TranslationEngine {
    pub(crate) fn new(
        settings: TranslationSettings,
        certificates: Arc<dyn CertificateInspector>,
    ) -> TranslationEngine {
        let ports = RefCell::new(PortAllocator::new(settings.ports.clone(), settings.ports_taken.clone()));
        TranslationEngine {
            context: TranslationContext { settings, certificates, ports },
            objects: ObjectTable::default(),
            tables: OutputTables::default(),
            units: HashMap::new(),
            readers: HashMap::new(),
            marked: BTreeSet::from(TranslationUnit::PERMANENT),
            wanted: BTreeMap::new(),
            wanted_changes: BTreeSet::new(),
            undecodable: BTreeMap::new(),
            undecodable_changed: false,
            reported: BTreeSet::new(),
        }
    }

    /// An object as of the newest change, with its observed status.
    pub(crate) fn object(&self, key: &ObjectKey) -> Option<&ClusterObject> {
        self.objects.find(key)
    }

    /// Marks the Gateways that wait for a target port.
    pub(crate) fn retry_ports(&mut self) {
        let starved = self.context.ports.get_mut().take_starved();
        self.marked.extend(starved.into_iter().map(TranslationUnit::Gateway));
    }

    /// All objects as they shall be.
    pub(crate) fn desired_objects(&self) -> Vec<DesiredObject> {
        if !self.context.settings.take_over {
            return Vec::new();
        }
        let all = self.tables.objects.iter();
        let desired =
            all.map(|(path, intent)| DesiredObject::from_intent(path.clone(), Some(intent.clone())));
        desired.collect()
    }

    /// Stores a change and marks the units that it concerns.
    pub(crate) fn change(&mut self, change: ClusterChange, now: Now) {
        match change {
            ClusterChange::Put(object) => self.put(object, now),
            ClusterChange::Delete(key) => self.remove(&key, now),
            ClusterChange::Replace(kind, objects) => self.replace(kind, objects, now),
            // The objects of a kind that is installed arrive with its list.
            ClusterChange::Installed(_, true) => {}
            ClusterChange::Installed(kind, false) => self.replace(kind, Vec::new(), now),
            ClusterChange::Undecodable(key, message) => {
                let hint = if self.objects.find(&key).is_some() { "the previous version" } else { "nothing" };
                let message = format!("object does not decode: {message}; {hint} is in force instead");
                let problem = Problem::error(key.to_string(), "", message);
                self.undecodable_changed = true;
                self.reported.insert(key.clone());
                self.undecodable.insert(key, problem);
            }
        }
    }

    /// Runs the marked units and those that follow from their outputs, and returns the differences.
    pub(crate) fn run(
        &mut self,
        now: Now,
        translate: impl Fn(&TranslationUnit, &TrackedView<'_>) -> UnitOutput,
    ) -> TranslationDelta {
        while let Some(unit) = self.marked.pop_first() {
            self.run_unit(unit, now, &translate, UnreadObjects::KeepPrevious);
        }
        let wanted_changes = std::mem::take(&mut self.wanted_changes);
        for key in wanted_changes.iter().filter(|key| !self.wanted.contains_key(key)) {
            self.objects.forget(key);
        }
        self.reported.clear();
        let mut statuses = self.tables.statuses.take_changes();
        let mut objects: Vec<DesiredObject> = (self.tables.objects.take_changes().into_iter())
            .map(|(path, intent)| DesiredObject::from_intent(path, intent))
            .collect();
        if !self.context.settings.take_over {
            statuses.clear();
            objects.clear();
        }
        TranslationDelta {
            resources: resource_changes(self.tables.resources.take_changes()),
            statuses,
            objects,
            wanted: (!wanted_changes.is_empty()).then(|| self.wanted.keys().cloned().collect()),
            problems: self.take_problems(),
        }
    }

    /// Whether nothing of removed objects is left.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.units.keys().all(TranslationUnit::is_permanent)
            && self.readers.values().flatten().all(TranslationUnit::is_permanent)
            && self.wanted.is_empty()
    }

    fn put(&mut self, object: ClusterObject, now: Now) {
        let key = object.key();
        self.clear_undecodable(&key);
        if key.kind == ClusterKind::Service {
            self.context.ports.get_mut().observe(self.objects.find(&key), Some(&object), now);
        }
        let changed = self.objects.put(object);
        self.mark_readers(&key, changed);
    }

    fn remove(&mut self, key: &ObjectKey, now: Now) {
        self.clear_undecodable(key);
        if key.kind == ClusterKind::Service {
            self.context.ports.get_mut().observe(self.objects.find(key), None, now);
        }
        let changed = self.objects.remove(key);
        self.mark_readers(key, changed);
    }

    fn replace(&mut self, kind: ClusterKind, objects: Vec<ClusterObject>, now: Now) {
        let present: BTreeSet<ObjectKey> = objects.iter().map(ClusterObject::key).collect();
        let undecodable = self.undecodable.keys().filter(|key| key.kind == kind && !present.contains(key));
        let mut absent: BTreeSet<ObjectKey> = undecodable.cloned().collect();
        absent.extend(self.objects.mark_listed(kind, &present));
        for key in absent.difference(&self.reported.clone()) {
            self.remove(key, now);
        }
        for object in objects {
            self.put(object, now);
        }
    }

    fn clear_undecodable(&mut self, key: &ObjectKey) {
        self.undecodable_changed |= self.undecodable.remove(key).is_some();
    }

    fn mark_readers(&mut self, key: &ObjectKey, changed: Vec<ReadKey>) {
        if !changed.is_empty() {
            self.marked.extend(TranslationUnit::of_object(key));
        }
        for fact in changed {
            self.marked.extend(self.readers.get(&fact).into_iter().flatten().cloned());
        }
    }

    fn exists(&self, unit: &TranslationUnit) -> bool {
        match unit {
            unit if unit.is_permanent() => true,
            // The default server exists beside any other host.
            TranslationUnit::IngressListeners => self.tables.has_ingresses(&IngressGroup::Served),
            TranslationUnit::IngressHost(host) if host.is_empty() => {
                self.tables.has_ingresses(&IngressGroup::Served)
            }
            TranslationUnit::IngressHost(host) => {
                self.tables.has_ingresses(&IngressGroup::Host(host.clone()))
            }
            TranslationUnit::PluginSet(key) => self.tables.is_plugin_set_named(key),
            TranslationUnit::StreamSection(section) => self.tables.has_stream_routes(section),
            TranslationUnit::ServicePort(key) => self.tables.is_upstream_named(key),
            _ => unit.root().is_some_and(|key| self.objects.find(&key).is_some()),
        }
    }

    pub(super) fn run_unit(
        &mut self,
        unit: TranslationUnit,
        now: Now,
        translate: &impl Fn(&TranslationUnit, &TrackedView<'_>) -> UnitOutput,
        unread: UnreadObjects,
    ) -> RunInputs {
        let mut record = self.units.remove(&unit).unwrap_or_default();
        let exists = self.exists(&unit);
        let view = TrackedView::new(&self.objects, &self.tables, &self.context, now, &unit);
        let output = if exists { translate(&unit, &view) } else { UnitOutput::default() };
        let run = view.finish();
        self.replace_reads(&unit, &record.reads, &run.reads);
        self.replace_wanted(&record.wanted, &run.wanted);
        (record.reads, record.wanted) = (run.reads, run.wanted);
        if !run.is_pending || unread == UnreadObjects::CountAsMissing {
            let (keys, changes) = self.tables.replace(&unit, record.output, output);
            record.output = keys;
            for fact in changes.facts {
                let readers = self.readers.get(&fact).into_iter().flatten();
                // A reader of a lower rank would be a cycle of units; the bound makes it end in every build.
                self.marked.extend(readers.filter(|reader| **reader > unit).cloned());
            }
            self.marked.extend(changes.units);
        }
        if exists {
            self.units.insert(unit, record);
        }
        if run.is_pending || run.has_missing { RunInputs::Lacking } else { RunInputs::Complete }
    }

    pub(super) fn replace_reads(&mut self, unit: &TranslationUnit, before: &[ReadKey], after: &[ReadKey]) {
        for key in difference(before, after) {
            if let Some(readers) = self.readers.get_mut(key) {
                readers.remove(unit);
                if readers.is_empty() {
                    self.readers.remove(key);
                }
            }
        }
        for key in difference(after, before) {
            self.readers.entry(key.clone()).or_default().insert(unit.clone());
        }
    }

    pub(super) fn replace_wanted(&mut self, before: &[ObjectKey], after: &[ObjectKey]) {
        for key in difference(after, before) {
            let count = self.wanted.entry(key.clone()).or_default();
            *count += 1;
            if *count == 1 {
                self.wanted_changes.insert(key.clone());
            }
        }
        for key in difference(before, after) {
            if let Some(count) = self.wanted.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.wanted.remove(key);
                    self.wanted_changes.insert(key.clone());
                }
            }
        }
    }

    fn take_problems(&mut self) -> Option<Vec<Problem>> {
        let of_units = self.tables.take_problems();
        let changed = std::mem::take(&mut self.undecodable_changed) || of_units.is_some();
        changed.then(|| self.undecodable.values().chain(self.tables.problems()).cloned().collect())
    }
}

/// Puts in the order of kinds, then deletions in the reverse order, so that no reference is ever open.
fn resource_changes(changes: Vec<(ResourceName, Option<Arc<str>>)>) -> Vec<ResourceChange> {
    let (mut puts, mut deletions) = (Vec::new(), Vec::new());
    for (name, json) in changes {
        match json {
            Some(json) => puts.push(ResourceChange::Put(TranslatedResource { name, json })),
            None => deletions.push(ResourceChange::Delete(name)),
        }
    }
    puts.extend(deletions.into_iter().rev());
    puts
}
