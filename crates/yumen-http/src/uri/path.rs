//! The forms of a request path: as forwarded, decoded, and as the router matches it.
//!
//! Dot segments are resolved once, in the received octets (RFC 3986 §5.2.4), so that the router and the
//! upstream read the same path. Independent of queries and authorities.

use std::ops::Range;

use super::{InvalidPath, escaped};

/// Policy for request paths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathPolicy {
    /// Dot segments, in every spelling.
    pub dot_segments: DotSegmentPolicy,
    /// `%2F` inside a path.
    pub encoded_slashes: EncodedSlashPolicy,
}

/// The treatment of dot segments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DotSegmentPolicy {
    /// The router and the upstream receive the path without dot segments.
    #[default]
    Resolve,
    /// The request is rejected.
    Refuse,
    /// The router receives the path without dot segments, the upstream the path as received.
    AsReceived,
}

/// The treatment of encoded slashes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EncodedSlashPolicy {
    /// An encoded slash is part of its segment.
    #[default]
    Keep,
    /// An encoded slash separates segments when the router matches.
    Separate,
    /// Requests with an encoded slash or backslash are rejected.
    Refuse,
}

/// The forms of a path that differ from the received one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PathForms {
    /// The path without dot segments, all other octets as received; `None` if it has none.
    pub resolved: Option<Vec<u8>>,
    /// Whether the upstream gets the received path all the same.
    pub forwards_received: bool,
    /// The resolved path with escapes decoded and slashes merged.
    pub decoded: Vec<u8>,
    /// The decoded path with `%2F` and `%25` left encoded; `None` if the router matches the decoded path.
    pub routed: Option<Vec<u8>>,
}

impl PathForms {
    /// Derives the forms of a path that begins with a slash.
    ///
    /// # Errors
    /// An invalid escape, an encoded NUL, a path that leads above its root, and forms that the policy rejects.
    pub fn read(path: &[u8], policy: PathPolicy) -> Result<PathForms, InvalidPath> {
        let separates = policy.encoded_slashes == EncodedSlashPolicy::Separate;
        // Also validates every escape, so that `decode` below cannot fail.
        let found = PathSurvey::of(path)?;
        if found.encoded_separators != EncodedSeparators::None
            && policy.encoded_slashes == EncodedSlashPolicy::Refuse
        {
            return Err(InvalidPath("the path has an encoded slash"));
        }
        if found.has_dot_segment && policy.dot_segments == DotSegmentPolicy::Refuse {
            return Err(InvalidPath("the path has a dot segment"));
        }
        let resolved = match found.has_dot_segment {
            true => Some(resolve(path, separates)?),
            false => None,
        };
        let source = resolved.as_deref().unwrap_or(path);
        let mut forms = PathForms::default();
        decode(source, false, &mut forms.decoded);
        if found.encoded_separators == EncodedSeparators::Slash && !separates {
            let mut routed = Vec::with_capacity(source.len());
            decode(source, true, &mut routed);
            forms.routed = (routed != forms.decoded).then_some(routed);
        }
        forms.forwards_received = policy.dot_segments == DotSegmentPolicy::AsReceived;
        forms.resolved = resolved;
        Ok(forms)
    }
}

/// Whether all forms of a received path equal the path itself.
#[inline]
pub fn is_normal(path: &[u8]) -> bool {
    let mut previous = 0u8;
    for &byte in path {
        match byte {
            b'%' => return false,
            // Repeated slashes are merged, and a dot after a separator may begin a dot segment.
            b'/' | b'.' if matches!(previous, b'/' | b'\\') => return false,
            _ => {}
        }
        previous = byte;
    }
    true
}

/// Appends the decoded form of a path under the default policy.
///
/// # Errors
/// As [`PathForms::read`].
pub fn normalize(path: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidPath> {
    let forms = PathForms::read(path, PathPolicy::default())?;
    out.extend_from_slice(&forms.decoded);
    Ok(())
}

/// One octet of a path, decoded.
#[derive(Debug, Clone, Copy)]
struct PathOctet {
    byte: u8,
    is_encoded: bool,
}

impl PathOctet {
    /// The octet at the front of `rest`, which is not empty.
    fn first(rest: &[u8]) -> Result<PathOctet, InvalidPath> {
        if rest[0] != b'%' {
            return Ok(PathOctet { byte: rest[0], is_encoded: false });
        }
        match escaped(rest.get(1..3)) {
            None => Err(InvalidPath("the target has a bad percent escape")),
            Some(0) => Err(InvalidPath("the target has an encoded NUL")),
            Some(byte) => Ok(PathOctet { byte, is_encoded: true }),
        }
    }

    fn len(self) -> usize {
        if self.is_encoded { 3 } else { 1 }
    }

    /// Some upstreams treat an encoded slash or a backslash as a slash, so both delimit dot segments.
    fn is_separator(self) -> bool {
        matches!(self.byte, b'/' | b'\\')
    }
}

/// Whether a segment is a dot segment (RFC 3986 §3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DotKind {
    Ordinary,
    Current,
    Parent,
}

/// A segment with the separator before it.
struct PathSegment<'p> {
    separator: &'p [u8],
    text: &'p [u8],
    kind: DotKind,
    /// Whether the separator is a slash by RFC 3986, not only for lenient upstreams.
    is_slash: bool,
    is_separator_encoded: bool,
    /// The start of the next segment.
    end: usize,
}

/// The segment with its separator at `at`.
fn segment_at(path: &[u8], at: usize, separates: bool) -> Result<PathSegment<'_>, InvalidPath> {
    let separator = PathOctet::first(&path[at..])?;
    let start = at + separator.len();
    let mut end = start;
    let mut dots = 0usize;
    let mut is_ordinary = false;
    let mut has_parameter = false;
    while end < path.len() {
        let octet = PathOctet::first(&path[end..])?;
        if octet.is_separator() {
            break;
        }
        match octet.byte {
            b'.' if !has_parameter => dots += 1,
            // Servlet containers drop `;` and the rest of a segment before they resolve dot segments.
            b';' => has_parameter = true,
            _ => is_ordinary |= !has_parameter,
        }
        end += octet.len();
    }
    let kind = match dots {
        1 if !is_ordinary => DotKind::Current,
        2 if !is_ordinary => DotKind::Parent,
        _ => DotKind::Ordinary,
    };
    Ok(PathSegment {
        separator: &path[at..start],
        text: &path[start..end],
        kind,
        is_slash: separator.byte == b'/' && (separates || !separator.is_encoded),
        is_separator_encoded: separator.is_encoded,
        end,
    })
}

/// The encoded separators of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum EncodedSeparators {
    #[default]
    None,
    /// Only backslashes.
    Backslash,
    /// At least one slash.
    Slash,
}

/// Properties of a path that decide which forms it has.
#[derive(Debug, Default)]
struct PathSurvey {
    has_dot_segment: bool,
    encoded_separators: EncodedSeparators,
}

impl PathSurvey {
    fn of(path: &[u8]) -> Result<PathSurvey, InvalidPath> {
        let mut found = PathSurvey::default();
        let mut at = 0;
        while at < path.len() {
            // `true` makes `is_slash` distinguish encoded slashes from encoded backslashes.
            let segment = segment_at(path, at, true)?;
            found.has_dot_segment |= segment.kind != DotKind::Ordinary;
            let encoded = match (segment.is_separator_encoded, segment.is_slash) {
                (false, _) => EncodedSeparators::None,
                (true, false) => EncodedSeparators::Backslash,
                (true, true) => EncodedSeparators::Slash,
            };
            found.encoded_separators = found.encoded_separators.max(encoded);
            at = segment.end;
        }
        Ok(found)
    }
}

/// A separator in the output.
struct WrittenSeparator {
    /// The start of the segment after it.
    end: usize,
    is_slash: bool,
}

/// Removes the dot segments of a path; all other octets stay.
///
/// After a slash, `..` removes the whole segment before it (RFC 3986 §5.2.4); after another separator, only
/// the part of the segment back to the previous separator.
fn resolve(path: &[u8], separates: bool) -> Result<Vec<u8>, InvalidPath> {
    let mut out = Vec::with_capacity(path.len());
    let mut written: Vec<WrittenSeparator> = Vec::new();
    // After a dot segment, `out` ends with the separator of the next segment.
    let mut is_open = false;
    let mut at = 0;
    while at < path.len() {
        let segment = segment_at(path, at, separates)?;
        at = segment.end;
        if !is_open {
            out.extend_from_slice(segment.separator);
            written.push(WrittenSeparator { end: out.len(), is_slash: segment.is_slash });
        }
        is_open = segment.kind != DotKind::Ordinary;
        match segment.kind {
            DotKind::Ordinary => out.extend_from_slice(segment.text),
            DotKind::Current => {}
            DotKind::Parent => {
                let own = written.pop();
                let is_parent =
                    |one: &WrittenSeparator| one.is_slash || own.as_ref().is_some_and(|own| !own.is_slash);
                let parent = written.iter().rposition(is_parent);
                let parent = parent.ok_or(InvalidPath("the path climbs above its root"))?;
                written.truncate(parent + 1);
                out.truncate(written[parent].end);
            }
        }
    }
    Ok(out)
}

/// Appends the path with escapes decoded and slashes merged; its escapes are valid. `keeps` leaves `%2F` and
/// `%25` encoded, so that decoding the result once more gives the decoded form.
fn decode(path: &[u8], keeps: bool, out: &mut Vec<u8>) {
    let start = out.len();
    let mut at = 0;
    while let Some(rest) = path.get(at..).filter(|rest| !rest.is_empty()) {
        // The escapes were validated, so the fallback is never used.
        let octet = PathOctet::first(rest).unwrap_or(PathOctet { byte: rest[0], is_encoded: false });
        at += octet.len();
        match octet.byte {
            b'/' if keeps && octet.is_encoded => out.extend_from_slice(b"%2F"),
            b'%' if keeps => out.extend_from_slice(b"%25"),
            b'/' if out[start..].last() == Some(&b'/') => {}
            byte => out.push(byte),
        }
    }
}

/// Whether a path may contain a dot segment in a form that [`PathForms::read`] resolves.
///
/// True for a path with an encoded NUL or a malformed escape: readers disagree on where its segments end.
pub fn has_dot_segment(path: &[u8]) -> bool {
    PathSurvey::of(path).map_or(true, |found| found.has_dot_segment)
}

/// The octets of `raw`, a path without dot segments, that decode to the range `decoded` of its decoded form.
pub fn raw_part(raw: &[u8], decoded: Range<usize>) -> &[u8] {
    part_of(raw, decoded, false)
}

/// [`raw_part`] for a range of the path that the router matches, in which `%2F` and `%25` remain encoded.
pub fn raw_routed_part(raw: &[u8], routed: Range<usize>) -> &[u8] {
    part_of(raw, routed, true)
}

fn part_of(raw: &[u8], range: Range<usize>, keeps: bool) -> &[u8] {
    let mut bounds = [raw.len(); 2];
    let (mut at, mut written) = (0, 0);
    let mut was_slash = false;
    while let Some(rest) = raw.get(at..).filter(|rest| !rest.is_empty()) {
        let octet = PathOctet::first(rest).unwrap_or(PathOctet { byte: rest[0], is_encoded: false });
        let stays_encoded = keeps && octet.is_encoded && matches!(octet.byte, b'/' | b'%');
        let is_slash = octet.byte == b'/' && !stays_encoded;
        // A repeated slash adds nothing to the decoded form.
        let len = if stays_encoded { 3 } else { usize::from(!(is_slash && was_slash)) };
        for (bound, range) in bounds.iter_mut().zip([range.start, range.end]) {
            if len > 0 && (written..written + len).contains(&range) {
                *bound = at;
            }
        }
        was_slash = is_slash;
        written += len;
        at += octet.len();
    }
    &raw[bounds[0]..bounds[1].max(bounds[0])]
}
