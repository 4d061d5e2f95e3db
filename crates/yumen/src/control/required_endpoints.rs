//! Host names and services that the compiled configuration requires, and which of them have a result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::watch;
use yumen_snapshot::compile::{Compiler, ConfigChange, DiscoveryQuery};

use crate::endpoints::inputs::{KnownInputs, RequiredHosts, RequiredServices};

/// Required host names and services, as exported to resolvers and discovery.
pub(super) struct RequiredEndpoints {
    /// Endpoint data of the predecessor, for the first compilation.
    initial: KnownInputs,
    hosts: watch::Sender<RequiredHosts>,
    services: watch::Sender<RequiredServices>,
    /// Host names with at least one lookup result, successful or not.
    looked_up: BTreeSet<Box<str>>,
    /// Services with at least one discovery result.
    queried: BTreeSet<Arc<DiscoveryQuery>>,
    /// Request counter of the compiler at the last export.
    exported: Option<u64>,
}

impl RequiredEndpoints {
    pub(super) fn new(
        initial: KnownInputs,
        hosts: watch::Sender<RequiredHosts>,
        services: watch::Sender<RequiredServices>,
    ) -> RequiredEndpoints {
        let (looked_up, queried) = (BTreeSet::new(), BTreeSet::new());
        RequiredEndpoints { initial, hosts, services, looked_up, queried, exported: None }
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

    /// Takes the predecessor's endpoint data; empty after the first call.
    pub(super) fn take_initial(&mut self) -> KnownInputs {
        std::mem::take(&mut self.initial)
    }

    /// Moves the names and services that the compiler requires from `known` into changes.
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
        changes
    }

    /// Exports the names and services that the compiler requires now. Returns the number of those without a
    /// first result.
    pub(super) fn export(&mut self, compiler: &Compiler) -> u64 {
        if self.exported != Some(compiler.input_number()) {
            self.exported = Some(compiler.input_number());
            let hosts = compiler.hosts().map(|(host, number)| (Box::from(host), number)).collect();
            let services = compiler.services().map(|(service, number)| (service.clone(), number)).collect();
            self.looked_up.retain(|host| is_same(&hosts, &self.hosts.borrow(), host));
            self.queried.retain(|service| is_same(&services, &self.services.borrow(), service));
            replace(&self.hosts, hosts);
            replace(&self.services, services);
        }
        let required = self.hosts.borrow().len() + self.services.borrow().len();
        required.saturating_sub(self.looked_up.len() + self.queried.len()) as u64
    }
}

/// Whether `key` is still required under the same request number. Results that precede the first export stay
/// valid.
fn is_same<K: Ord>(next: &BTreeMap<K, u64>, before: &BTreeMap<K, u64>, key: &K) -> bool {
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
