//! The numbers of listeners in a snapshot, and the host names that scopes claim on them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use yumen_plugin::ListenerNumber;

use super::Table;
use crate::scope::{
    ANY_HOST, CompiledListener, CompiledListeners, HostMap, HostTrie, ListenSettings, ScopeOfHost,
};

/// The precedence of a scope: the older, then the lower id.
pub(crate) type ScopeAge = (i64, Arc<str>);

/// The scopes that claim a host pattern. The first has it.
type PatternClaims = BTreeMap<ScopeAge, ScopeOfHost>;

/// The host patterns of one listener, which need not exist.
#[derive(Debug, Default)]
struct HostClaims {
    by_pattern: BTreeMap<Box<str>, PatternClaims>,
    /// The first claimant of each pattern.
    assigned: HostTrie,
    /// Patterns whose first claimant passes TLS through.
    passed_through: usize,
}

impl HostClaims {
    /// Gives a pattern to its first claimant.
    fn assign(&mut self, pattern: &str) {
        let claims = self.by_pattern.get(pattern);
        let winner = claims.and_then(|claims| claims.values().next()).copied();
        if claims.is_some_and(BTreeMap::is_empty) {
            self.by_pattern.remove(pattern);
        }
        let former = self.assigned.set(pattern, winner);
        let counts = |one: Option<ScopeOfHost>| usize::from(one.is_some_and(|one| one.passes_through));
        self.passed_through = self.passed_through + counts(winner) - counts(former);
    }

    fn map(&self) -> HostMap {
        let only = (self.by_pattern.len() == 1).then(|| self.by_pattern.get(ANY_HOST)).flatten();
        match only.and_then(|claims| claims.values().next()) {
            Some(any) => HostMap::Any(any.slot),
            None if self.by_pattern.is_empty() => HostMap::None,
            None => HostMap::Named(self.assigned.clone()),
        }
    }
}

/// Assigns numbers to listeners, and keeps the listeners by slot.
///
/// A listener keeps its number while it exists and keeps its protocol. A slot that is used again gets another epoch: connections outlive
/// their listener, and must not find the next one.
#[derive(Debug)]
pub(crate) struct ListenerDirectory {
    slots: Table<u16>,
    listeners: CompiledListeners,
    /// The epoch of the last listener of each slot.
    epochs: Vec<u16>,
    /// Empty slots, the longest empty one first, so that an epoch repeats as late as possible.
    free: VecDeque<u16>,
    /// By id of the listener. No entry is without a claim.
    hosts: Table<HostClaims>,
}

impl Default for ListenerDirectory {
    fn default() -> ListenerDirectory {
        let mut listeners = CompiledListeners::default();
        // Slot 0 stands for the listeners of the node's settings.
        listeners.add();
        ListenerDirectory {
            slots: Table::default(),
            listeners,
            epochs: vec![0],
            free: VecDeque::new(),
            hosts: Table::default(),
        }
    }
}

impl ListenerDirectory {
    /// The listeners by slot, for a snapshot.
    pub(crate) fn table(&self) -> &CompiledListeners {
        &self.listeners
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Arc<CompiledListener>> {
        self.listeners.get(usize::from(*self.slots.get(id)?))
    }

    /// Adds a listener or replaces its settings; false if every slot is taken.
    pub(crate) fn put(&mut self, id: &Arc<str>, created_s: i64, settings: ListenSettings) -> bool {
        let former = self.get(id);
        let settings = match former {
            // The supervisor of sockets compares settings by their allocation.
            Some(former) if *former.settings == settings => former.settings.clone(),
            _ => Arc::new(settings),
        };
        // Connections of another protocol, such as HTTP in plaintext, count as those of a closed listener.
        let protocol = former.map(|former| (former.number, former.settings.protocol == settings.protocol));
        let number = match protocol {
            Some((number, true)) => Some(number),
            Some((number, false)) => Some(self.next_epoch(number.slot)),
            None => self.next_number(),
        };
        let Some(number) = number else { return false };
        self.slots.insert(id.clone(), number.slot);
        let (hosts, needs_sni) = self.hosts_of(id);
        let listener = CompiledListener { id: id.clone(), number, created_s, settings, hosts, needs_sni };
        self.listeners.set(usize::from(number.slot), Some(Arc::new(listener)));
        true
    }

    /// Removes a listener. The claims of scopes stay.
    pub(crate) fn remove(&mut self, id: &str) {
        if let Some(slot) = self.slots.remove(id) {
            self.listeners.set(usize::from(slot), None);
            self.free.push_back(slot);
        }
    }

    /// Claims host patterns on a listener for a scope; see [`ListenerDirectory::refresh`].
    pub(crate) fn claim(&mut self, listener: &Arc<str>, age: &ScopeAge, hosts: &[(Box<str>, ScopeOfHost)]) {
        let claims = self.hosts.entry(listener.clone()).or_default();
        for (pattern, scope) in hosts {
            claims.by_pattern.entry(pattern.clone()).or_default().insert(age.clone(), *scope);
            claims.assign(pattern);
        }
    }

    /// Releases host patterns of a scope; each passes to the next claimant. See [`ListenerDirectory::refresh`].
    pub(crate) fn release(&mut self, listener: &str, age: &ScopeAge, hosts: &[(Box<str>, ScopeOfHost)]) {
        let Some(claims) = self.hosts.get_mut(listener) else { return };
        for (pattern, _) in hosts {
            if let Some(of_pattern) = claims.by_pattern.get_mut(pattern) {
                of_pattern.remove(age);
            }
            claims.assign(pattern);
        }
        if claims.by_pattern.is_empty() {
            self.hosts.remove(listener);
        }
    }

    /// Puts changed claims of a listener in force.
    pub(crate) fn refresh(&mut self, listener: &str) {
        let Some(slot) = self.slots.get(listener).map(|slot| usize::from(*slot)) else { return };
        let Some(known) = self.listeners.get(slot) else { return };
        let (hosts, needs_sni) = self.hosts_of(listener);
        let changed = CompiledListener { hosts, needs_sni, ..CompiledListener::clone(known) };
        self.listeners.set(slot, Some(Arc::new(changed)));
    }

    /// The scopes that claim a pattern on a listener, by precedence.
    pub(crate) fn claimants<'d>(
        &'d self,
        listener: &str,
        pattern: &str,
    ) -> impl Iterator<Item = &'d Arc<str>> + use<'d> {
        let claims = self.hosts.get(listener).and_then(|claims| claims.by_pattern.get(pattern));
        claims.into_iter().flat_map(|claims| claims.keys().map(|(_, id)| id))
    }

    /// The scopes with a pattern that an older one has.
    pub(crate) fn outranked(&self) -> impl Iterator<Item = &Arc<str>> {
        let patterns = self.hosts.values().flat_map(|claims| claims.by_pattern.values());
        patterns.flat_map(|claims| claims.keys().skip(1).map(|(_, id)| id))
    }

    fn hosts_of(&self, id: &str) -> (HostMap, bool) {
        self.hosts.get(id).map_or((HostMap::None, false), |claims| (claims.map(), claims.passed_through > 0))
    }

    fn next_epoch(&mut self, slot: u16) -> ListenerNumber {
        let epoch = &mut self.epochs[usize::from(slot)];
        *epoch = epoch.wrapping_add(1);
        ListenerNumber { slot, epoch: *epoch }
    }

    fn next_number(&mut self) -> Option<ListenerNumber> {
        if let Some(slot) = self.free.pop_front() {
            return Some(self.next_epoch(slot));
        }
        let slot = u16::try_from(self.listeners.len()).ok()?;
        self.listeners.add();
        self.epochs.push(0);
        Some(ListenerNumber { slot, epoch: 0 })
    }
}

#[cfg(test)]
mod tests;
