//! Whole lists, kept as text in pieces that everybody who asks shares.
//!
//! A list follows the states it is asked about by their differences: only pieces that hold what changed are
//! written anew. Knows nothing of filters and pages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use yumen_config::Kind;
use yumen_store::{Revision, StoreEntry, StoreState};

use crate::rows;
use crate::secrets::SecretVisibility;

/// A piece is written as often as one of its objects changes, and is one write to a client.
const ROWS_PER_PIECE: usize = 128;

/// The lists that somebody asked for.
#[derive(Default)]
pub(crate) struct ListCache(Mutex<BTreeMap<(Kind, SecretVisibility), CachedList>>);

/// One list as it was when it was asked for.
pub(crate) struct RenderedList {
    /// How many objects there are.
    pub(crate) total: usize,
    /// Their text without what goes between the pieces.
    pub(crate) pieces: Vec<Bytes>,
    /// A revision at which the list is the same.
    pub(crate) as_of: Revision,
}

impl ListCache {
    /// The list of all objects of a kind, as of `state`, with what its reader may see of them.
    pub(crate) fn written(&self, state: &StoreState, of: (Kind, SecretVisibility)) -> RenderedList {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let list = lists.entry(of).or_insert_with(|| CachedList::new(state, of));
        list.move_to(state, of);
        RenderedList {
            total: list.pieces.values().map(|piece| piece.rows).sum(),
            pieces: list.pieces.values().map(|piece| piece.text.clone()).collect(),
            as_of: list.as_of,
        }
    }
}

struct CachedList {
    of: StoreState,
    /// By the id from which on objects belong to the piece; the first piece has those before it as well.
    pieces: BTreeMap<Arc<str>, ListChunk>,
    as_of: Revision,
}

struct ListChunk {
    rows: usize,
    text: Bytes,
}

impl CachedList {
    fn new(state: &StoreState, of: (Kind, SecretVisibility)) -> CachedList {
        let mut list = CachedList { of: state.clone(), pieces: BTreeMap::new(), as_of: state.revision };
        list.write(state, of, "", None);
        list
    }

    fn move_to(&mut self, state: &StoreState, of: (Kind, SecretVisibility)) {
        let from = std::mem::replace(&mut self.of, state.clone());
        let changed = from.differences(state).filter(|(key, ..)| key.kind == of.0);
        let stale: BTreeSet<Option<Arc<str>>> = changed.map(|(key, ..)| self.piece_of(&key.id)).collect();
        if stale.is_empty() {
            return;
        }
        self.as_of = state.revision;
        for start in stale {
            let from = start.as_deref().unwrap_or_default().to_owned();
            // A piece before it may have been emptied, which does not move where this one ends.
            let until = start.as_ref().map_or_else(|| self.first(), |start| self.after(start));
            if let Some(start) = &start {
                self.pieces.remove(start);
            }
            self.write(state, of, &from, until);
        }
    }

    /// The start of the piece an id belongs to; none where it stands before all of them.
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

    /// Writes the objects from one id to before another as so many pieces as they need.
    fn write(
        &mut self,
        state: &StoreState,
        of: (Kind, SecretVisibility),
        from: &str,
        until: Option<Arc<str>>,
    ) {
        let is_inside = |id: &Arc<str>| until.as_ref().is_none_or(|until| id < until);
        let inside: Vec<(&Arc<str>, &StoreEntry)> =
            state.starting_at(of.0, from).take_while(|(id, _)| is_inside(id)).collect();
        // Even pieces: of two halves neither is full again at once.
        let pieces = inside.len().div_ceil(ROWS_PER_PIECE).max(1);
        for some in inside.chunks(inside.len().div_ceil(pieces).max(1)) {
            let bytes = some.iter().map(|(id, entry)| rows::row_bytes(id, entry)).sum();
            let mut text = String::with_capacity(bytes);
            rows::rows(&mut text, of, some.iter().copied());
            self.pieces.insert(some[0].0.clone(), ListChunk { rows: some.len(), text: Bytes::from(text) });
        }
    }
}

#[cfg(test)]
mod tests;
