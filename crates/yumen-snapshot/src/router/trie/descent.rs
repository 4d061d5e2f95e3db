//! The search for one value, by a single descent without alternatives.

use super::{NodeValues, Trie, TrieKey};

impl<T> Trie<T> {
    /// The value of the exact key, else of the longest prefix whose value `admits` accepts, in a trie without
    /// parameters.
    ///
    /// A third of the work of [`Trie::search`]: prefixes are judged on the way down, so no stack keeps them for later.
    #[inline]
    pub(crate) fn longest<K: TrieKey>(&self, key: K, admits: impl Fn(&T) -> bool) -> Option<&T> {
        let mut node = self.root.as_deref()?;
        let (mut at, mut best) = (0, None);
        loop {
            let label = node.text.label();
            if !key.has_at(at, label) {
                return best;
            }
            at += label.len();
            let is_end = at == key.len();
            match &node.values {
                NodeValues::Exact(value) if is_end => return Some(value),
                NodeValues::Both(both) if is_end => return Some(&both.0),
                NodeValues::None | NodeValues::Exact(_) => {}
                NodeValues::Prefix(value) if admits(value) => best = Some(value),
                NodeValues::Both(both) if admits(&both.1) => best = Some(&both.1),
                NodeValues::Prefix(_) | NodeValues::Both(_) => {}
            }
            if is_end {
                return best;
            }
            let Some(child) = node.text.child_at(key.byte(at)) else { return best };
            node = &node.children()[child];
        }
    }
}
