//! A persistent radix trie over bytes: clones share all nodes, a change copies one path.
//!
//! Owns the search order of literal, parameter and prefix matches. Knows nothing of routes or hosts.

use std::sync::Arc;

use smallvec::SmallVec;

/// Stands for one whole segment in a key. No request path contains it: an encoded NUL is refused.
pub(crate) const PARAMETER: u8 = 0;

/// How a key is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The whole of what is looked up.
    Exact,
    /// Any start of what is looked up.
    Prefix,
}

/// What is looked up.
pub(crate) trait Key: Copy {
    fn len(self) -> usize;
    fn byte(self, at: usize) -> u8;
    fn has_at(self, at: usize, label: &[u8]) -> bool;
    /// Where the segment that starts at `at` ends.
    fn segment_end(self, at: usize) -> usize;
}

impl Key for &[u8] {
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
        self[at..].iter().position(|byte| *byte == b'/').map_or(self.len(), |length| at + length)
    }
}

/// Bytes looked up from their end, without copying them.
#[derive(Clone, Copy)]
pub(crate) struct Reversed<'k>(pub(crate) &'k [u8]);

impl Key for Reversed<'_> {
    fn len(self) -> usize {
        self.0.len()
    }

    #[inline]
    fn byte(self, at: usize) -> u8 {
        self.0[self.0.len() - 1 - at]
    }

    fn has_at(self, at: usize, label: &[u8]) -> bool {
        let left = &self.0[..self.0.len() - at];
        left.len() >= label.len() && left.iter().rev().zip(label).all(|(a, b)| a == b)
    }

    fn segment_end(self, at: usize) -> usize {
        at
    }
}

type Text = SmallVec<[u8; 16]>;

/// Children stand side by side, so that going down a level is one step to memory that may be far away.
#[derive(Debug, Clone)]
pub(crate) struct Node<T> {
    /// The label, then the first byte of each child, ascending. In the node itself where it is short, as most
    /// are: in a large table a look-up costs what the memory it touches costs.
    text: Text,
    children: Arc<[Node<T>]>,
    exact: Option<T>,
    prefix: Option<T>,
    label_len: u32,
    /// Whether the label has a parameter in it.
    is_wild: bool,
}

impl<T> Node<T> {
    fn leaf(label: &[u8], reach: Reach, value: T) -> Node<T> {
        let (exact, prefix) = match reach {
            Reach::Exact => (Some(value), None),
            Reach::Prefix => (None, Some(value)),
        };
        Node {
            text: label.into(),
            children: Arc::default(),
            exact,
            prefix,
            label_len: label.len() as u32,
            is_wild: label.contains(&PARAMETER),
        }
    }

    #[inline]
    fn label(&self) -> &[u8] {
        &self.text[..self.label_len as usize]
    }

    #[inline]
    fn child_at(&self, first: u8) -> Result<usize, usize> {
        let firsts = &self.text[self.label_len as usize..];
        if firsts.len() <= 8 {
            return firsts
                .iter()
                .position(|byte| *byte == first)
                .ok_or_else(|| firsts.iter().position(|byte| *byte > first).unwrap_or(firsts.len()));
        }
        firsts.binary_search(&first)
    }

    #[inline]
    fn has_parameter_child(&self) -> bool {
        self.text.get(self.label_len as usize) == Some(&PARAMETER)
    }

    fn value_mut(&mut self, reach: Reach) -> &mut Option<T> {
        match reach {
            Reach::Exact => &mut self.exact,
            Reach::Prefix => &mut self.prefix,
        }
    }

    fn has_value(&self) -> bool {
        self.exact.is_some() || self.prefix.is_some()
    }

    /// Sets label and children together, since the text depends on both.
    fn set_shape(&mut self, label: &[u8], children: Arc<[Node<T>]>) {
        let firsts = children.iter().map(|child| child.text[0]);
        self.text = label.iter().copied().chain(firsts).collect();
        self.label_len = label.len() as u32;
        self.is_wild = label.contains(&PARAMETER);
        self.children = children;
    }

    /// Where the key stands after the label, if it has the label at `at`.
    #[inline]
    fn pass<K: Key>(&self, key: K, at: usize) -> Option<usize> {
        let label = self.label();
        if !self.is_wild {
            return key.has_at(at, label).then(|| at + label.len());
        }
        pass_wild(label, key, at)
    }
}

fn pass_wild<K: Key>(label: &[u8], key: K, mut at: usize) -> Option<usize> {
    for &wanted in label {
        if wanted == PARAMETER {
            let end = key.segment_end(at);
            if end == at {
                return None;
            }
            at = end;
        } else if at < key.len() && key.byte(at) == wanted {
            at += 1;
        } else {
            return None;
        }
    }
    Some(at)
}

impl<T: Clone> Node<T> {
    /// Cuts the label at `at`: what follows becomes the only child.
    fn split(&mut self, at: usize) {
        let label = Text::from(self.label());
        let mut lower = Node {
            text: Text::new(),
            children: Arc::default(),
            exact: self.exact.take(),
            prefix: self.prefix.take(),
            label_len: 0,
            is_wild: false,
        };
        lower.set_shape(&label[at..], std::mem::take(&mut self.children));
        self.set_shape(&label[..at], Arc::new([lower]));
    }

    fn add_child(&mut self, child: Node<T>) {
        let label = Text::from(self.label());
        let at = self.children.partition_point(|other| other.text[0] < child.text[0]);
        let (before, behind) = self.children.split_at(at);
        let children = before.iter().cloned().chain([child]).chain(behind.iter().cloned()).collect();
        self.set_shape(&label, children);
    }

    fn remove_child(&mut self, at: usize) {
        let label = Text::from(self.label());
        let children = [&self.children[..at], &self.children[at + 1..]].concat();
        self.set_shape(&label, children.into());
    }

    /// Joins a node that has neither value nor choice with its only child.
    fn join(&mut self) {
        if self.has_value() || self.children.len() != 1 {
            return;
        }
        let child = self.children[0].clone();
        let label = [self.label(), child.label()].concat();
        self.exact = child.exact;
        self.prefix = child.prefix;
        self.set_shape(&label, child.children);
    }
}

/// The trie. A clone is a snapshot: later changes to either do not show in the other.
#[derive(Debug, Clone)]
pub(crate) struct Trie<T> {
    root: Option<Arc<Node<T>>>,
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

    /// All values, in no useful order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        let mut stack: Vec<&Node<T>> = self.root.as_deref().into_iter().collect();
        std::iter::from_fn(move || {
            let node = stack.pop()?;
            stack.extend(node.children.iter());
            Some(node.exact.iter().chain(node.prefix.iter()))
        })
        .flatten()
    }

    /// Starts looking up a key; see [`Search::next`].
    #[inline]
    pub(crate) fn search(&self) -> Search<'_, T> {
        Search { root: self.root.as_deref(), pending: [const { None }; INLINE], len: 0, spilt: Vec::new() }
    }
}

impl<T: Clone> Trie<T> {
    /// Replaces the value under a key by what `change` makes of it.
    pub(crate) fn update(&mut self, key: &[u8], reach: Reach, change: impl FnOnce(Option<T>) -> Option<T>) {
        let Some(root) = self.root.as_mut() else {
            self.root = change(None).map(|value| Arc::new(Node::leaf(key, reach, value)));
            return;
        };
        let mut node = Arc::make_mut(root);
        let mut rest = key;
        loop {
            let label = node.label();
            let common = label.iter().zip(rest).take_while(|(a, b)| a == b).count();
            if common < label.len() {
                return add_by_split(node, common, &rest[common..], reach, change(None));
            }
            rest = &rest[common..];
            let Some(first) = rest.first() else { break };
            let Ok(at) = node.child_at(*first) else {
                if let Some(value) = change(None) {
                    node.add_child(Node::leaf(rest, reach, value));
                }
                return;
            };
            node = &mut Arc::make_mut(&mut node.children)[at];
        }
        let value = node.value_mut(reach);
        *value = change(value.take());
        if !node.has_value() {
            self.prune(key);
        }
    }

    /// Restores the shape after the node of `key` lost its last value.
    fn prune(&mut self, key: &[u8]) {
        let Some(root) = self.root.as_mut() else { return };
        let mut rest = &key[root.label_len as usize..];
        if rest.is_empty() {
            match root.children.len() {
                0 => self.root = None,
                _ => Arc::make_mut(root).join(),
            }
            return;
        }
        let mut node = Arc::make_mut(root);
        loop {
            let Ok(at) = node.child_at(rest[0]) else { return };
            rest = &rest[node.children[at].label_len as usize..];
            if rest.is_empty() && node.children[at].children.is_empty() {
                node.remove_child(at);
                return node.join();
            }
            let child = &mut Arc::make_mut(&mut node.children)[at];
            if rest.is_empty() {
                return child.join();
            }
            node = child;
        }
    }
}

fn add_by_split<T: Clone>(node: &mut Node<T>, at: usize, rest: &[u8], reach: Reach, value: Option<T>) {
    let Some(value) = value else { return };
    node.split(at);
    if rest.is_empty() {
        *node.value_mut(reach) = Some(value);
    } else {
        node.add_child(Node::leaf(rest, reach, value));
    }
}

#[derive(Clone, Copy)]
enum Todo {
    Prefix,
    Parameter,
}

struct Frame<'t, T> {
    node: &'t Node<T>,
    at: u32,
    todo: Todo,
}

impl<T> Clone for Frame<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Frame<'_, T> {}

/// Alternatives kept without allocating; a table nested deeper than this spills.
const INLINE: usize = 12;

/// A look-up under way. The key is handed in at each step, so that it may live in what the caller
/// changes between steps; it must be the same each time.
pub(crate) struct Search<'t, T> {
    root: Option<&'t Node<T>>,
    pending: [Option<Frame<'t, T>>; INLINE],
    len: usize,
    spilt: Vec<Frame<'t, T>>,
}

impl<'t, T> Search<'t, T> {
    /// The next best match: at each node the literal continuation, then a parameter, then the
    /// prefix that ends there; so the exact key first, longer prefixes before shorter.
    ///
    /// A node is visited at most once, so the work is bounded by the table whatever the key.
    #[inline]
    pub(crate) fn next<K: Key>(&mut self, key: K) -> Option<&'t T> {
        if let Some(root) = self.root.take()
            && let Some(at) = root.pass(key, 0)
            && let Some(found) = self.walk(root, key, at)
        {
            return Some(found);
        }
        while let Some(frame) = self.pop() {
            match frame.todo {
                Todo::Prefix => return frame.node.prefix.as_ref(),
                Todo::Parameter => {
                    let child = &frame.node.children[0];
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
    fn walk<K: Key>(&mut self, mut node: &'t Node<T>, key: K, mut at: usize) -> Option<&'t T> {
        loop {
            if node.prefix.is_some() {
                self.push(Frame { node, at: at as u32, todo: Todo::Prefix });
            }
            if at == key.len() {
                return node.exact.as_ref();
            }
            if node.has_parameter_child() {
                self.push(Frame { node, at: at as u32, todo: Todo::Parameter });
            }
            let first = key.byte(at);
            if first == PARAMETER {
                return None;
            }
            let child = &node.children[node.child_at(first).ok()?];
            at = child.pass(key, at)?;
            node = child;
        }
    }

    fn push(&mut self, frame: Frame<'t, T>) {
        match self.pending.get_mut(self.len) {
            Some(free) => {
                *free = Some(frame);
                self.len += 1;
            }
            None => self.spilt.push(frame),
        }
    }

    fn pop(&mut self) -> Option<Frame<'t, T>> {
        if let Some(frame) = self.spilt.pop() {
            return Some(frame);
        }
        self.len = self.len.checked_sub(1)?;
        self.pending[self.len].take()
    }
}
