//! Endpoints of the services that upstreams find by service discovery. Knows no source of discovery.

use std::collections::BTreeMap;
use std::sync::Arc;

use yumen_base::Problem;
use yumen_config::resource as config;

use super::{InputEffect, SetOfNames};
use crate::compile::names::ObjectName;

/// A request to a source of service discovery.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiscoveryQuery {
    /// The source: `discovery_type` of the upstream.
    pub source: Box<str>,
    /// The name of the service: `service_name`.
    pub name: Box<str>,
    /// `discovery_args` as JSON; empty without arguments.
    pub args: Box<str>,
}

/// The state of a service, from a source.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DiscoveryResult {
    /// The nodes; `None` leaves the known ones in force.
    pub nodes: Option<Vec<config::UpstreamNode>>,
    /// The reason of a failure.
    pub error: Option<Box<str>>,
}

impl DiscoveryQuery {
    /// The query of an upstream. `None` for an upstream with nodes.
    pub(crate) fn of(written: &config::UpstreamSpec) -> Option<DiscoveryQuery> {
        if written.nodes.is_some() {
            return None;
        }
        let args = written.discovery_args.as_ref().filter(|args| !args.is_null());
        Some(DiscoveryQuery {
            source: written.discovery_type.as_deref()?.into(),
            name: written.service_name.as_deref()?.into(),
            args: args.map(ToString::to_string).unwrap_or_default().into(),
        })
    }
}

#[derive(Debug, Default)]
struct DiscoveryEntry {
    owners: SetOfNames,
    /// The number of this request. A service that was released and required again has another number.
    number: u64,
    found: DiscoveryResult,
}

/// The required services with their owners and nodes.
///
/// Services without an owner stay until [`DiscoveredServices::remove_unused`], as host names do.
#[derive(Debug, Default)]
pub(crate) struct DiscoveredServices {
    required: BTreeMap<Arc<DiscoveryQuery>, DiscoveryEntry>,
    /// Services that lost an owner since the last clean-up.
    released: Vec<DiscoveryQuery>,
}

impl DiscoveredServices {
    /// The required services, each with the number of its request.
    pub(crate) fn required(&self) -> impl Iterator<Item = (&Arc<DiscoveryQuery>, u64)> {
        self.required.iter().map(|(service, entry)| (service, entry.number))
    }

    pub(crate) fn len(&self) -> usize {
        self.required.len()
    }

    /// The known nodes of a service.
    pub(crate) fn nodes_of(&self, service: &DiscoveryQuery) -> &[config::UpstreamNode] {
        self.required.get(service).and_then(|entry| entry.found.nodes.as_deref()).unwrap_or_default()
    }

    /// The name of a service in messages, if no nodes of it are known.
    pub(crate) fn label_if_unknown(&self, service: &DiscoveryQuery) -> Option<Box<str>> {
        let is_known = self.required.get(service).is_some_and(|entry| entry.found.nodes.is_some());
        (!is_known).then(|| format!("the service {} ({})", service.name, service.source).into())
    }

    /// Adds an owner of a service; `number` is for a service that is new.
    pub(crate) fn require(&mut self, service: DiscoveryQuery, owner: &ObjectName, number: u64) {
        let new = || DiscoveryEntry { number, ..DiscoveryEntry::default() };
        self.required.entry(Arc::new(service)).or_insert_with(new).owners.insert(owner.clone());
    }

    /// Removes an owner of a service.
    pub(crate) fn release(&mut self, service: &DiscoveryQuery, owner: &ObjectName) {
        let Some(entry) = self.required.get_mut(service) else { return };
        entry.owners.remove(owner);
        if entry.owners.is_empty() {
            self.released.push(service.clone());
        }
    }

    /// Forgets services without an owner; returns whether there were any.
    pub(crate) fn remove_unused(&mut self) -> bool {
        let mut has_removed = false;
        for service in std::mem::take(&mut self.released) {
            // The service may have another owner by now.
            if self.required.get(&service).is_some_and(|entry| entry.owners.is_empty()) {
                self.required.remove(&service);
                has_removed = true;
            }
        }
        has_removed
    }

    /// Stores a result of discovery.
    pub(crate) fn set(&mut self, service: &DiscoveryQuery, found: DiscoveryResult) -> InputEffect {
        let mut effect = InputEffect::default();
        // The service may have lost its last owner while the query ran.
        let Some(entry) = self.required.get_mut(service) else { return effect };
        // A repeated failure changes no problem, so it touches no owner.
        if entry.found.error != found.error {
            entry.found.error = found.error;
            effect.reported.extend(entry.owners.iter().cloned());
        }
        // An equal result rebuilds no upstream.
        if let Some(nodes) = found.nodes.filter(|nodes| entry.found.nodes.as_ref() != Some(nodes)) {
            entry.found.nodes = Some(nodes);
            effect.outdated.extend(entry.owners.iter().cloned());
        }
        effect
    }

    /// The failure of a service, as a problem of an owner.
    pub(crate) fn problem(&self, service: &DiscoveryQuery, owner: &ObjectName) -> Option<Problem> {
        let error = self.required.get(service)?.found.error.as_deref()?;
        Some(Problem::warning(owner.to_string(), "service_name", format!("{}: {error}", service.source)))
    }

    /// The owners of failing services.
    pub(crate) fn failing_owners(&self) -> impl Iterator<Item = &ObjectName> {
        self.required.values().filter(|entry| entry.found.error.is_some()).flat_map(|entry| &entry.owners)
    }
}

#[cfg(test)]
mod tests;
