//! Host names, services and fetched values that the compiled configuration requires, and which of them have a result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::watch;
use yumen_plugin::{FetchRequest, FetchSource};
use yumen_snapshot::compile::{Compiler, ConfigChange, DiscoveryQuery, FetchedResult};

use crate::endpoints::inputs::{KnownInputs, RequiredHosts, RequiredServices};
use crate::fetched::{RequiredFetch, RequiredFetches, digest};

/// Required inputs, as exported to resolvers, discovery and fetchers.
pub(super) struct RequiredEndpoints {
    /// Inputs of the predecessor, for the first compilation.
    initial: KnownInputs,
    hosts: watch::Sender<RequiredHosts>,
    services: watch::Sender<RequiredServices>,
    fetches: watch::Sender<RequiredFetches>,
    /// Host names with at least one lookup result, successful or not.
    looked_up: BTreeSet<Box<str>>,
    /// Services with at least one discovery result.
    queried: BTreeSet<Arc<DiscoveryQuery>>,
    /// Fetched values with at least one result.
    fetched: BTreeSet<Arc<FetchRequest>>,
    /// Request counter of the compiler at the last export.
    exported: Option<u64>,
}

impl RequiredEndpoints {
    pub(super) fn new(
        initial: KnownInputs,
        hosts: watch::Sender<RequiredHosts>,
        services: watch::Sender<RequiredServices>,
        fetches: watch::Sender<RequiredFetches>,
    ) -> RequiredEndpoints {
        RequiredEndpoints {
            initial,
            hosts,
            services,
            fetches,
            looked_up: BTreeSet::new(),
            queried: BTreeSet::new(),
            fetched: BTreeSet::new(),
            exported: None,
        }
    }

    /// Records a lookup result of a host name, if the name is still required.
    pub(super) fn note_lookup(&mut self, host: &str) {
        if self.hosts.borrow().contains_key(host) {
            self.looked_up.insert(host.into());
        }
    }

    /// Records a discovery result of a service, if the service is still required.
    pub(super) fn note_discovery(&mut self, service: &Arc<DiscoveryQuery>) {
        if self.services.borrow().contains_key(service) {
            self.queried.insert(service.clone());
        }
    }

    /// Records a result of a fetch, if the value is still required.
    pub(super) fn note_fetch(&mut self, request: &Arc<FetchRequest>) {
        if self.fetches.borrow().contains_key(request) {
            self.fetched.insert(request.clone());
        }
    }

    /// Takes the predecessor's inputs; empty after the first call.
    pub(super) fn take_initial(&mut self) -> KnownInputs {
        std::mem::take(&mut self.initial)
    }

    /// Moves the inputs that the compiler requires from `known` into changes.
    pub(super) fn changes_from(&mut self, known: &mut KnownInputs, compiler: &Compiler) -> Vec<ConfigChange> {
        let mut changes = Vec::new();
        for (host, _) in compiler.hosts() {
            if let Some(change) = known.take_name(host) {
                self.looked_up.insert(host.into());
                changes.push(change);
            }
        }
        for (service, _) in compiler.services() {
            if let Some(change) = known.take_service(service) {
                self.queried.insert(service.clone());
                changes.push(change);
            }
        }
        // Digests are computed only for a successor.
        if known.documents.is_empty() {
            return changes;
        }
        for (request, _, _) in compiler.fetches() {
            let Some(document) = known.documents.remove(&digest(request)) else { continue };
            // A value that this version cannot parse is fetched.
            if let Ok(value) = (request.format.parse)(&document.bytes) {
                self.fetched.insert(request.clone());
                let result = FetchedResult { value: Some(value), ..FetchedResult::default() };
                changes.push(ConfigChange::Fetched(request.clone(), result));
            }
        }
        changes
    }

    /// Exports the inputs that the compiler requires now. Returns the numbers of those without a first result.
    pub(super) fn export(&mut self, compiler: &Compiler) -> AwaitedInputs {
        if self.exported != Some(compiler.input_number()) {
            self.exported = Some(compiler.input_number());
            let hosts = compiler.hosts().map(|(host, number)| (Box::from(host), number)).collect();
            let services = compiler.services().map(|(service, number)| (service.clone(), number)).collect();
            let fetches = compiler.fetches().map(|(request, cell, number)| {
                (request.clone(), RequiredFetch { number, cell: cell.clone() })
            });
            let fetches = fetches.collect();
            self.looked_up.retain(|host| is_same(&hosts, &self.hosts.borrow(), host));
            self.queried.retain(|service| is_same(&services, &self.services.borrow(), service));
            self.fetched.retain(|request| is_same(&fetches, &self.fetches.borrow(), request));
            replace(&self.hosts, hosts);
            replace(&self.services, services);
            replace(&self.fetches, fetches);
        }
        let fetches = self.fetches.borrow();
        let required = self.hosts.borrow().len() + self.services.borrow().len() + fetches.len();
        let known = self.looked_up.len() + self.queried.len() + self.fetched.len();
        let awaited = required.saturating_sub(known);
        let is_awaited_secret = |request: &&Arc<FetchRequest>| {
            matches!(request.source, FetchSource::Secret(_)) && !self.fetched.contains(*request)
        };
        // Not counted in the common case: the work of a change must not grow with the number of secrets.
        let secrets = match awaited {
            0 => 0,
            _ => fetches.keys().filter(is_awaited_secret).count(),
        };
        AwaitedInputs { all: awaited as u64, secrets: secrets as u64 }
    }
}

/// Numbers of inputs without a first result.
pub(super) struct AwaitedInputs {
    pub(super) all: u64,
    /// Secrets among them.
    pub(super) secrets: u64,
}

/// Whether `key` is still required under the same request number. Results that precede the first export stay
/// valid.
fn is_same<K: Ord, V: PartialEq>(next: &BTreeMap<K, V>, before: &BTreeMap<K, V>, key: &K) -> bool {
    next.get(key).is_some_and(|number| before.get(key).is_none_or(|known| known == number))
}

/// Replaces the value, and notifies receivers only if it differs.
fn replace<T: PartialEq>(exported: &watch::Sender<Arc<T>>, next: T) {
    exported.send_if_modified(|known| {
        let is_new = **known != next;
        *known = Arc::new(next);
        is_new
    });
}
