//! Results for texts that arrive again: verified tokens, opened sessions.
//!
//! A result is found by its exact text. The hash is keyed, so clients cannot construct collisions.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Most entries.
const ENTRIES_MAX: usize = 4096;
/// Maximum size of all texts and results in bytes.
const BYTES_MAX: usize = 16 << 20;

/// A bounded table. If it is full, the oldest entry that was not read since the last look at it goes.
pub(crate) struct RecentTexts<V> {
    entries: HashMap<Arc<[u8]>, RecentText<V>, foldhash::quality::RandomState>,
    /// Texts in the order of their insertion. May have texts without an entry.
    order: VecDeque<Arc<[u8]>>,
    bytes: usize,
}

struct RecentText<V> {
    value: V,
    ends_s: u64,
    bytes: usize,
    is_read: bool,
}

impl<V> Default for RecentTexts<V> {
    fn default() -> RecentTexts<V> {
        RecentTexts { entries: HashMap::default(), order: VecDeque::new(), bytes: 0 }
    }
}

impl<V: Clone> RecentTexts<V> {
    /// The result for a text. It ends at its end time.
    pub(crate) fn get(&mut self, text: &[u8], now_s: u64) -> Option<V> {
        let entry = self.entries.get_mut(text)?;
        if entry.ends_s <= now_s {
            self.remove(text);
            return None;
        }
        entry.is_read = true;
        Some(entry.value.clone())
    }

    /// Adds a result that takes about `value_bytes`, up to a time in seconds of Unix time.
    pub(crate) fn insert(&mut self, text: &[u8], value: V, value_bytes: usize, ends_s: u64) {
        self.remove(text);
        let bytes = 2 * text.len() + value_bytes;
        if bytes > BYTES_MAX / 4 {
            return;
        }
        while self.entries.len() >= ENTRIES_MAX || self.bytes + bytes > BYTES_MAX {
            self.evict();
        }
        // Removed texts leave their place in the order behind.
        if self.order.len() > 2 * ENTRIES_MAX {
            let entries = &self.entries;
            self.order.retain(|text| entries.contains_key(text));
        }
        let text: Arc<[u8]> = text.into();
        self.order.push_back(text.clone());
        self.bytes += bytes;
        self.entries.insert(text, RecentText { value, ends_s, bytes, is_read: false });
    }

    /// Removes all results.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.bytes = 0;
    }

    /// Removes a result.
    pub(crate) fn remove(&mut self, text: &[u8]) {
        if let Some(entry) = self.entries.remove(text) {
            self.bytes -= entry.bytes;
        }
    }

    /// Removes one entry, if there is one: second chance, so a scan of new texts does not displace those in use.
    fn evict(&mut self) {
        while let Some(text) = self.order.pop_front() {
            match self.entries.get_mut(&text) {
                None => {}
                Some(entry) if entry.is_read => {
                    entry.is_read = false;
                    self.order.push_back(text);
                }
                Some(_) => return self.remove(&text),
            }
        }
        // Not reached: each entry has its place in the order.
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_found_by_its_exact_text_until_its_end() {
        let mut texts = RecentTexts::default();
        texts.insert(b"token", 7, 10, 100);
        assert_eq!(texts.get(b"token", 99), Some(7));
        assert_eq!(texts.get(b"Token", 99), None);
        assert_eq!(texts.get(b"token", 100), None);
        assert_eq!((texts.bytes, texts.entries.len()), (0, 0));
    }

    #[test]
    fn a_scan_of_new_texts_leaves_the_one_in_use() {
        let mut texts = RecentTexts::default();
        texts.insert(b"in use", 1, 0, 100);
        for number in 0..3 * ENTRIES_MAX {
            assert_eq!(texts.get(b"in use", 0), Some(1), "after {number}");
            texts.insert(number.to_string().as_bytes(), 0, 0, 100);
        }
        assert_eq!(texts.entries.len(), ENTRIES_MAX);
        assert!(texts.order.len() <= 2 * ENTRIES_MAX + 1);
    }

    #[test]
    fn the_size_is_bounded_in_bytes() {
        let mut texts = RecentTexts::default();
        for number in 0..100_u32 {
            texts.insert(&number.to_be_bytes(), number, BYTES_MAX / 10, 100);
            assert!(texts.bytes <= BYTES_MAX);
        }
        texts.insert(b"too large", 0, BYTES_MAX, 100);
        assert_eq!(texts.get(b"too large", 0), None);
        assert_eq!(texts.get(&99_u32.to_be_bytes(), 0), Some(99));
    }
}
