//! DER in PEM (RFC 7468).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The first block of a PEM text whose label ends with `kind`: its label and its DER bytes.
pub(super) fn block<'p>(text: &'p str, kind: &str) -> Option<(&'p str, Vec<u8>)> {
    let (_, rest) = text.split_once("-----BEGIN ")?;
    let (label, rest) = rest.split_once("-----")?;
    let (body, _) = rest.split_once("-----END ")?;
    if !label.ends_with(kind) {
        return None;
    }
    let base64: String = body.split_whitespace().collect();
    Some((label, STANDARD.decode(base64).ok()?))
}
