//! The numbers of listeners in a snapshot.

use std::sync::Arc;

use yumen_plugin::ListenerNumber;

use super::Table;
use crate::scope::{CompiledListener, CompiledListeners, ListenSettings};

/// Assigns numbers to listeners, and keeps the listeners by slot.
///
/// A listener keeps its number while it exists. A slot that is used again gets another epoch: connections outlive
/// their listener, and must not find the next one.
#[derive(Debug)]
pub(crate) struct ListenerDirectory {
    slots: Table<u16>,
    listeners: CompiledListeners,
    /// The epoch of the last listener of each slot.
    epochs: Vec<u16>,
    /// Empty slots, the longest empty one first, so that an epoch repeats as late as possible.
    free: std::collections::VecDeque<u16>,
}

impl Default for ListenerDirectory {
    fn default() -> ListenerDirectory {
        // Slot 0 stands for the listeners of the node's settings.
        ListenerDirectory {
            slots: Table::default(),
            listeners: [None].into_iter().collect(),
            epochs: vec![0],
            free: std::collections::VecDeque::new(),
        }
    }
}

impl ListenerDirectory {
    /// The listeners by slot, for a snapshot.
    pub(crate) fn table(&self) -> &CompiledListeners {
        &self.listeners
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Arc<CompiledListener>> {
        self.listeners.get(usize::from(*self.slots.get(id)?))?.as_ref()
    }

    /// Adds a listener or replaces its settings; false if every slot is taken.
    pub(crate) fn put(&mut self, id: &Arc<str>, created_s: i64, settings: ListenSettings) -> bool {
        let former = self.get(id);
        let settings = match former {
            // The supervisor of sockets compares settings by their allocation.
            Some(former) if *former.settings == settings => former.settings.clone(),
            _ => Arc::new(settings),
        };
        let number = match former.map(|former| former.number).or_else(|| self.next_number()) {
            Some(number) => number,
            None => return false,
        };
        self.slots.insert(id.clone(), number.slot);
        let listener = CompiledListener { id: id.clone(), number, created_s, settings };
        self.listeners.set(usize::from(number.slot), Some(Arc::new(listener)));
        true
    }

    /// Removes a listener.
    pub(crate) fn remove(&mut self, id: &str) {
        if let Some(slot) = self.slots.remove(id) {
            self.listeners.set(usize::from(slot), None);
            self.free.push_back(slot);
        }
    }

    fn next_number(&mut self) -> Option<ListenerNumber> {
        if let Some(slot) = self.free.pop_front() {
            let epoch = &mut self.epochs[usize::from(slot)];
            *epoch = epoch.wrapping_add(1);
            return Some(ListenerNumber { slot, epoch: *epoch });
        }
        let slot = u16::try_from(self.listeners.len()).ok()?;
        self.listeners.push_back(None);
        self.epochs.push(0);
        Some(ListenerNumber { slot, epoch: 0 })
    }
}

#[cfg(test)]
mod tests;
