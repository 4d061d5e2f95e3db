//! Content codings of responses (RFC 9110 §8.4): offers of plugins, negotiation, and the fields of a coded
//! response.
//!
//! The coder runs after all plugins that edit the body, so that they see the content of the upstream in any
//! order.

use std::sync::Arc;

use yumen_http::{KnownField, Method, ResponseHead};

use crate::{BodyChunk, Exchange};

/// A content coding that a plugin offers.
pub trait ResponseCoding: Send + Sync + 'static {
    /// Name in `Accept-Encoding` and `Content-Encoding`.
    fn name(&self) -> &'static str;

    /// Whether the settings admit this response.
    fn admits(&self, ex: &Exchange<'_>, head: &ResponseHead) -> bool;

    /// Whether the settings may admit the response that a 304 stands for, which lacks most fields.
    fn could_admit(&self, ex: &Exchange<'_>, not_modified: &ResponseHead) -> bool;

    /// Whether the response carries `Vary: Accept-Encoding`.
    fn varies(&self) -> bool;

    /// Begins a body.
    fn begin(&self) -> Box<dyn BodyCoder>;
}

/// Coder of one body.
pub trait BodyCoder {
    /// Codes a chunk. After a pause and at the end, no input may remain buffered.
    fn code(&mut self, chunk: &BodyChunk) -> Vec<u8>;
}

/// The offered codings of one exchange in order of preference, and the coder in use.
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
        // A 304 carries the `Vary` of the 200 that it stands for (RFC 9110 §15.4.5).
        let is_unmodified = head.status == 304 && !is_settled(head);
        let could_admit = |offer: &Arc<dyn ResponseCoding>| is_unmodified && offer.could_admit(self, head);
        if admitted.iter().any(|offer| offer.varies())
            || offers.iter().any(|offer| offer.varies() && could_admit(offer))
        {
            add_vary(head);
        }
        // A response to HEAD has no body, so the length of a coded one is unknown.
        if self.request.client_method() == Method::Head {
            return;
        }
        let accepted = AcceptedCodings::of(self);
        let mut best: Option<(u16, &Arc<dyn ResponseCoding>)> = None;
        for offer in admitted {
            let quality = accepted.quality(offer.name().as_bytes());
            // A quality of 0 forbids the coding (RFC 9110 §12.4.2). Between equal ones, the first offer wins.
            if quality > best.map_or(0, |(best, _)| best) {
                best = Some((quality, offer));
            }
        }
        // A client that prefers `identity` gets the content without a coding.
        let Some((_, coding)) = best.filter(|(quality, _)| *quality >= accepted.identity()) else { return };
        code_head(head, coding.name());
        codings.coder = Some(coding.begin());
        self.response.codings = Some(codings);
        self.response.edit_body();
    }

    /// Codes a chunk if a coding was selected.
    pub fn code(&mut self, chunk: BodyChunk) -> Vec<u8> {
        match self.response.codings.as_mut().and_then(|codings| codings.coder.as_mut()) {
            Some(coder) => coder.code(&chunk),
            None => chunk.data,
        }
    }
}

/// Whether the response may be coded: it has a complete body, no coding, and no `no-transform`.
fn may_code(head: &ResponseHead) -> bool {
    // 204, 205 and 304 have no content, and a range refers to the representation of the upstream.
    let has_body = !matches!(head.status, 100..=199 | 204..=206 | 304);
    has_body && !head.fields.has("Content-Range") && !is_settled(head)
}

/// Whether the response has a coding already, or forbids one.
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
    let is_listed = head
        .fields
        .all_known(KnownField::Vary)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|name| covers(name.trim_ascii()));
    if !is_listed {
        head.fields.add("Vary", b"Accept-Encoding");
    }
}

/// Adjusts the head for a coded body: the length is unknown, and the entity tag becomes weak.
fn code_head(head: &mut ResponseHead, coding: &str) {
    head.body_changes(None);
    head.fields.set("Content-Encoding", coding.as_bytes());
    for name in OUTDATED {
        head.fields.remove(name);
    }
    // The coded body is only semantically equal, so a strong tag becomes weak (RFC 9110 §8.8.1).
    if let Some(tag) = head.fields.get("ETag").filter(|tag| tag.starts_with(b"\"")) {
        let weak = [b"W/", tag].concat();
        head.fields.set("ETag", &weak);
    }
}

/// The parsed `Accept-Encoding` (RFC 9110 §12.5.3): names and qualities in thousandths.
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

    /// Quality of a coding; 0 if the client does not accept it.
    fn quality(&self, name: &[u8]) -> u16 {
        // An asterisk stands for every coding that is not listed (RFC 9110 §12.5.3).
        self.find(name).or_else(|| self.find(b"*")).unwrap_or(0)
    }

    /// Explicit quality of `identity`; 0 without one.
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

/// Parses a quality into thousandths: `0.25` is 250. An invalid one counts as 0.
fn thousandths(text: &[u8]) -> u16 {
    let quality = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    // `parse` also accepts `NaN` and `inf`, which are out of range.
    quality.filter(|quality| (0.0..=1.0).contains(quality)).map_or(0, |quality| (quality * 1000.0) as u16)
}

#[cfg(test)]
mod tests;
