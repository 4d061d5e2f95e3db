//! Shared objects by slot, as a persistent table.
//!
//! Independent of the objects.

use std::sync::Arc;

/// Slots of one block: a change copies a block, and the list of blocks.
const BLOCK: usize = 64;

type Block<T> = [Option<Arc<T>>; BLOCK];

/// Objects by slot. Clones share all blocks.
///
/// A look-up is two loads; the chunks of `imbl::Vector`, which adapts to sizes and to changes in the middle, cost a
/// request four times that.
#[derive(Debug)]
pub(crate) struct SlotTable<T> {
    blocks: Arc<Vec<Arc<Block<T>>>>,
    len: usize,
}

impl<T> Clone for SlotTable<T> {
    fn clone(&self) -> SlotTable<T> {
        SlotTable { blocks: self.blocks.clone(), len: self.len }
    }
}

impl<T> Default for SlotTable<T> {
    fn default() -> SlotTable<T> {
        SlotTable { blocks: Arc::default(), len: 0 }
    }
}

impl<T> SlotTable<T> {
    /// The object in a slot.
    #[inline]
    pub(crate) fn get(&self, slot: usize) -> Option<&Arc<T>> {
        self.blocks.get(slot / BLOCK)?[slot % BLOCK].as_ref()
    }

    /// The number of slots, empty or not.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The slots in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Option<&Arc<T>>> {
        self.blocks.iter().flat_map(|block| block.iter()).take(self.len).map(Option::as_ref)
    }

    /// Adds an empty slot; returns it.
    pub(crate) fn add(&mut self) -> usize {
        let slot = self.len;
        if slot.is_multiple_of(BLOCK) {
            Arc::make_mut(&mut self.blocks).push(Arc::new([const { None }; BLOCK]));
        }
        self.len += 1;
        slot
    }

    /// Replaces the object of an added slot; returns the former one.
    pub(crate) fn set(&mut self, slot: usize, object: Option<Arc<T>>) -> Option<Arc<T>> {
        debug_assert!(slot < self.len, "slot {slot} of {}", self.len);
        // Copies the blocks that an older snapshot shares.
        let block = &mut Arc::make_mut(&mut self.blocks)[slot / BLOCK];
        std::mem::replace(&mut Arc::make_mut(block)[slot % BLOCK], object)
    }
}

#[cfg(test)]
mod tests;
