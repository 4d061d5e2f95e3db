//! Path and host patterns as keys of the tries, and the parameters of a match.
//!
//! Patterns are bytes: `*` at the end of a path or at the start of a host matches anything.

use std::borrow::Cow;
use std::ops::Range;

use super::trie::{KeyMatch, PARAMETER};

/// The key of a pattern in a trie.
pub(crate) struct PatternKey<'p> {
    pub(crate) bytes: Cow<'p, [u8]>,
    pub(crate) reach: KeyMatch,
    /// Whether a match has parameters.
    pub(crate) captures: bool,
}

/// The key of a path pattern; `None` if no path can match it.
pub(crate) fn path_key(pattern: &str, parameters: bool) -> Option<PatternKey<'_>> {
    if pattern.as_bytes().contains(&PARAMETER) {
        // PARAMETER is the marker of the trie, and no accepted request path contains it.
        return None;
    }
    // Only whole segments are parameters: `/a:b` is literal.
    if !parameters || !pattern.starts_with('/') || !(pattern.contains("/:") || pattern.contains("/*")) {
        return Some(plain(pattern, pattern.as_bytes().into(), false));
    }
    let mut bytes = Vec::with_capacity(pattern.len());
    let mut captures = false;
    let (head, tail) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    // The empty text before the leading slash is not a segment.
    for segment in head.split('/').skip(usize::from(pattern.starts_with('/'))) {
        captures |= push_segment(segment, &mut bytes);
    }
    // `*name` captures the rest of the path.
    if tail.len() > 1 && tail.starts_with('*') {
        bytes.push(b'/');
        return Some(PatternKey { bytes: bytes.into(), reach: KeyMatch::Prefix, captures: true });
    }
    captures |= push_segment(tail, &mut bytes);
    Some(plain(pattern, bytes.into(), captures))
}

fn plain<'p>(pattern: &str, bytes: Cow<'p, [u8]>, captures: bool) -> PatternKey<'p> {
    // A tail such as `:rest*` names a parameter; its star is part of the name.
    // The marker stands for the whole segment, so there is no literal star to strip.
    if !pattern.ends_with('*') || bytes.last() == Some(&PARAMETER) {
        return PatternKey { bytes, reach: KeyMatch::Exact, captures };
    }
    let end = bytes.len() - 1;
    let bytes = match bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[..end]),
        Cow::Owned(mut bytes) => {
            bytes.truncate(end);
            Cow::Owned(bytes)
        }
    };
    PatternKey { bytes, reach: KeyMatch::Prefix, captures }
}

/// Appends a slash and a segment; returns whether the segment is a parameter.
fn push_segment(segment: &str, bytes: &mut Vec<u8>) -> bool {
    bytes.push(b'/');
    let is_parameter = segment.len() > 1 && segment.starts_with(':');
    if is_parameter {
        bytes.push(PARAMETER);
    } else {
        bytes.extend_from_slice(segment.as_bytes());
    }
    is_parameter
}

/// Appends the parameters of a path that matches the pattern.
pub(crate) fn capture<'p>(pattern: &'p str, path: &[u8], out: &mut Vec<(&'p str, Range<usize>)>) {
    let mut at = 0;
    let mut segments = pattern.split('/').peekable();
    while let Some(segment) = segments.next() {
        let end = path.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'/'));
        let end = end.map_or(path.len(), |length| at + length);
        if segment.len() > 1 && segment.starts_with(':') {
            out.push((&segment[1..], at..end));
        // Only the last segment captures the rest; elsewhere `*name` is literal, as in `path_key`.
        } else if segment.len() > 1 && segment.starts_with('*') && segments.peek().is_none() {
            // `at` is beyond the path if the rest is empty.
            out.push((&segment[1..], at.min(path.len())..path.len()));
        }
        at = end + 1;
    }
}

/// The key of a lower-case host pattern: reversed, so that a suffix becomes a prefix.
pub(crate) fn host_key(pattern: &str) -> PatternKey<'static> {
    let (text, reach) = match pattern.strip_prefix('*') {
        Some(suffix) => (suffix, KeyMatch::Prefix),
        None => (pattern, KeyMatch::Exact),
    };
    // Hosts are searched from their end, so `*.example.com` is a prefix of the reversed name.
    let bytes: Vec<u8> = text.bytes().rev().collect();
    PatternKey { bytes: bytes.into(), reach, captures: false }
}
