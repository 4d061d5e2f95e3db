//! Outputs of all units, and the counters and sets that follow from them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use yumen_base::problem::Problem;

use super::compact_set::difference;
use super::output::{DerivedOutput, UnitOutput};
use super::owned_table::OwnedTable;
use super::read_key::ReadKey;
use super::unit::TranslationUnit;
use crate::delta::{ObjectIntent, ObjectPath};
use crate::derived::{IngressGroup, IngressMember, ParentOutput, SectionKey, UpstreamKey};
use crate::model::{ClusterKind, ObjectKey};
use crate::resources::ResourceName;
use crate::status::StatusDraft;

#[derive(Debug, Clone, Default)]
pub(super) struct OutputTables {
    pub(super) resources: OwnedTable<ResourceName, Arc<str>>,
    pub(super) statuses: OwnedTable<ObjectKey, StatusDraft>,
    pub(super) objects: OwnedTable<ObjectPath, ObjectIntent>,
    pub(super) parents: OwnedTable<ObjectKey, Arc<ParentOutput>>,
    pub(super) derived: HashMap<TranslationUnit, DerivedOutput>,
    pub(super) attached: BTreeMap<SectionKey, BTreeSet<ObjectKey>>,
    pub(super) policy_users: BTreeMap<ObjectKey, BTreeMap<ObjectKey, usize>>,
    pub(super) ingress_groups: BTreeMap<IngressGroup, BTreeSet<IngressMember>>,
    upstreams: BTreeMap<UpstreamKey, usize>,
    plugin_sets: BTreeMap<ObjectKey, usize>,
    problems: BTreeMap<TranslationUnit, Vec<Problem>>,
    /// Whether a problem changed since the last look.
    problems_changed: bool,
}

/// The keys of a unit's output in order, by which the next output replaces it.
#[derive(Debug, Clone, Default)]
pub(super) struct OutputKeys {
    resources: Box<[ResourceName]>,
    statuses: Box<[ObjectKey]>,
    objects: Box<[ObjectPath]>,
    parents: Box<[ObjectKey]>,
    attachments: Box<[SectionKey]>,
    upstreams: Box<[UpstreamKey]>,
    plugin_sets: Box<[ObjectKey]>,
    policies: Box<[super::output::PolicyUse]>,
    groups: Box<[(IngressGroup, IngressMember)]>,
}

/// The consequences of a new output.
#[derive(Debug, Default)]
pub(super) struct OutputChanges {
    /// Facts that differ.
    pub(super) facts: Vec<ReadKey>,
    /// Units that may begin or cease to exist.
    pub(super) units: Vec<TranslationUnit>,
}

impl OutputTables {
    /// Replaces the output of `unit`.
    pub(super) fn replace(
        &mut self,
        unit: &TranslationUnit,
        before: OutputKeys,
        output: UnitOutput,
    ) -> (OutputKeys, OutputChanges) {
        let mut changes = OutputChanges::default();
        let keys = OutputKeys {
            resources: output.resources.keys().cloned().collect(),
            statuses: output.statuses.keys().cloned().collect(),
            objects: output.objects.keys().cloned().collect(),
            parents: output.parents.keys().cloned().collect(),
            attachments: output.attachments.iter().cloned().collect(),
            upstreams: output.upstreams.iter().cloned().collect(),
            plugin_sets: output.plugin_sets.iter().cloned().collect(),
            policies: output.policies.iter().cloned().collect(),
            groups: output.groups.iter().cloned().collect(),
        };
        replace_owned(&mut self.resources, unit, &before.resources, output.resources);
        replace_owned(&mut self.statuses, unit, &before.statuses, output.statuses);
        replace_owned(&mut self.objects, unit, &before.objects, output.objects);
        let parents = replace_owned(&mut self.parents, unit, &before.parents, output.parents);
        changes.facts.extend(parents.into_iter().map(ReadKey::Parent));
        self.replace_derived(unit, output.derived, &mut changes);
        self.replace_attachments(unit, &before.attachments, &keys.attachments, &mut changes);
        let upstreams = count_uses(&mut self.upstreams, &before.upstreams, &keys.upstreams);
        changes.units.extend(upstreams.into_iter().map(TranslationUnit::ServicePort));
        let sets = count_uses(&mut self.plugin_sets, &before.plugin_sets, &keys.plugin_sets);
        changes.units.extend(sets.into_iter().map(TranslationUnit::PluginSet));
        self.replace_policies(&before, &keys, &mut changes);
        self.replace_groups(&before.groups, &keys.groups, &mut changes);
        self.replace_problems(unit, output.problems);
        (keys, changes)
    }

    /// The whole output of a unit, as of its last run.
    pub(super) fn output_of(&self, unit: &TranslationUnit, keys: &OutputKeys) -> UnitOutput {
        UnitOutput {
            resources: owned_values(&self.resources, unit, &keys.resources),
            statuses: owned_values(&self.statuses, unit, &keys.statuses),
            objects: owned_values(&self.objects, unit, &keys.objects),
            attachments: keys.attachments.iter().cloned().collect(),
            upstreams: keys.upstreams.iter().cloned().collect(),
            plugin_sets: keys.plugin_sets.iter().cloned().collect(),
            policies: keys.policies.iter().cloned().collect(),
            groups: keys.groups.iter().cloned().collect(),
            parents: owned_values(&self.parents, unit, &keys.parents),
            derived: self.derived.get(unit).cloned(),
            problems: self.problems_of(unit).to_vec(),
        }
    }

    /// The problems of a unit, as of its last run.
    pub(super) fn problems_of(&self, unit: &TranslationUnit) -> &[Problem] {
        self.problems.get(unit).map_or(&[], Vec::as_slice)
    }

    /// Whether a route names the upstream.
    pub(super) fn is_upstream_named(&self, key: &UpstreamKey) -> bool {
        self.upstreams.contains_key(key)
    }

    /// Whether a route names the plugins of the object.
    pub(super) fn is_plugin_set_named(&self, key: &ObjectKey) -> bool {
        self.plugin_sets.contains_key(key)
    }

    /// Whether a TCPRoute or UDPRoute is attached to the section.
    pub(super) fn has_stream_routes(&self, section: &SectionKey) -> bool {
        self.attached.get(section).is_some_and(|routes| routes.iter().any(is_stream_route))
    }

    /// Whether an Ingress belongs to the group.
    pub(super) fn has_ingresses(&self, group: &IngressGroup) -> bool {
        self.ingress_groups.contains_key(group)
    }

    /// The problems of all units, if they changed since the last call.
    pub(super) fn take_problems(&mut self) -> Option<Vec<Problem>> {
        let changed = std::mem::take(&mut self.problems_changed);
        changed.then(|| self.problems().cloned().collect())
    }

    /// Whether a problem changed since the last call of [`take_problems`](Self::take_problems).
    pub(super) fn has_changed_problems(&self) -> bool {
        self.problems_changed
    }

    pub(super) fn set_changed_problems(&mut self, changed: bool) {
        self.problems_changed = changed;
    }

    pub(super) fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.problems.values().flatten()
    }

    fn replace_derived(
        &mut self,
        unit: &TranslationUnit,
        derived: Option<DerivedOutput>,
        changes: &mut OutputChanges,
    ) {
        if self.derived.get(unit) == derived.as_ref() {
            return;
        }
        match derived {
            Some(derived) => self.derived.insert(unit.clone(), derived),
            None => self.derived.remove(unit),
        };
        changes.facts.push(ReadKey::Derived(unit.clone()));
    }

    fn replace_attachments(
        &mut self,
        unit: &TranslationUnit,
        before: &[SectionKey],
        after: &[SectionKey],
        changes: &mut OutputChanges,
    ) {
        let TranslationUnit::Route(route) = unit else { return };
        for section in difference(before, after).chain(difference(after, before)) {
            let routes = self.attached.entry(section.clone()).or_default();
            if after.binary_search(section).is_ok() {
                routes.insert(route.clone());
            } else {
                routes.remove(route);
            }
            if routes.is_empty() {
                self.attached.remove(section);
            }
            changes.facts.push(ReadKey::Attached(section.clone()));
            if is_stream_route(route) {
                changes.units.push(TranslationUnit::StreamSection(section.clone()));
            }
        }
    }

    fn replace_policies(&mut self, before: &OutputKeys, after: &OutputKeys, changes: &mut OutputChanges) {
        let (left, joined) =
            (difference(&before.policies, &after.policies), difference(&after.policies, &before.policies));
        for used in left.chain(joined) {
            let users = self.policy_users.entry(used.policy.clone()).or_default();
            let differs = if after.policies.binary_search(used).is_ok() {
                let count = users.entry(used.gateway.clone()).or_default();
                *count += 1;
                *count == 1
            } else {
                release(users, &used.gateway)
            };
            if users.is_empty() {
                self.policy_users.remove(&used.policy);
            }
            if differs {
                changes.facts.push(ReadKey::PolicyUsers(used.policy.clone()));
            }
        }
    }

    fn replace_groups(
        &mut self,
        before: &[(IngressGroup, IngressMember)],
        after: &[(IngressGroup, IngressMember)],
        changes: &mut OutputChanges,
    ) {
        for entry in difference(before, after).chain(difference(after, before)) {
            let (group, member) = entry;
            let members = self.ingress_groups.entry(group.clone()).or_default();
            let first = members.first().cloned();
            if after.binary_search(entry).is_ok() {
                members.insert(member.clone());
            } else {
                members.remove(member);
            }
            if members.first() != first.as_ref() {
                changes.facts.push(ReadKey::FirstIngress(group.clone()));
            }
            if members.is_empty() {
                self.ingress_groups.remove(group);
            }
            changes.facts.push(ReadKey::Ingresses(group.clone()));
            match group {
                IngressGroup::Host(host) => changes.units.push(TranslationUnit::IngressHost(host.clone())),
                // The default server exists beside any other host.
                IngressGroup::Served => {
                    changes.units.push(TranslationUnit::IngressListeners);
                    changes.units.push(TranslationUnit::IngressHost("".into()));
                }
                IngressGroup::Alias(_) | IngressGroup::Service { .. } => {}
            }
        }
    }

    fn replace_problems(&mut self, unit: &TranslationUnit, problems: Vec<Problem>) {
        if self.problems_of(unit) == problems.as_slice() {
            return;
        }
        self.problems_changed = true;
        if problems.is_empty() {
            self.problems.remove(unit);
        } else {
            self.problems.insert(unit.clone(), problems);
        }
    }
}

/// Replaces the values of a unit. Returns the keys whose values differ.
fn replace_owned<K: Ord + std::hash::Hash + Clone, V: PartialEq + Clone>(
    table: &mut OwnedTable<K, V>,
    unit: &TranslationUnit,
    before: &[K],
    after: BTreeMap<K, V>,
) -> Vec<K> {
    let removed = before.iter().filter(|key| !after.contains_key(*key));
    let mut changed: Vec<K> = removed.filter(|key| table.remove(unit, key)).cloned().collect();
    for (key, value) in after {
        if table.put(unit, key.clone(), value) {
            changed.push(key);
        }
    }
    changed
}

/// The values that a unit owns.
fn owned_values<K: Ord + std::hash::Hash + Clone, V: PartialEq + Clone>(
    table: &OwnedTable<K, V>,
    unit: &TranslationUnit,
    keys: &[K],
) -> BTreeMap<K, V> {
    let values = keys.iter().filter_map(|key| Some((key.clone(), table.of_owner(unit, key)?.clone())));
    values.collect()
}

/// Counts the uses of one unit. Returns the keys that are now used for the first time, or no longer.
fn count_uses<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, before: &[K], after: &[K]) -> Vec<K> {
    let mut changed = Vec::new();
    for key in difference(after, before) {
        let count = counts.entry(key.clone()).or_default();
        *count += 1;
        if *count == 1 {
            changed.push(key.clone());
        }
    }
    changed.extend(difference(before, after).filter(|key| release(counts, *key)).cloned());
    changed
}

/// Counts one use less. Returns whether it was the last one.
fn release<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else { return false };
    *count = count.saturating_sub(1);
    let is_last = *count == 0;
    if is_last {
        counts.remove(key);
    }
    is_last
}

fn is_stream_route(route: &ObjectKey) -> bool {
    matches!(route.kind, ClusterKind::TcpRoute | ClusterKind::UdpRoute)
}
