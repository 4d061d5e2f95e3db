//! The slots of upstreams in a snapshot, by the object that the upstream is written in.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;

use crate::compile::names::ObjectName;
use crate::endpoint::EndpointState;
use crate::protection::UpstreamLimiter;
use crate::snapshot::Upstreams;
use crate::upstream::{Upstream, UpstreamSlotId};

/// Slots that plugins knew and that wait for reuse. That many upstreams of plugins are seldom removed while one request
/// waits for a subrequest.
const RESTING_MAX: usize = if cfg!(test) { 64 } else { 4096 };

/// Assigns slots, and keeps the upstreams in them.
///
/// An owner keeps its slot while it has an upstream, so a change of endpoints changes no route.
#[derive(Debug, Default)]
pub(crate) struct UpstreamSlots {
    slots: HashMap<ObjectName, u32, RandomState>,
    /// Empty slots for the next owners. None of them is pinned.
    free: Vec<u32>,
    /// Slots that plugins know, with the number of objects whose plugins do. They are not reused: a plugin that stays in
    /// force without its upstream must not find another one in the slot. 0 means that only plugins of older snapshots
    /// know the slot.
    pinned: HashMap<u32, u32, RandomState>,
    /// Empty slots that plugins of older snapshots may still know, the oldest first.
    resting: VecDeque<u32>,
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
        match self.pinned.get(&slot) {
            None => self.free.push(slot),
            Some(0) => self.rest(slot),
            Some(_) => {}
        }
    }

    /// Excludes slots from reuse, once more each.
    pub(crate) fn pin(&mut self, slots: &[u32]) {
        slots.iter().for_each(|slot| *self.pinned.entry(*slot).or_default() += 1);
    }

    /// Takes back one pin of each slot.
    pub(crate) fn unpin(&mut self, slots: &[u32]) {
        for slot in slots {
            let Some(pins) = self.pinned.get_mut(slot) else { continue };
            *pins = pins.saturating_sub(1);
            let is_empty = self.upstreams.get(*slot as usize).is_some_and(Option::is_none);
            if *pins == 0 && is_empty {
                self.rest(*slot);
            }
        }
    }

    /// Delays the reuse of an empty slot. A subrequest looks its upstream up in the newest snapshot, so a plugin of an
    /// exchange in progress must not find another upstream there.
    fn rest(&mut self, slot: u32) {
        self.pinned.remove(&slot);
        self.resting.push_back(slot);
        if self.resting.len() > RESTING_MAX {
            self.free.extend(self.resting.pop_front());
        }
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
