//! Inputs of compilation from outside the resources: addresses of host names, nodes of discovered services, fetched
//! values.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;
use yumen_base::Problem;
use yumen_base::local_address::is_local_address;
use yumen_plugin::FetchRequest;

use super::discovered::{DiscoveredServices, DiscoveryQuery, DiscoveryResult};
use super::fetched::{FetchedDocuments, FetchedResult, RequestedFetch};
use super::host_addresses::ResolvedHosts;
use crate::compile::names::ObjectName;

/// Inputs of one upstream beside its text.
#[derive(Debug, Default)]
pub(crate) struct UpstreamDependencies {
    pub(crate) hosts: Vec<Box<str>>,
    /// Those of `hosts` of which addresses of the machine are no endpoints.
    pub(crate) excluding_local: Vec<Box<str>>,
    pub(crate) service: Option<DiscoveryQuery>,
    /// The id of the ssl object with the client certificate.
    pub(crate) certificate: Option<Arc<str>>,
}

impl UpstreamDependencies {
    fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.service.is_none() && self.certificate.is_none()
    }
}

/// The objects that a new input concerns.
#[derive(Debug, Default)]
pub(crate) struct InputEffect {
    /// Objects whose problems may have changed.
    pub(crate) reported: Vec<ObjectName>,
    /// Objects whose upstream has other endpoints now.
    pub(crate) outdated: Vec<ObjectName>,
    /// Objects that were built from the input.
    pub(crate) restaged: Vec<ObjectName>,
    /// Objects whose last good version may not stay in force.
    pub(crate) withdrawn: Vec<ObjectName>,
}

/// The inputs, and the objects that require them.
#[derive(Debug, Default)]
pub(crate) struct ExternalInputs {
    hosts: ResolvedHosts,
    services: DiscoveredServices,
    fetched: FetchedDocuments,
    /// Every host and service here is in the tables above, with this owner. No entry is empty.
    dependencies: HashMap<ObjectName, UpstreamDependencies, RandomState>,
    /// Grows when a host, service or fetched value is added or removed.
    generation: u64,
}

impl ExternalInputs {
    pub(crate) fn hosts(&self) -> &ResolvedHosts {
        &self.hosts
    }

    pub(crate) fn services(&self) -> &DiscoveredServices {
        &self.services
    }

    pub(crate) fn fetched(&self) -> &FetchedDocuments {
        &self.fetched
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn resolve(&mut self, host: Box<str>, addresses: Vec<IpAddr>) -> InputEffect {
        self.hosts.set(host, addresses)
    }

    pub(crate) fn discover(&mut self, service: &DiscoveryQuery, found: DiscoveryResult) -> InputEffect {
        self.services.set(service, found)
    }

    /// The fetched values that were removed since the last call.
    pub(crate) fn take_removed_fetches(&mut self) -> Vec<Arc<FetchRequest>> {
        self.fetched.take_removed()
    }

    pub(crate) fn fetch(&mut self, request: &FetchRequest, result: FetchedResult) -> InputEffect {
        self.fetched.set(request, result)
    }

    /// Replaces the values that an object requires.
    pub(crate) fn set_fetches(&mut self, owner: &ObjectName, requests: Vec<RequestedFetch>) {
        if requests.is_empty() && !self.fetched.has_owner(owner) {
            return;
        }
        let kept: Vec<Arc<FetchRequest>> = requests.iter().map(|one| one.request.clone()).collect();
        // New values are added before old ones are released, so that a value of both stays required.
        self.add_fetches(owner, requests);
        self.fetched.release_others(owner, &kept);
    }

    /// Adds values that an object requires beside its previous ones.
    pub(crate) fn add_fetches(&mut self, owner: &ObjectName, requests: Vec<RequestedFetch>) {
        let size = self.fetched.len();
        self.fetched.require(owner, requests, self.generation + 1);
        self.generation += u64::from(size != self.fetched.len());
    }

    /// Replaces the dependencies of an owner's upstream; returns the previous certificate.
    pub(crate) fn set_dependencies(
        &mut self,
        owner: &ObjectName,
        current: UpstreamDependencies,
    ) -> Option<Arc<str>> {
        let sizes = (self.hosts.len(), self.services.len());
        let number = self.generation + 1;
        // New dependencies are added before old ones are released, so that an input of both stays required.
        for host in &current.hosts {
            self.hosts.require(host, owner, number);
        }
        if let Some(service) = &current.service {
            self.services.require(service.clone(), owner, number);
        }
        self.generation += u64::from(sizes != (self.hosts.len(), self.services.len()));
        let previous = self.dependencies.remove(owner).unwrap_or_default();
        for host in previous.hosts.into_iter().filter(|host| !current.hosts.contains(host)) {
            self.hosts.release(host, owner);
        }
        if let Some(service) = previous.service.filter(|service| current.service.as_ref() != Some(service)) {
            self.services.release(&service, owner);
        }
        if !current.is_empty() {
            self.dependencies.insert(owner.clone(), current);
        }
        previous.certificate
    }

    /// Forgets inputs that no upstream requires at the end of a change.
    pub(crate) fn remove_unused(&mut self) {
        // All tables are cleaned, so no short circuit.
        let has_removed =
            self.hosts.remove_unused() | self.services.remove_unused() | self.fetched.remove_unused();
        // Followers compare this number instead of the lists.
        self.generation += u64::from(has_removed);
    }

    /// Problems of missing inputs of an object.
    pub(crate) fn problems_of(&self, owner: &ObjectName) -> Vec<Problem> {
        let fetched = self.fetched.problems_of(owner);
        let Some(dependencies) = self.dependencies.get(owner) else { return fetched };
        let unresolved = dependencies.hosts.iter().filter(|host| self.hosts.is_unresolved(host));
        let warning = |host| Problem::warning(owner.to_string(), "nodes", format!("{host} has no address"));
        let service = dependencies.service.as_ref();
        let failing = service.and_then(|service| self.services.problem(service, owner));
        let local = dependencies.excluding_local.iter().filter(|host| self.is_local(host)).map(|host| {
            let message =
                format!("{host} has addresses of the gateway's machine only, which are no endpoints");
            Problem::warning(owner.to_string(), "nodes", message)
        });
        unresolved.map(warning).chain(local).chain(failing).chain(fetched).collect()
    }

    /// The objects with such a problem.
    pub(crate) fn failing_objects(&self) -> impl Iterator<Item = &ObjectName> {
        let upstreams = self.hosts.unresolved_owners().chain(self.services.failing_owners());
        let of_local = |one: &(&ObjectName, &UpstreamDependencies)| {
            one.1.excluding_local.iter().any(|host| self.is_local(host))
        };
        let excluded = self.dependencies.iter().filter(of_local).map(|(owner, _)| owner);
        upstreams.chain(excluded).chain(self.fetched.failing_owners())
    }

    /// Whether a name has addresses of the machine only.
    fn is_local(&self, host: &str) -> bool {
        let known = self.hosts.addresses_of(host).unwrap_or_default();
        !known.is_empty() && known.iter().all(|address| is_local_address(*address))
    }
}

#[cfg(test)]
mod tests;
