//! The look-up in tables where priority counts between several patterns of one prefix.
//!
//! The trie tries `/t/:id` before `/t/*`. In lua-resty-radixtree both are in one list, ordered by priority.

use smallvec::SmallVec;
use yumen_plugin::Exchange;

use super::match_observer::MatchObserver;
use super::trie::TrieSearch;
use super::{RouteBucket, RoutePath, attempt};
use crate::route::Route;

/// The levels of one prefix that are sorted without an allocation.
const INLINE: usize = 8;

/// As the look-up by levels alone, beginning with the level `ahead`, but the levels with the same text before their first parameter or `*` are one.
#[cold]
pub(super) fn find_path<'s, W: MatchObserver>(
    levels: &mut TrieSearch<'s, RouteBucket>,
    mut ahead: Option<&'s RouteBucket>,
    host: &'s str,
    ex: &mut Exchange<'s>,
    witness: &mut W,
    winner: &mut Option<&'s Route>,
) {
    while let Some(first) = ahead.take().or_else(|| levels.next(ex.request.routed_path())) {
        let prefix = literal_length(first);
        let mut group: SmallVec<[&[RoutePath]; INLINE]> = SmallVec::new();
        group.push(first.route_paths());
        // The level of a `*` is the last one of its prefix, and an exact path precedes patterns of any priority.
        while starts_with_parameter(first, prefix)
            && let Some(bucket) = levels.next(ex.request.routed_path())
        {
            // Levels of one prefix are adjacent: the search leaves a node only after all that is below it.
            if literal_length(bucket) != prefix {
                ahead = Some(bucket);
                break;
            }
            group.push(bucket.route_paths());
        }
        while let Some(route_path) = take_first(&mut group) {
            if attempt(route_path, host, ex, witness, winner).is_break() {
                return;
            }
        }
    }
}

/// All patterns of a bucket have the same text before their first parameter or `*`.
fn literal_length(bucket: &RouteBucket) -> usize {
    bucket.route_paths().first().map_or(0, RoutePath::literal_length)
}

/// Whether the text after the constant begin of the patterns is a parameter.
fn starts_with_parameter(bucket: &RouteBucket, prefix: usize) -> bool {
    let first = bucket.route_paths().first();
    first.is_some_and(|route_path| route_path.pattern().as_bytes().get(prefix) == Some(&b':'))
}

/// Takes the route with the highest priority; of equal ones that of the earlier level. Each level is in order of priority.
fn take_first<'s>(group: &mut [&'s [RoutePath]]) -> Option<&'s RoutePath> {
    let heads = group.iter().enumerate().filter_map(|(at, rest)| Some((at, rest.first()?)));
    // Of several maxima `max_by_key` returns the last one.
    let (at, _) = heads.rev().max_by_key(|(_, head)| head.route.matching.priority)?;
    let (first, rest) = group[at].split_first()?;
    group[at] = rest;
    Some(first)
}
