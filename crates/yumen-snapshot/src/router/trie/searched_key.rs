//! The keys that a trie is searched for: bytes in either order.

/// A searched key.
pub(crate) trait TrieKey: Copy {
    fn len(self) -> usize;
    fn byte(self, at: usize) -> u8;
    fn has_at(self, at: usize, label: &[u8]) -> bool;
    /// The end of the segment that starts at `at`.
    fn segment_end(self, at: usize) -> usize;
}

impl TrieKey for &[u8] {
    fn len(self) -> usize {
        <[u8]>::len(self)
    }

    #[inline]
    fn byte(self, at: usize) -> u8 {
        self[at]
    }

    #[inline]
    fn has_at(self, at: usize, label: &[u8]) -> bool {
        self[at..].starts_with(label)
    }

    fn segment_end(self, at: usize) -> usize {
        // The end of the key ends the last segment.
        self[at..].iter().position(|byte| *byte == b'/').map_or(self.len(), |length| at + length)
    }
}

/// Bytes that are searched from their end, without a copy.
#[derive(Clone, Copy)]
pub(crate) struct ReversedKey<'k>(pub(crate) &'k [u8]);

impl TrieKey for ReversedKey<'_> {
    fn len(self) -> usize {
        self.0.len()
    }

    #[inline]
    fn byte(self, at: usize) -> u8 {
        self.0[self.0.len() - 1 - at]
    }

    #[inline]
    fn has_at(self, at: usize, mut label: &[u8]) -> bool {
        let mut left = &self.0[..self.0.len() - at];
        // Host names are longer than one word, and a label in the opposite order cannot be compared as a slice.
        while let (Some((before, word)), Some((text, after))) =
            (left.split_last_chunk::<8>(), label.split_first_chunk::<8>())
        {
            if u64::from_be_bytes(*word) != u64::from_le_bytes(*text) {
                return false;
            }
            (left, label) = (before, after);
        }
        left.len() >= label.len() && left.iter().rev().zip(label).all(|(a, b)| a == b)
    }

    fn segment_end(self, at: usize) -> usize {
        // Host patterns have no parameters, so an empty segment makes a wildcard label fail.
        at
    }
}

#[cfg(test)]
mod tests;
