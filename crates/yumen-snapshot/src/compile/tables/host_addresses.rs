//! Addresses of the host names that upstreams use. Knows no resolver.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use foldhash::fast::RandomState;

use super::{InputEffect, SetOfNames};
use crate::compile::names::ObjectName;

#[derive(Debug)]
struct HostOwners {
    /// The objects with an upstream that uses the name.
    owners: SetOfNames,
    /// The number of this request for addresses. A name that was released and required again has another number.
    number: u64,
}

/// The required host names with their owners and addresses.
///
/// Names without an owner stay until [`HostAddresses::remove_unused`]: an object that replaces another one in the same
/// change finds the addresses of its predecessor.
#[derive(Debug, Default)]
pub(crate) struct ResolvedHosts {
    required: BTreeMap<Box<str>, HostOwners>,
    /// Names that lost an owner since the last clean-up.
    released: Vec<Box<str>>,
    /// Addresses, sorted and without duplicates. Every name here is required.
    addresses: HashMap<Box<str>, Box<[IpAddr]>, RandomState>,
    /// Required names whose last resolution failed.
    unresolved: BTreeSet<Box<str>>,
}

impl ResolvedHosts {
    pub(crate) fn len(&self) -> usize {
        self.required.len()
    }

    /// The required names, each with the number of its request.
    pub(crate) fn required(&self) -> impl Iterator<Item = (&str, u64)> {
        self.required.iter().map(|(host, entry)| (&**host, entry.number))
    }

    /// The known addresses of a name.
    pub(crate) fn addresses_of(&self, host: &str) -> Option<&[IpAddr]> {
        self.addresses.get(host).map(Box::as_ref)
    }

    /// Whether the last resolution of a name failed.
    pub(crate) fn is_unresolved(&self, host: &str) -> bool {
        self.unresolved.contains(host)
    }

    /// The owners of names whose last resolution failed.
    pub(crate) fn unresolved_owners(&self) -> impl Iterator<Item = &ObjectName> {
        self.unresolved.iter().filter_map(|host| self.required.get(host)).flat_map(|entry| &entry.owners)
    }

    /// Adds an owner of a name; `number` is for a name that is new.
    pub(crate) fn require(&mut self, host: &str, owner: &ObjectName, number: u64) {
        let new = || HostOwners { owners: SetOfNames::new(), number };
        self.required.entry(host.into()).or_insert_with(new).owners.insert(owner.clone());
    }

    /// Removes an owner of a name.
    pub(crate) fn release(&mut self, host: Box<str>, owner: &ObjectName) {
        let Some(entry) = self.required.get_mut(&host) else { return };
        entry.owners.remove(owner);
        if entry.owners.is_empty() {
            self.released.push(host);
        }
    }

    /// Forgets names without an owner; returns whether there were any.
    pub(crate) fn remove_unused(&mut self) -> bool {
        let mut has_removed = false;
        for host in std::mem::take(&mut self.released) {
            // The name may have another owner by now.
            if self.required.get(&host).is_some_and(|entry| entry.owners.is_empty()) {
                self.required.remove(&host);
                self.addresses.remove(&host);
                self.unresolved.remove(&host);
                has_removed = true;
            }
        }
        has_removed
    }

    /// Stores the addresses of a name. No addresses mean that the resolution failed: the previous ones stay in force.
    pub(crate) fn set(&mut self, host: Box<str>, mut addresses: Vec<IpAddr>) -> InputEffect {
        // The name may have lost its last owner while it was resolved.
        let Some(entry) = self.required.get(&host) else { return InputEffect::default() };
        let owners = || entry.owners.iter().cloned().collect();
        if addresses.is_empty() {
            // Stale addresses serve better than none: a failing resolver must not take down an upstream.
            let effect = InputEffect { reported: owners(), ..InputEffect::default() };
            self.unresolved.insert(host);
            return effect;
        }
        // DNS servers rotate the order of records; another order is no change.
        addresses.sort_unstable();
        addresses.dedup();
        self.unresolved.remove(&host);
        // Equal addresses rebuild no upstream.
        if self.addresses.get(&host).is_some_and(|known| **known == *addresses) {
            return InputEffect::default();
        }
        let effect = InputEffect { outdated: owners(), ..InputEffect::default() };
        self.addresses.insert(host, addresses.into());
        effect
    }
}
