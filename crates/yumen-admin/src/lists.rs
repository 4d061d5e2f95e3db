//! Whole lists as serialized text, in pieces that all readers share.
//!
//! A list follows the requested states by their differences: only pieces with changed objects are serialized
//! again. Independent of filters and pages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use yumen_store::{Revision, StoreEntry, StoreState};

use crate::rows::{self, KindView};

/// Objects per piece. A piece is serialized again whenever one of them changes, and is one write to a client.
const ROWS_PER_PIECE: usize = 128;

/// The lists that were requested at least once.
#[derive(Default)]
pub(crate) struct ListCache(Mutex<BTreeMap<KindView, CachedList>>);

/// One list as of a requested state.
pub(crate) struct RenderedList {
    /// The number of objects.
    pub(crate) total: usize,
    /// Serialized rows without the separators between the pieces.
    pub(crate) pieces: Vec<Bytes>,
    /// A revision at which the list had this content.
    pub(crate) as_of: Revision,
}

impl ListCache {
    /// The list of all objects of a kind as of `state`.
    pub(crate) fn render(&self, state: &StoreState, view: KindView) -> RenderedList {
        // Held while serializing: concurrent readers of one list would do the same work twice.
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let list = lists.entry(view).or_insert_with(|| CachedList::new(state, view));
        list.follow(state, view);
        RenderedList {
            total: list.pieces.values().map(|piece| piece.rows).sum(),
            pieces: list.pieces.values().map(|piece| piece.text.clone()).collect(),
            as_of: list.as_of,
        }
    }
}

struct CachedList {
    of: StoreState,
    /// By the first id of each piece; the first piece also has the ids before it.
    pieces: BTreeMap<Arc<str>, ListChunk>,
    as_of: Revision,
}

struct ListChunk {
    rows: usize,
    text: Bytes,
}

impl CachedList {
    fn new(state: &StoreState, view: KindView) -> CachedList {
        let mut list = CachedList { of: state.clone(), pieces: BTreeMap::new(), as_of: state.revision };
        list.write(state, view, "", None);
        list
    }

    fn follow(&mut self, state: &StoreState, view: KindView) {
        let from = std::mem::replace(&mut self.of, state.clone());
        // Both states share unchanged parts, so the cost follows the number of changes.
        let changed = from.differences(state).filter(|(key, ..)| key.kind == view.kind);
        // In a set, since several changed objects may be in one piece.
        let stale: BTreeSet<Option<Arc<str>>> = changed.map(|(key, ..)| self.piece_of(&key.id)).collect();
        // The text stays shared with earlier readers, and its revision too.
        if stale.is_empty() {
            return;
        }
        self.as_of = state.revision;
        for start in stale {
            let from = start.as_deref().unwrap_or_default().to_owned();
            // An earlier piece may have become empty and vanished, which does not move the end of this one.
            let until = start.as_ref().map_or_else(|| self.first(), |start| self.after(start));
            if let Some(start) = &start {
                self.pieces.remove(start);
            }
            self.write(state, view, &from, until);
        }
    }

    /// The start of the piece that an id belongs to; `None` before the first piece.
    fn piece_of(&self, id: &Arc<str>) -> Option<Arc<str>> {
        self.pieces.range(..=id.clone()).next_back().map(|(start, _)| start.clone())
    }

    fn first(&self) -> Option<Arc<str>> {
        self.pieces.keys().next().cloned()
    }

    fn after(&self, start: &Arc<str>) -> Option<Arc<str>> {
        let beyond = (Bound::Excluded(start.clone()), Bound::Unbounded);
        self.pieces.range(beyond).next().map(|(next, _)| next.clone())
    }

    /// Serializes the objects from `from` up to `until`, exclusive, in as many chunks as needed.
    fn write(&mut self, state: &StoreState, view: KindView, from: &str, until: Option<Arc<str>>) {
        let is_inside = |id: &Arc<str>| until.as_ref().is_none_or(|until| id < until);
        let inside: Vec<(&Arc<str>, &StoreEntry)> =
            state.starting_at(view.kind, from).take_while(|(id, _)| is_inside(id)).collect();
        // Chunks of equal size: after a split, neither half is full again soon.
        let pieces = inside.len().div_ceil(ROWS_PER_PIECE).max(1);
        for some in inside.chunks(inside.len().div_ceil(pieces).max(1)) {
            // One allocation of the final size; growth would copy large lists several times.
            let bytes = some.iter().map(|(id, entry)| rows::row_bytes(id, entry)).sum();
            let mut text = String::with_capacity(bytes);
            rows::rows(&mut text, view, some.iter().copied());
            self.pieces.insert(some[0].0.clone(), ListChunk { rows: some.len(), text: Bytes::from(text) });
        }
    }
}

#[cfg(test)]
mod tests;
