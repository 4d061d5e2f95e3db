//! A persistent radix trie over bytes: clones share all nodes, a change copies one path.
//!
//! Defines the search order of literal, parameter and prefix matches. Independent of routes and hosts.

mod descent;
mod searched_key;

use std::sync::Arc;

use smallvec::SmallVec;

pub(crate) use searched_key::{ReversedKey, TrieKey};

/// Represents one whole segment in a key. No request path contains it, since an encoded NUL is refused.
pub(crate) const PARAMETER: u8 = 0;

/// How a key matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyMatch {
    /// The whole of the searched key.
    Exact,
    /// Any prefix of the searched key.
    Prefix,
}

/// Bytes of a label inside the node: those of a `u128`, which are compared all at once.
const SHORT: usize = 16;

/// The label of a node, followed by the first byte of each child, ascending.
#[derive(Debug, Clone)]
enum NodeLabel {
    /// Inside the node, as most are.
    Short { label_len: u8, len: u8, is_wild: bool, bytes: [u8; SHORT] },
    /// On the heap.
    Long(Box<LongNodeLabel>),
}

#[derive(Debug, Clone)]
struct LongNodeLabel {
    label_len: usize,
    is_wild: bool,
    bytes: Box<[u8]>,
}

impl NodeLabel {
    fn new(label: &[u8], firsts: impl Iterator<Item = u8>) -> NodeLabel {
        let bytes: Label = label.iter().copied().chain(firsts).collect();
        // Computed once per change, so that a look-up of a literal label is one comparison of slices.
        let is_wild = label.contains(&PARAMETER);
        // Long labels are rare in route tables; the second allocation keeps all other nodes within a cache line.
        if bytes.len() > SHORT {
            let bytes = bytes.into_boxed_slice();
            return NodeLabel::Long(Box::new(LongNodeLabel { label_len: label.len(), is_wild, bytes }));
        }
        let mut short = [0; SHORT];
        short[..bytes.len()].copy_from_slice(&bytes);
        NodeLabel::Short { label_len: label.len() as u8, len: bytes.len() as u8, is_wild, bytes: short }
    }

    #[inline]
    fn label(&self) -> &[u8] {
        match self {
            NodeLabel::Short { label_len, bytes, .. } => &bytes[..usize::from(*label_len)],
            NodeLabel::Long(long) => &long.bytes[..long.label_len],
        }
    }

    #[inline]
    fn firsts(&self) -> &[u8] {
        match self {
            NodeLabel::Short { label_len, len, bytes, .. } => {
                &bytes[usize::from(*label_len)..usize::from(*len)]
            }
            NodeLabel::Long(long) => &long.bytes[long.label_len..],
        }
    }

    /// Whether the label contains a parameter.
    #[inline]
    fn is_wild(&self) -> bool {
        match self {
            NodeLabel::Short { is_wild, .. } => *is_wild,
            NodeLabel::Long(long) => long.is_wild,
        }
    }

    /// The child that begins with a byte.
    ///
    /// No branch predictor can guess the position, so all bytes are compared at once instead of one after
    /// another.
    #[inline]
    fn child_at(&self, first: u8) -> Option<usize> {
        match self {
            NodeLabel::Short { label_len, len, bytes, .. } => {
                let count = usize::from(len - label_len);
                // A label that fills the node shifts out all bits.
                let firsts = equal_bytes(*bytes, first).checked_shr(8 * u32::from(*label_len))?;
                let at = firsts.trailing_zeros() as usize / 8;
                // Bytes after the label may be padding, and zero padding would match the byte PARAMETER.
                (at < count).then_some(at)
            }
            // Children ascend by first byte, as `TrieNode::add_child` keeps them.
            NodeLabel::Long(_) => self.firsts().binary_search(&first).ok(),
        }
    }
}

/// The upper bit of each byte that equals `byte`, the first byte lowest.
#[inline]
fn equal_bytes(bytes: [u8; SHORT], byte: u8) -> u128 {
    const ONES: u128 = u128::from_le_bytes([1; SHORT]);
    const LOWER: u128 = 0x7f * ONES;
    // The addition carries into no other byte, so every result is exact.
    let differ = u128::from_le_bytes(bytes) ^ (ONES * u128::from(byte));
    !(((differ & LOWER) + LOWER) | differ | LOWER)
}

/// The values that end at a node.
#[derive(Debug, Clone)]
enum NodeValues<T> {
    None,
    Exact(T),
    Prefix(T),
    /// The exact value first.
    Both(Arc<(T, T)>),
}

impl<T> NodeValues<T> {
    fn new(reach: KeyMatch, value: T) -> NodeValues<T> {
        match reach {
            KeyMatch::Exact => NodeValues::Exact(value),
            KeyMatch::Prefix => NodeValues::Prefix(value),
        }
    }

    #[inline]
    fn exact(&self) -> Option<&T> {
        match self {
            NodeValues::Exact(value) => Some(value),
            NodeValues::Both(both) => Some(&both.0),
            NodeValues::None | NodeValues::Prefix(_) => None,
        }
    }

    #[inline]
    fn prefix(&self) -> Option<&T> {
        match self {
            NodeValues::Prefix(value) => Some(value),
            NodeValues::Both(both) => Some(&both.1),
            NodeValues::None | NodeValues::Exact(_) => None,
        }
    }

    fn is_none(&self) -> bool {
        matches!(self, NodeValues::None)
    }
}

impl<T: Clone> NodeValues<T> {
    /// Replaces the value for one kind of match by the result of `change`.
    fn update(&mut self, reach: KeyMatch, change: impl FnOnce(Option<T>) -> Option<T>) {
        let (exact, prefix) = match std::mem::replace(self, NodeValues::None) {
            NodeValues::None => (None, None),
            NodeValues::Exact(value) => (Some(value), None),
            NodeValues::Prefix(value) => (None, Some(value)),
            NodeValues::Both(both) => {
                // Another snapshot may share the pair.
                let (exact, prefix) = Arc::unwrap_or_clone(both);
                (Some(exact), Some(prefix))
            }
        };
        let (exact, prefix) = match reach {
            KeyMatch::Exact => (change(exact), prefix),
            KeyMatch::Prefix => (exact, change(prefix)),
        };
        // One value is stored inside the node; only two need an allocation.
        *self = match (exact, prefix) {
            (Some(exact), Some(prefix)) => NodeValues::Both(Arc::new((exact, prefix))),
            (Some(exact), None) => NodeValues::Exact(exact),
            (None, Some(prefix)) => NodeValues::Prefix(prefix),
            (None, None) => NodeValues::None,
        };
    }
}

/// A label while its node is changed.
type Label = SmallVec<[u8; SHORT]>;

/// Children are adjacent in memory, so that a level down costs one access to memory that may be far away. A
/// node is one cache line, the unit of that access: in a large table the memory that a look-up touches is its
/// cost.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(crate) struct TrieNode<T> {
    text: NodeLabel,
    children: Option<Arc<[TrieNode<T>]>>,
    values: NodeValues<T>,
}

impl<T> TrieNode<T> {
    fn leaf(label: &[u8], values: NodeValues<T>) -> TrieNode<T> {
        TrieNode { text: NodeLabel::new(label, std::iter::empty()), children: None, values }
    }

    #[inline]
    fn children(&self) -> &[TrieNode<T>] {
        self.children.as_deref().unwrap_or_default()
    }

    #[inline]
    fn has_parameter_child(&self) -> bool {
        // Children ascend by first byte, and PARAMETER is the lowest byte.
        self.text.firsts().first() == Some(&PARAMETER)
    }

    fn first(&self) -> u8 {
        self.text.label()[0]
    }

    /// Sets label and children together, since the text depends on both.
    fn set_shape(&mut self, label: &[u8], children: Option<Arc<[TrieNode<T>]>>) {
        self.text =
            // The first bytes of the children are copied into the parent: choosing a child touches no other cache line.
            NodeLabel::new(label, children.iter().flat_map(|children| children.iter()).map(TrieNode::first));
        self.children = children;
    }

    /// The position in the key after the label, if the label matches at `at`.
    #[inline]
    fn pass<K: TrieKey>(&self, key: K, at: usize) -> Option<usize> {
        let label = self.text.label();
        if !self.text.is_wild() {
            return key.has_at(at, label).then(|| at + label.len());
        }
        pass_wild(label, key, at)
    }

    /// [`TrieNode::pass`] if the first byte is known to match.
    #[inline]
    fn pass_found<K: TrieKey>(&self, key: K, at: usize) -> Option<usize> {
        // The caller chose the child by its first byte, so a label of one byte has nothing left to compare.
        if self.text.label().len() == 1 {
            return Some(at + 1);
        }
        self.pass(key, at)
    }
}

fn pass_wild<K: TrieKey>(label: &[u8], key: K, mut at: usize) -> Option<usize> {
    for &byte in label {
        if byte == PARAMETER {
            let end = key.segment_end(at);
            // A parameter needs at least one byte: `/user/:id` does not match `/user/`.
            if end == at {
                return None;
            }
            at = end;
        } else if at < key.len() && key.byte(at) == byte {
            at += 1;
        } else {
            return None;
        }
    }
    Some(at)
}

impl<T: Clone> TrieNode<T> {
    /// Splits the label at `at`: the rest becomes the only child.
    fn split(&mut self, at: usize) {
        let label = Label::from(self.text.label());
        let mut lower = TrieNode::leaf(&label[at..], std::mem::replace(&mut self.values, NodeValues::None));
        lower.set_shape(&label[at..], self.children.take());
        self.set_shape(&label[..at], Some(Arc::new([lower])));
    }

    fn add_child(&mut self, child: TrieNode<T>) {
        let label = Label::from(self.text.label());
        // Ascending order is an invariant: `has_parameter_child` and the binary search depend on it.
        let at = self.children().partition_point(|other| other.first() < child.first());
        let (before, after) = self.children().split_at(at);
        // The siblings are cloned, which is shallow: their own children stay shared with older snapshots.
        let children = before.iter().cloned().chain([child]).chain(after.iter().cloned()).collect();
        self.set_shape(&label, Some(children));
    }

    fn remove_child(&mut self, at: usize) {
        let label = Label::from(self.text.label());
        let children = [&self.children()[..at], &self.children()[at + 1..]].concat();
        self.set_shape(&label, (!children.is_empty()).then(|| children.into()));
    }

    /// Joins a node without values with its only child.
    fn join(&mut self) {
        // Several children need the node as their branch.
        let [child] = self.children() else { return };
        // A node with a value must stay, because its key ends there.
        if self.values.is_none() {
            let child = child.clone();
            let label = [self.text.label(), child.text.label()].concat();
            self.values = child.values;
            self.set_shape(&label, child.children);
        }
    }

    /// The child at an index, for modification.
    fn child_mut(&mut self, at: usize) -> &mut TrieNode<T> {
        // Clones the siblings only if another snapshot shares them.
        &mut Arc::make_mut(self.children.get_or_insert_with(Arc::default))[at]
    }
}

/// The trie. A clone is a snapshot: later changes to either are not visible in the other.
#[derive(Debug, Clone)]
pub(crate) struct Trie<T> {
    root: Option<Arc<TrieNode<T>>>,
}

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Trie { root: None }
    }
}

impl<T> Trie<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// All values, in no particular order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        let mut stack: Vec<&TrieNode<T>> = self.root.as_deref().into_iter().collect();
        std::iter::from_fn(move || {
            let node = stack.pop()?;
            stack.extend(node.children());
            Some(node.values.exact().into_iter().chain(node.values.prefix()))
        })
        .flatten()
    }

    /// Starts a search for a key; see [`TrieSearch::next`].
    #[inline]
    pub(crate) fn search(&self) -> TrieSearch<'_, T> {
        TrieSearch {
            root: self.root.as_deref(),
            pending: [const { None }; INLINE],
            len: 0,
            spilt: Vec::new(),
        }
    }
}

impl<T: Clone> Trie<T> {
    /// Replaces the value of a key by the result of `change`.
    pub(crate) fn update(
        &mut self,
        key: &[u8],
        reach: KeyMatch,
        change: impl FnOnce(Option<T>) -> Option<T>,
    ) {
        let new = |value| NodeValues::new(reach, value);
        let Some(root) = self.root.as_mut() else {
            self.root = change(None).map(|value| Arc::new(TrieNode::leaf(key, new(value))));
            return;
        };
        // Copies a node only if an older snapshot shares it; nodes off the path of the key stay shared.
        let mut node = Arc::make_mut(root);
        let mut rest = key;
        loop {
            let label = node.text.label();
            let common = label.iter().zip(rest).take_while(|(a, b)| a == b).count();
            if common < label.len() {
                // Removal of an unknown key yields `None` and must not change the shape.
                if let Some(value) = change(None) {
                    add_by_split(node, common, &rest[common..], new(value));
                }
                return;
            }
            rest = &rest[common..];
            let Some(first) = rest.first() else { break };
            let Some(at) = node.text.child_at(*first) else {
                if let Some(value) = change(None) {
                    node.add_child(TrieNode::leaf(rest, new(value)));
                }
                return;
            };
            node = node.child_mut(at);
        }
        node.values.update(reach, change);
        // The shape stays canonical: the same keys give the same trie, whatever changes preceded.
        if node.values.is_none() {
            self.prune(key);
        }
    }

    /// Restores the shape after the node of `key` lost its last value.
    fn prune(&mut self, key: &[u8]) {
        let Some(root) = self.root.as_mut() else { return };
        let mut rest = &key[root.text.label().len()..];
        // The root has no parent to be removed from, so its end is a case of its own.
        if rest.is_empty() {
            match root.children() {
                [] => self.root = None,
                _ => Arc::make_mut(root).join(),
            }
            return;
        }
        let mut node = Arc::make_mut(root);
        loop {
            // The key was found by `update`; the early return only satisfies the type.
            let Some(at) = node.text.child_at(rest[0]) else { return };
            let child = &node.children()[at];
            rest = &rest[child.text.label().len()..];
            if rest.is_empty() && child.children().is_empty() {
                node.remove_child(at);
                return node.join();
            }
            let child = node.child_mut(at);
            // The node lost its value but has children: it may have become a mere link to one child.
            if rest.is_empty() {
                return child.join();
            }
            node = child;
        }
    }
}

fn add_by_split<T: Clone>(node: &mut TrieNode<T>, at: usize, rest: &[u8], values: NodeValues<T>) {
    node.split(at);
    if rest.is_empty() {
        node.values = values;
    } else {
        node.add_child(TrieNode::leaf(rest, values));
    }
}

#[derive(Clone, Copy)]
enum PendingBranch {
    Prefix,
    Parameter,
}

struct SearchFrame<'t, T> {
    node: &'t TrieNode<T>,
    at: u32,
    todo: PendingBranch,
}

impl<T> Clone for SearchFrame<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SearchFrame<'_, T> {}

/// Alternatives that are stored without allocating; a table nested deeper than this spills.
const INLINE: usize = 12;

/// A search in progress. The caller passes the same key at each step, so that the key may be part of data
/// that the caller changes between steps.
pub(crate) struct TrieSearch<'t, T> {
    root: Option<&'t TrieNode<T>>,
    pending: [Option<SearchFrame<'t, T>>; INLINE],
    len: usize,
    spilt: Vec<SearchFrame<'t, T>>,
}

impl<'t, T> TrieSearch<'t, T> {
    /// The next best match: at each node the literal continuation, then a parameter, then the prefix that
    /// ends there. The exact key therefore comes first, and longer prefixes before shorter ones.
    ///
    /// A node is visited at most once, so the table bounds the work, whatever the key.
    #[inline]
    pub(crate) fn next<K: TrieKey>(&mut self, key: K) -> Option<&'t T> {
        if let Some(root) = self.root.take()
            && let Some(at) = root.pass(key, 0)
            && let Some(found) = self.walk(root, key, at)
        {
            return Some(found);
        }
        // Back to the latest alternative: the deepest one is the most specific.
        while let Some(frame) = self.pop() {
            match frame.todo {
                PendingBranch::Prefix => return frame.node.values.prefix(),
                PendingBranch::Parameter => {
                    // PARAMETER is the lowest byte, so its child is the first.
                    let child = &frame.node.children()[0];
                    if let Some(at) = child.pass(key, frame.at as usize)
                        && let Some(found) = self.walk(child, key, at)
                    {
                        return Some(found);
                    }
                }
            }
        }
        None
    }

    #[inline]
    fn walk<K: TrieKey>(&mut self, mut node: &'t TrieNode<T>, key: K, mut at: usize) -> Option<&'t T> {
        loop {
            // The stack is popped from its end, so longer prefixes are tried before shorter ones.
            if node.values.prefix().is_some() {
                self.push(SearchFrame { node, at: at as u32, todo: PendingBranch::Prefix });
            }
            // The end of the key excludes a parameter, which needs at least one byte.
            if at == key.len() {
                return node.values.exact();
            }
            if node.has_parameter_child() {
                self.push(SearchFrame { node, at: at as u32, todo: PendingBranch::Parameter });
            }
            let first = key.byte(at);
            // The byte must not select the parameter child as a literal.
            if first == PARAMETER {
                return None;
            }
            let child = &node.children()[node.text.child_at(first)?];
            at = child.pass_found(key, at)?;
            node = child;
        }
    }

    fn push(&mut self, frame: SearchFrame<'t, T>) {
        match self.pending.get_mut(self.len) {
            Some(free) => {
                *free = Some(frame);
                self.len += 1;
            }
            None => self.spilt.push(frame),
        }
    }

    fn pop(&mut self) -> Option<SearchFrame<'t, T>> {
        // The spilled frames are the latest ones.
        if let Some(frame) = self.spilt.pop() {
            return Some(frame);
        }
        self.len = self.len.checked_sub(1)?;
        self.pending[self.len].take()
    }
}
