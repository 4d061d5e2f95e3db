//! The slots of scopes in a snapshot, and the scopes that a change concerns.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Table;
use super::listener_directory::ScopeAge;
use crate::certificates::Certificates;
use crate::router::Router;
use crate::scope::{CompiledScope, CompiledScopes, ScopeOfHost, ScopeSlotId, ScopeTerms};
use crate::streams::StreamRouter;

/// A scope as its text defines it.
pub(crate) struct StagedScope {
    pub(crate) age: ScopeAge,
    pub(crate) listeners: Box<[Arc<str>]>,
    /// The host patterns in lower case; without any, the pattern of any host.
    pub(crate) hosts: Box<[(Box<str>, ScopeOfHost)]>,
    pub(crate) terms: ScopeTerms,
}

struct ScopeEntry {
    slot: ScopeSlotId,
    staged: StagedScope,
}

/// Assigns slots to scopes, and compiles again only those that a change concerns.
///
/// Freed slots are used again: listeners refer to scopes by slot within one snapshot only.
#[derive(Default)]
pub(crate) struct ScopeDirectory {
    entries: Table<ScopeEntry>,
    scopes: CompiledScopes,
    free: Vec<u32>,
    /// The scopes to compile again, present or not.
    touched: BTreeSet<Arc<str>>,
}

impl ScopeDirectory {
    /// The scope of an id, as staged.
    pub(crate) fn get(&self, id: &str) -> Option<&StagedScope> {
        self.entries.get(id).map(|entry| &entry.staged)
    }

    /// All ids, in no particular order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.entries.keys()
    }

    /// The slot of an id, present or not: that which [`ScopeDirectory::put`] assigns.
    pub(crate) fn slot_for(&self, id: &str) -> ScopeSlotId {
        let next = || self.free.last().copied().unwrap_or(self.scopes.len() as u32);
        self.entries.get(id).map_or_else(|| ScopeSlotId(next()), |entry| entry.slot)
    }

    /// Adds or replaces a scope.
    pub(crate) fn put(&mut self, id: &Arc<str>, staged: StagedScope) {
        let slot = self.slot_for(id);
        if !self.entries.contains_key(id) && self.free.pop().is_none() {
            self.scopes.add();
        }
        self.entries.insert(id.clone(), ScopeEntry { slot, staged });
        self.touched.insert(id.clone());
    }

    /// Removes a scope.
    pub(crate) fn remove(&mut self, id: &str) -> Option<StagedScope> {
        let ScopeEntry { slot, staged } = self.entries.remove(id)?;
        self.scopes.set(slot.0 as usize, None);
        self.free.push(slot.0);
        Some(staged)
    }

    /// Notes that the tables of these scopes have changed.
    pub(crate) fn touch_all(&mut self, ids: BTreeSet<Arc<str>>) {
        self.touched.extend(ids);
    }

    /// The scopes by slot. `tables` returns the tables of a scope, which are cloned for those that were touched.
    pub(crate) fn compile(
        &mut self,
        tables: impl Fn(&str) -> (Router, StreamRouter, Certificates),
    ) -> CompiledScopes {
        for id in std::mem::take(&mut self.touched) {
            // Routes may name a scope that does not exist.
            let Some(ScopeEntry { slot, staged }) = self.entries.get(&id) else { continue };
            let (router, streams, certificates) = tables(&id);
            let (slot, terms) = (*slot, staged.terms.clone());
            let scope = CompiledScope { id, slot, router, streams, terms, certificates };
            self.scopes.set(slot.0 as usize, Some(Arc::new(scope)));
        }
        self.scopes.clone()
    }
}

#[cfg(test)]
mod tests;
