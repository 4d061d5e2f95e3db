//! The search for one value, by a single descent without alternatives.

use super::{Trie, TrieKey};

impl<T> Trie<T> {
    /// The value of the longest key that matches and that `admits` accepts, in a trie without parameters. An exact key
    /// comes before a prefix of the same length.
    ///
    /// The first value of [`Trie::search`] that `admits` accepts, for a third of its work: a prefix is judged on the
    /// way down, so no stack keeps it for later.
    #[inline]
    pub(crate) fn longest<K: TrieKey>(&self, key: K, admits: impl Fn(&T) -> bool) -> Option<&T> {
        let mut node = self.root.as_deref()?;
        let mut at = node.pass(key, 0)?;
        let mut best = None;
        loop {
            best = node.values.prefix().filter(|value| admits(value)).or(best);
            if at == key.len() {
                return node.values.exact().filter(|value| admits(value)).or(best);
            }
            let Some(child) = node.text.child_at(key.byte(at)) else { return best };
            node = &node.children()[child];
            at = match node.pass_found(key, at) {
                Some(next) => next,
                None => return best,
            };
        }
    }
}
