//! What service discovery said, as an input of compilation: who wants which service, and its nodes.
//!
//! Knows neither sources nor how they are asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use yumen_base::Problem;
use yumen_config::resource as config;

use super::{ObjectName, SetOfNames};

/// What a source is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiscoveryQuery {
    /// Who is asked: `discovery_type` of the upstream.
    pub source: Box<str>,
    /// The name there: `service_name`.
    pub name: Box<str>,
    /// `discovery_args` as JSON; empty where there are none.
    pub args: Box<str>,
}

/// What a source said of a service.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DiscoveryResult {
    /// Its nodes; `None` leaves those known before in force.
    pub nodes: Option<Vec<config::UpstreamNode>>,
    /// What is wrong, where something is.
    pub trouble: Option<Box<str>>,
}

impl DiscoveryQuery {
    /// What an upstream asks for, where it asks instead of naming nodes.
    pub(super) fn of(written: &config::UpstreamSpec) -> Option<DiscoveryQuery> {
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
    /// The number of the want: it is another one where the service was let go in between.
    number: u64,
    found: DiscoveryResult,
}

/// All services that upstreams want, and what is known of them.
#[derive(Debug, Default)]
pub(super) struct DiscoveredServices {
    held: BTreeMap<Arc<DiscoveryQuery>, DiscoveryEntry>,
    /// Those that somebody has ceased to want since the last change ended.
    released: Vec<DiscoveryQuery>,
}

impl DiscoveredServices {
    /// Every service with the number of its want.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (&Arc<DiscoveryQuery>, u64)> {
        self.held.iter().map(|(service, held)| (service, held.number))
    }

    /// How many services are wanted.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn nodes(&self, service: &DiscoveryQuery) -> &[config::UpstreamNode] {
        self.held.get(service).and_then(|held| held.found.nodes.as_deref()).unwrap_or_default()
    }

    /// What to call a service of which nothing is known here.
    pub(super) fn unknown(&self, service: &DiscoveryQuery) -> Option<Box<str>> {
        let is_known = self.held.get(service).is_some_and(|held| held.found.nodes.is_some());
        (!is_known).then(|| format!("the service {} ({})", service.name, service.source).into())
    }

    pub(super) fn add_owner(&mut self, service: DiscoveryQuery, owner: &ObjectName, number: u64) {
        let new = || DiscoveryEntry { number, ..DiscoveryEntry::default() };
        self.held.entry(Arc::new(service)).or_insert_with(new).owners.insert(owner.clone());
    }

    pub(super) fn release(&mut self, service: &DiscoveryQuery, owner: &ObjectName) {
        let Some(held) = self.held.get_mut(service) else { return };
        held.owners.remove(owner);
        if held.owners.is_empty() {
            self.released.push(service.clone());
        }
    }

    /// Forgets those that nobody wants; whether there were any.
    pub(super) fn remove_unused(&mut self) -> bool {
        let mut has_gone = false;
        for service in std::mem::take(&mut self.released) {
            if self.held.get(&service).is_some_and(|held| held.owners.is_empty()) {
                self.held.remove(&service);
                has_gone = true;
            }
        }
        has_gone
    }

    /// Takes an answer in. Objects whose findings change are `touched`, those whose nodes change are to
    /// `rebuild`.
    pub(super) fn take(
        &mut self,
        service: &DiscoveryQuery,
        found: DiscoveryResult,
        touched: &mut SetOfNames,
        rebuild: &mut SetOfNames,
    ) {
        let Some(held) = self.held.get_mut(service) else { return };
        if held.found.trouble != found.trouble {
            held.found.trouble = found.trouble;
            touched.extend(held.owners.iter().cloned());
        }
        if let Some(nodes) = found.nodes.filter(|nodes| held.found.nodes.as_ref() != Some(nodes)) {
            held.found.nodes = Some(nodes);
            rebuild.extend(held.owners.iter().cloned());
        }
    }

    pub(super) fn problem(&self, service: &DiscoveryQuery, owner: &ObjectName) -> Option<Problem> {
        let trouble = self.held.get(service)?.found.trouble.as_deref()?;
        Some(Problem::warning(owner.to_string(), "service_name", format!("{}: {trouble}", service.source)))
    }

    /// The objects with a finding of this kind.
    pub(super) fn failing_objects(&self) -> impl Iterator<Item = &ObjectName> {
        self.held.values().filter(|held| held.found.trouble.is_some()).flat_map(|held| &held.owners)
    }
}

#[cfg(test)]
mod tests;
