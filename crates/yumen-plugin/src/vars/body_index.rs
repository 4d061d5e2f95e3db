//! Values inside a buffered request body, which is indexed once, in bounded turns. Supported are forms
//! (urlencoded and multipart) and JSON.

use yumen_http::KnownField;

use super::VarValue;
use super::json_index::{JsonIndex, MEMBERS_MAX, UnreadValue};
use super::multipart::{MultipartFault, MultipartParts};
use super::post::{self, is_json, media_type};
use crate::json_scan::{JsonFault, JsonScan, ScanProgress};
use crate::{BacktrackLimitExceeded, Exchange};

/// Most fields of a urlencoded form; one with more is refused.
const FORM_FIELDS_MAX: usize = 10_000;
/// Most parts of a multipart form; one with more is refused.
const FORM_PARTS_MAX: usize = 1000;
/// Largest body to index. Bodies that are buffered for variables are smaller, but one that a plugin has
/// rewritten or buffered for itself may be larger.
pub(super) const INDEXED_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes of JSON in one turn.
const TURN_BYTES: usize = 128 * 1024;

/// The index of a body.
#[derive(Debug)]
pub(crate) enum BodyIndex {
    Json(JsonIndex),
    Urlencoded,
    Multipart(MultipartParts),
    /// Empty, or a type without values.
    Nothing,
    /// Malformed, or of an ambiguous type: upstreams may still read values in it.
    Unreadable,
    /// Beyond the limits.
    TooComplex,
}

/// Indexes the body of an exchange turn by turn, before variables are evaluated.
#[derive(Debug)]
pub struct BodyIndexing {
    scan: JsonScan,
}

/// State of the index after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexingProgress {
    /// Another turn is needed.
    More,
    /// The index is complete.
    Done,
    /// The body exceeds the limits: none of its values can be trusted.
    TooComplex,
}

impl Default for BodyIndexing {
    fn default() -> BodyIndexing {
        BodyIndexing { scan: JsonScan::noting_members(MEMBERS_MAX) }
    }
}

impl BodyIndexing {
    /// Indexes the next part of the body.
    pub fn turn(&mut self, ex: &Exchange<'_>) -> IndexingProgress {
        let Some(body) = &ex.body.buffered else { return IndexingProgress::Done };
        if body.index.get().is_none() {
            let Some(index) = self.index(ex, body, TURN_BYTES) else { return IndexingProgress::More };
            // Cannot fail: the cell was empty.
            let _ = body.index.set(index);
        }
        match body.index.get() {
            Some(BodyIndex::TooComplex) => IndexingProgress::TooComplex,
            _ => IndexingProgress::Done,
        }
    }

    /// Returns `None` if another turn is needed.
    fn index(&mut self, ex: &Exchange<'_>, body: &[u8], bytes: usize) -> Option<BodyIndex> {
        let Some(content_type) =
            ex.request.fields.known(KnownField::ContentType).filter(|_| !body.is_empty())
        else {
            return Some(BodyIndex::Nothing);
        };
        // The upstream may parse the body by another type, so no reading of it is safe.
        if ex.has_ambiguous_content_type() {
            return Some(BodyIndex::Unreadable);
        }
        if body.len() > INDEXED_BYTES_MAX {
            return Some(BodyIndex::TooComplex);
        }
        let media_type = media_type(content_type);
        Some(if media_type.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") {
            // Counting separators needs no allocation, so a form of excessive size is refused cheaply.
            match memchr::memchr_iter(b'&', body).count() {
                0..=FORM_FIELDS_MAX => BodyIndex::Urlencoded,
                _ => BodyIndex::TooComplex,
            }
        } else if media_type.eq_ignore_ascii_case(b"multipart/form-data") {
            match MultipartParts::parse(body, content_type, FORM_PARTS_MAX) {
                Ok(parts) => BodyIndex::Multipart(parts),
                Err(MultipartFault::Malformed) => BodyIndex::Unreadable,
                Err(MultipartFault::TooManyParts) => BodyIndex::TooComplex,
            }
        } else if is_json(media_type) {
            return self.index_json(body, bytes);
        } else {
            BodyIndex::Nothing
        })
    }

    fn index_json(&mut self, body: &[u8], bytes: usize) -> Option<BodyIndex> {
        Some(match self.scan.advance(body, bytes) {
            Ok(ScanProgress::More) => return None,
            // JSON text is UTF-8 (RFC 8259 §8.1).
            Ok(ScanProgress::Done) if self.scan.ends(body).is_ok() && std::str::from_utf8(body).is_ok() => {
                let scan = std::mem::replace(&mut self.scan, JsonScan::new(0, 0));
                BodyIndex::Json(JsonIndex::new(scan.into_members()))
            }
            Ok(ScanProgress::Done) | Err(JsonFault::Syntax { .. }) => BodyIndex::Unreadable,
            Err(JsonFault::TooDeep | JsonFault::TooManyValues) => BodyIndex::TooComplex,
        })
    }
}

/// The form field or JSON location `name`. Indexes the body at once if that was not done in turns.
pub(super) fn argument<'a>(ex: &'a Exchange<'_>, name: &str) -> Option<VarValue<'a>> {
    let body = ex.body.buffered.as_ref()?;
    let whole = || BodyIndexing::default().index(ex, body, usize::MAX).unwrap_or(BodyIndex::Nothing);
    match body.index.get_or_init(whole) {
        BodyIndex::Json(index) => index.value(body, name).unwrap_or_else(|unread| match unread {
            UnreadValue::TooComplex => ex.decided(Err(BacktrackLimitExceeded)),
            UnreadValue::Unreadable => ex.undecided_by_body(),
        }),
        BodyIndex::Urlencoded => post::form_field(body, name.as_bytes()).map(VarValue::Text),
        BodyIndex::Multipart(parts) => {
            parts.field(body, name.as_bytes()).map(|value| VarValue::Text(value.into()))
        }
        BodyIndex::Unreadable => ex.undecided_by_body(),
        BodyIndex::Nothing => None,
        BodyIndex::TooComplex => ex.decided(Err(BacktrackLimitExceeded)),
    }
}
