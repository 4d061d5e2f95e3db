//! Path and host patterns as keys of the tries, and the parameters of a match.
//!
//! Patterns are bytes: `*` in a path or at the start of a host matches anything.

use std::borrow::Cow;
use std::ops::Range;

use super::trie::{KeyMatch, PARAMETER};
use super::wildcard;

/// The key of a pattern in a trie.
pub(crate) struct PatternKey<'p> {
    pub(crate) bytes: Cow<'p, [u8]>,
    pub(crate) reach: KeyMatch,
    /// The rest of the work after the trie found the key.
    pub(crate) rest: KeyRemainder,
}

/// The part of a pattern that its key does not express.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyRemainder {
    /// The key is the whole pattern.
    Nothing,
    /// Parameters, which every match has.
    Parameters,
    /// A `*` before the end: the pattern may not match after all.
    Wildcard {
        /// Whether `:name` and `*name` segments are parameters.
        parameters: bool,
    },
}

impl KeyRemainder {
    pub(crate) fn is_wildcard(self) -> bool {
        matches!(self, KeyRemainder::Wildcard { .. })
    }

    /// Whether a path that matches the key of `pattern` matches the pattern too; appends its parameters.
    pub(crate) fn admits<'p>(
        self,
        pattern: &'p str,
        path: &[u8],
        out: &mut Vec<(&'p str, Range<usize>)>,
    ) -> bool {
        match self {
            KeyRemainder::Nothing => true,
            KeyRemainder::Parameters => {
                capture(pattern, path, out);
                true
            }
            KeyRemainder::Wildcard { parameters } => wildcard::fits(pattern, path, parameters, out),
        }
    }
}

/// The key of a path pattern; `None` if no path can match it.
pub(crate) fn path_key(pattern: &str, parameters: bool) -> Option<PatternKey<'_>> {
    if pattern.as_bytes().contains(&PARAMETER) {
        // PARAMETER is the marker of the trie, and no accepted request path contains it.
        return None;
    }
    if let Some(star) = wildcard::inner_star(pattern, parameters) {
        let key = literal_key(&pattern[..star], parameters);
        return Some(PatternKey {
            reach: KeyMatch::Prefix,
            rest: KeyRemainder::Wildcard { parameters },
            ..key
        });
    }
    // Without parameters `*name` is a star whose name nothing reads, as in APISIX.
    match wildcard::named_tail(pattern).filter(|_| !parameters) {
        Some(star) => Some(plain(pattern.as_bytes()[..=star].into(), false)),
        None => Some(literal_key(pattern, parameters)),
    }
}

/// Bytes of a pattern before its first parameter or `*`, in a router with parameters.
pub(crate) fn literal_length(pattern: &str) -> usize {
    let star = pattern.find('*').unwrap_or(pattern.len());
    let mut segments = pattern[..star].match_indices("/:").map(|(slash, _)| slash + 1);
    // A colon alone is literal.
    let names = |at: &usize| pattern.as_bytes().get(at + 1).is_some_and(|byte| *byte != b'/');
    segments.find(names).unwrap_or(star)
}

/// The key of a pattern without a `*` before its last segment.
fn literal_key(pattern: &str, parameters: bool) -> PatternKey<'_> {
    // Only whole segments are parameters: `/a:b` is literal.
    if !parameters || !pattern.starts_with('/') || !(pattern.contains("/:") || pattern.contains("/*")) {
        return plain(pattern.as_bytes().into(), false);
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
        return PatternKey { bytes: bytes.into(), reach: KeyMatch::Prefix, rest: KeyRemainder::Parameters };
    }
    captures |= push_segment(tail, &mut bytes);
    plain(bytes.into(), captures)
}

fn plain<'p>(bytes: Cow<'p, [u8]>, captures: bool) -> PatternKey<'p> {
    let rest = if captures { KeyRemainder::Parameters } else { KeyRemainder::Nothing };
    // A tail such as `:rest*` names a parameter; its star is part of the name.
    // The marker stands for the whole segment, so there is no literal star to strip.
    if bytes.last() != Some(&b'*') {
        return PatternKey { bytes, reach: KeyMatch::Exact, rest };
    }
    let end = bytes.len() - 1;
    let bytes = match bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[..end]),
        Cow::Owned(mut bytes) => {
            bytes.truncate(end);
            Cow::Owned(bytes)
        }
    };
    PatternKey { bytes, reach: KeyMatch::Prefix, rest }
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
        // Patterns with a `*` before the last segment are compared by `wildcard`.
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
    PatternKey { bytes: bytes.into(), reach, rest: KeyRemainder::Nothing }
}
