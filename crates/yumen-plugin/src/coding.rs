//! Content codings of responses (RFC 9110 §8.4): offers, the preference of the client, fields of the head.
//!
//! Knows no concrete coding. The coder runs after all plugins that edit the body, so they see the body of the
//! upstream in any order.

use std::sync::Arc;

use yumen_http::{KnownField, Method, ResponseHead};

use crate::{BodyChunk, Exchange};

/// A coding that a plugin is configured for.
pub trait ResponseCoding: Send + Sync + 'static {
    /// The name in `Accept-Encoding` and `Content-Encoding`.
    fn name(&self) -> &'static str;

    /// Whether the settings admit this response.
    fn admits(&self, ex: &Exchange<'_>, head: &ResponseHead) -> bool;

    /// Whether the settings could admit the response that a 304 represents; its head has few of the fields.
    fn could_admit(&self, ex: &Exchange<'_>, not_modified: &ResponseHead) -> bool;

    /// Whether the response depends on `Accept-Encoding`.
    fn varies(&self) -> bool;

    /// Begins a body.
    fn begin(&self) -> Box<dyn BodyCoder>;
}

/// Encoder of one body.
pub trait BodyCoder {
    /// Returns the coded bytes of a chunk. At a pause and at the end, nothing may be retained.
    fn code(&mut self, chunk: &BodyChunk) -> Vec<u8>;
}

/// Offers for one response in the order of preference, and the selected one.
#[derive(Default)]
pub struct CodingOffers {
    offers: Vec<Arc<dyn ResponseCoding>>,
    coder: Option<Box<dyn BodyCoder>>,
}

/// Fields that describe a body before it is coded.
const OUTDATED: [&str; 5] = ["Accept-Ranges", "Content-MD5", "Digest", "Content-Digest", "Repr-Digest"];

impl Exchange<'_> {
    /// [`ResponseHeadPhase::offer_coding`](crate::ResponseHeadPhase::offer_coding).
    pub(crate) fn offer_coding(&mut self, coding: Arc<dyn ResponseCoding>) {
        self.response.codings.get_or_insert_default().offers.push(coding);
    }

    /// Selects a coding after all plugins have seen the head.
    pub fn choose_coding(&mut self, head: &mut ResponseHead) {
        let Some(mut codings) = self.response.codings.take() else { return };
        let offers = std::mem::take(&mut codings.offers);
        let admitted: Vec<_> =
            offers.iter().filter(|offer| may_code(head) && offer.admits(self, head)).collect();
        // A 304 carries the `Vary` field of the response that it represents (RFC 9110 §15.4.5).
        let is_unmodified = head.status == 304 && !is_settled(head);
        let could_admit = |offer: &Arc<dyn ResponseCoding>| is_unmodified && offer.could_admit(self, head);
        if admitted.iter().any(|offer| offer.varies())
            || offers.iter().any(|offer| offer.varies() && could_admit(offer))
        {
            add_vary(head);
        }
        // A response to HEAD has no body, so the effect of a coding on it is unknown.
        if self.request.client_method() == Method::Head {
            return;
        }
        let accepted = AcceptedCodings::of(self);
        let mut best: Option<(u16, &Arc<dyn ResponseCoding>)> = None;
        for offer in admitted {
            let quality = accepted.quality(offer.name().as_bytes());
            if quality > best.map_or(0, |(best, _)| best) {
                best = Some((quality, offer));
            }
        }
        let Some((_, coding)) = best.filter(|(quality, _)| *quality >= accepted.identity()) else { return };
        code_head(head, coding.name());
        codings.coder = Some(coding.begin());
        self.response.codings = Some(codings);
        self.response.edit_body();
    }

    /// Returns the bytes of a chunk, coded if a coding was selected.
    pub fn code(&mut self, chunk: BodyChunk) -> Vec<u8> {
        match self.response.codings.as_mut().and_then(|codings| codings.coder.as_mut()) {
            Some(coder) => coder.code(&chunk),
            None => chunk.data,
        }
    }
}

/// Whether a coding may be applied: the body is complete, not coded yet, and may be transformed.
fn may_code(head: &ResponseHead) -> bool {
    let has_body = !matches!(head.status, 100..=199 | 204..=206 | 304);
    has_body && !head.fields.has("Content-Range") && !is_settled(head)
}

/// Whether the coding is fixed: the body is coded already, or may not be transformed.
fn is_settled(head: &ResponseHead) -> bool {
    let coded = head.fields.known(KnownField::ContentEncoding);
    coded.is_some_and(|coding| !coding.eq_ignore_ascii_case(b"identity")) || forbids_transforming(head)
}

fn forbids_transforming(head: &ResponseHead) -> bool {
    let mut directives = head.fields.all("Cache-Control").flat_map(|value| value.split(|byte| *byte == b','));
    directives.any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
}

fn add_vary(head: &mut ResponseHead) {
    let covers = |name: &[u8]| name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding");
    let is_said = head
        .fields
        .all_known(KnownField::Vary)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|name| covers(name.trim_ascii()));
    if !is_said {
        head.fields.add("Vary", b"Accept-Encoding");
    }
}

/// Adapts the head to a coded body, whose length is unknown and whose bytes differ.
fn code_head(head: &mut ResponseHead, coding: &str) {
    head.body_changes(None);
    head.fields.set("Content-Encoding", coding.as_bytes());
    for name in OUTDATED {
        head.fields.remove(name);
    }
    if let Some(tag) = head.fields.get("ETag").filter(|tag| tag.starts_with(b"\"")) {
        let weak = [b"W/", tag].concat();
        head.fields.set("ETag", &weak);
    }
}

/// The codings of `Accept-Encoding` (RFC 9110 §12.5.3): names and qualities in thousandths.
struct AcceptedCodings<'a>(Vec<(&'a [u8], u16)>);

impl<'a> AcceptedCodings<'a> {
    fn of(ex: &'a Exchange<'_>) -> AcceptedCodings<'a> {
        let fields = ex.request.fields.all_known(KnownField::AcceptEncoding);
        let items = fields.flat_map(|value| value.split(|byte| *byte == b','));
        AcceptedCodings(items.map(accepted).filter(|(name, _)| !name.is_empty()).collect())
    }

    fn find(&self, name: &[u8]) -> Option<u16> {
        self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, quality)| *quality)
    }

    /// 0 if the client does not accept the coding.
    fn quality(&self, name: &[u8]) -> u16 {
        self.find(name).or_else(|| self.find(b"*")).unwrap_or(0)
    }

    /// The quality of an uncoded body; 0 if the client names none.
    fn identity(&self) -> u16 {
        self.find(b"identity").unwrap_or(0)
    }
}

fn accepted(item: &[u8]) -> (&[u8], u16) {
    let mut parts = item.split(|byte| *byte == b';');
    let name = parts.next().unwrap_or_default().trim_ascii();
    let weight = parts.find_map(|part| {
        let (key, value) = part.split_at(part.iter().position(|byte| *byte == b'=')?);
        key.trim_ascii().eq_ignore_ascii_case(b"q").then(|| value[1..].trim_ascii())
    });
    (name, weight.map_or(1000, thousandths))
}

/// Returns `0.25` as 250; an invalid quality counts as 0.
fn thousandths(text: &[u8]) -> u16 {
    let quality = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    quality.filter(|quality| (0.0..=1.0).contains(quality)).map_or(0, |quality| (quality * 1000.0) as u16)
}

#[cfg(test)]
mod tests;
