//! Patterns with `*` before their end, such as `/task/*/complete`, and their parameters.
//!
//! The trie finds such a pattern by the bytes before its first `*`; this module compares the rest, as
//! lua-resty-radixtree does with a regular expression.

use std::ops::Range;

/// The names and ranges of the parameters of a match.
type PathParams<'p> = Vec<(&'p str, Range<usize>)>;

/// The place of a `*` in a pattern.
struct StarPlace<'p> {
    at: usize,
    /// The rest of its segment if the star starts the segment, as in `*name`; otherwise empty.
    name: &'p str,
    /// End of star and name.
    end: usize,
}

/// The position of the first `*` if the pattern goes on behind its segment, or in it.
pub(super) fn inner_star(pattern: &str, parameters: bool) -> Option<usize> {
    let star = stars(pattern, parameters).next()?;
    // `/a/*` and `/a/*name` match every rest, so the trie alone decides.
    (star.end < pattern.len()).then_some(star.at)
}

/// Whether a tail segment such as `*name` ends the pattern, which matches every rest.
pub(super) fn named_tail(pattern: &str) -> Option<usize> {
    let star = stars(pattern, false).next()?;
    (star.end == pattern.len() && !star.name.is_empty()).then_some(star.at)
}

/// The stars of a pattern, from the left. A star inside `:name` belongs to the name.
fn stars(pattern: &str, parameters: bool) -> impl DoubleEndedIterator<Item = StarPlace<'_>> {
    pattern.match_indices('*').filter_map(move |(at, _)| {
        let start = pattern[..at].rfind('/').map_or(0, |slash| slash + 1);
        let end = pattern[at..].find('/').map_or(pattern.len(), |length| at + length);
        let is_first = start == at && start > 0;
        // A second star in `*na*me` is part of the name.
        let is_named = start < at && start > 0 && pattern[start..].starts_with('*');
        if is_named || parameters && is_parameter(&pattern[start..end]) {
            return None;
        }
        let end = if is_first { end } else { at + 1 };
        Some(StarPlace { at, name: &pattern[at + 1..end], end })
    })
}

fn is_parameter(segment: &str) -> bool {
    segment.len() > 1 && segment.starts_with(':')
}

/// Whether a path matches the whole pattern; appends its parameters to `out`.
///
/// A star matches any bytes, slashes too, or none. If several divisions of the path match, the first star
/// takes the longest text, as in a regular expression. At most (length of the path) × (length of the pattern) steps.
#[cold]
pub(super) fn fits<'p>(pattern: &'p str, path: &[u8], parameters: bool, out: &mut PathParams<'p>) -> bool {
    let first = out.len();
    // From the right, with the rightmost place of each piece: the stars before it get the most.
    let (mut pattern_end, mut path_end) = (pattern.len(), path.len());
    let mut right: Option<StarPlace<'p>> = None;
    let mut places = stars(pattern, parameters).rev();
    loop {
        let left = places.next();
        let piece = &pattern[left.as_ref().map_or(0, |star| star.end)..pattern_end];
        // Only the last piece must reach the end of the path, only the first one must start at its beginning.
        let reaches = |end: usize| end == path_end || right.is_some() && end < path_end;
        let at = |start: &usize| piece_end(piece, path, *start, parameters, None).is_some_and(reaches);
        let start = match left {
            None => Some(0).filter(at),
            Some(_) => (0..=path_end).rev().find(at),
        };
        let Some(start) = start else {
            out.truncate(first);
            return false;
        };
        let end = piece_end(piece, path, start, parameters, Some(out)).unwrap_or(start);
        if let Some(star) = right.filter(|star| parameters && !star.name.is_empty()) {
            out.push((star.name, end..path_end));
        }
        let Some(star) = left else { return true };
        (pattern_end, path_end, right) = (star.at, start, Some(star));
    }
}

/// The end of a piece of a pattern without stars that matches the path from `start`.
fn piece_end<'p>(
    piece: &'p str,
    path: &[u8],
    start: usize,
    parameters: bool,
    mut out: Option<&mut PathParams<'p>>,
) -> Option<usize> {
    let mut at = start;
    let mut starts_segment = false;
    let mut rest = piece;
    while let Some(byte) = rest.bytes().next() {
        let segment = &rest[..rest.find('/').unwrap_or(rest.len())];
        if parameters && starts_segment && is_parameter(segment) {
            let left = path.get(at..)?;
            let length = left.iter().position(|byte| *byte == b'/').unwrap_or(left.len());
            if length == 0 {
                return None;
            }
            if let Some(out) = &mut out {
                out.push((&segment[1..], at..at + length));
            }
            (at, rest) = (at + length, &rest[segment.len()..]);
            starts_segment = false;
            continue;
        }
        // Whole runs, since a pattern may have characters of several bytes.
        let length = match byte {
            b'/' => 1,
            _ => segment.len(),
        };
        if !path.get(at..)?.starts_with(&rest.as_bytes()[..length]) {
            return None;
        }
        starts_segment = byte == b'/';
        (at, rest) = (at + length, &rest[length..]);
    }
    Some(at)
}
