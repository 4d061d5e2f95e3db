//! The slots of upstreams in a snapshot, by the object that the upstream is written in.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;

use crate::compile::names::ObjectName;
use crate::endpoint::EndpointState;
use crate::protection::UpstreamLimiter;
use crate::snapshot::Upstreams;
use crate::upstream::{Upstream, UpstreamSlotId};

/// Assigns slots, and keeps the upstreams in them.
///
/// An owner keeps its slot while it has an upstream, so a change of endpoints changes no route.
#[derive(Debug, Default)]
pub(crate) struct UpstreamSlots {
    slots: HashMap<ObjectName, u32, RandomState>,
    /// Empty slots for the next owners. None of them is pinned.
    free: Vec<u32>,
    /// Slots that plugins know. They are never reused: a plugin that stays in force without its upstream must not find
    /// another one in the slot.
    pinned: HashSet<u32>,
    upstreams: Upstreams,
    /// Limiters whose queues are woken when the next snapshot is published.
    recalled: Vec<Weak<UpstreamLimiter>>,
}

impl UpstreamSlots {
    /// The upstreams by slot, for a snapshot.
    pub(crate) fn table(&self) -> &Upstreams {
        &self.upstreams
    }

    pub(crate) fn contains(&self, owner: &ObjectName) -> bool {
        self.slots.contains_key(owner)
    }

    /// The slot of an object's upstream.
    pub(crate) fn slot_of(&self, owner: &ObjectName) -> Option<UpstreamSlotId> {
        self.slots.get(owner).copied().map(UpstreamSlotId)
    }

    /// The upstream of an object.
    pub(crate) fn upstream_of(&self, owner: &ObjectName) -> Option<&Upstream> {
        self.upstreams.get(self.slot_of(owner)?.0 as usize)?.as_deref()
    }

    /// Puts an upstream into the slot of its owner, which is assigned on first use.
    pub(crate) fn assign(&mut self, owner: &ObjectName, mut upstream: Upstream) -> UpstreamSlotId {
        // Reuse bounds the table by the number of upstreams that exist at once.
        let slot = *self.slots.entry(owner.clone()).or_insert_with(|| match self.free.pop() {
            Some(free) => free,
            None => {
                self.upstreams.push_back(None);
                self.upstreams.len() as u32 - 1
            }
        });
        upstream.slot = UpstreamSlotId(slot);
        self.set(slot, Some(Arc::new(upstream)));
        UpstreamSlotId(slot)
    }

    /// Empties the slot of an owner without an upstream.
    pub(crate) fn remove(&mut self, owner: &ObjectName) {
        let Some(slot) = self.slots.remove(owner) else { return };
        self.set(slot, None);
        if !self.pinned.contains(&slot) {
            self.free.push(slot);
        }
    }

    /// Excludes slots from reuse.
    pub(crate) fn pin(&mut self, slots: impl IntoIterator<Item = u32>) {
        self.pinned.extend(slots);
    }

    /// Wakes the queue of a limiter when the next snapshot is published.
    pub(crate) fn recall(&mut self, limiter: &Arc<UpstreamLimiter>) {
        self.recalled.push(Arc::downgrade(limiter));
    }

    pub(crate) fn take_recalled(&mut self) -> Box<[Weak<UpstreamLimiter>]> {
        std::mem::take(&mut self.recalled).into()
    }

    fn set(&mut self, slot: u32, upstream: Option<Arc<Upstream>>) {
        let each = |of: &Option<Arc<Upstream>>, count: &dyn Fn(&EndpointState)| {
            let endpoints = of.iter().flat_map(|upstream| upstream.endpoints.iter());
            endpoints.for_each(|endpoint| count(&endpoint.state));
        };
        // The new references are counted first: an endpoint of both versions must not count as departed in between, or
        // workers would close its idle connections.
        each(&upstream, &EndpointState::named);
        let previous = self.upstreams.set(slot as usize, upstream);
        each(&previous, &EndpointState::released);
    }
}

#[cfg(test)]
mod tests;
