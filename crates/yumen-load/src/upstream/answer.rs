//! Responses of the test upstream by path. Independent of connections.

use bytes::Bytes;

/// Maximum body size, in bytes, that is sent in one write with the head.
pub(crate) const SMALL_BYTES: u64 = 64 * 1024;
/// Maximum body size of a path in bytes.
const BODY_BYTES_MAX: u64 = 16 << 30;
/// Size of the whole response to `/ping` in report R1, head included.
const PING_RESPONSE_BYTES: usize = 181;
const PAGE_BYTES: usize = 2048;

/// A response without the fields that depend on the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CannedResponse {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: CannedBody,
    /// Length of a padding field that brings the head to the required size.
    pub(crate) filler: usize,
}

/// A body: given bytes, or a number of filler bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CannedBody {
    Bytes(Bytes),
    Filler(u64),
}

impl CannedBody {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Filler(length) => *length,
        }
    }
}

impl CannedResponse {
    pub(crate) fn text(status: u16, text: impl Into<Bytes>) -> Self {
        Self { status, content_type: "text/plain", body: CannedBody::Bytes(text.into()), filler: 0 }
    }

    fn filler(length: u64) -> Self {
        Self { status: 200, content_type: "text/plain", body: CannedBody::Filler(length), filler: 0 }
    }

    /// Regular response for a path. Unknown paths get the default body, so that any number of routes can be
    /// measured.
    pub(crate) fn of(path: &str, default_bytes: u64) -> Self {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        if let Some(count) = path.strip_prefix("/bytes/").and_then(size) {
            return Self::filler(count);
        }
        if let Some(status) = path.strip_prefix("/status/").and_then(|text| text.parse().ok()) {
            return match status {
                200..=599 => Self::text(status, Bytes::new()),
                // 1xx are no final responses (RFC 9110 §15.2), so the client would keep waiting.
                _ => Self::text(400, "the status must be from 200 to 599\n"),
            };
        }
        match path {
            "/ping" => Self::ping(),
            "/hello" => {
                Self { content_type: "application/json", ..Self::text(200, r#"{"message":"hello world"}"#) }
            }
            "/page" => Self { content_type: "text/html", ..Self::text(200, page()) },
            _ => match path.strip_prefix('/').and_then(size) {
                Some(count) => Self::filler(count),
                None => Self::filler(default_bytes),
            },
        }
    }

    /// Response `ok`, padded to the size in report R1.
    fn ping() -> Self {
        let mut answer = Self::text(200, "ok");
        let bare = answer.head(false).len() + 2 + FILLER_FIELD.len() + 2;
        answer.filler = PING_RESPONSE_BYTES - bare;
        answer
    }

    /// The head in HTTP/1.1 format, including the empty line.
    pub(crate) fn head(&self, close: bool) -> Vec<u8> {
        let mut head = Vec::with_capacity(192);
        head.extend_from_slice(b"HTTP/1.1 ");
        head.extend_from_slice(itoa::Buffer::new().format(self.status).as_bytes());
        head.push(b' ');
        head.extend_from_slice(reason(self.status).as_bytes());
        head.extend_from_slice(b"\r\nServer: yumen-bench\r\nContent-Type: ");
        head.extend_from_slice(self.content_type.as_bytes());
        // 204 must not have the field (RFC 9110 §8.6).
        if !matches!(self.status, 204 | 304) {
            head.extend_from_slice(b"\r\nContent-Length: ");
            head.extend_from_slice(itoa::Buffer::new().format(self.body.length()).as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        if self.filler > 0 {
            head.extend_from_slice(FILLER_FIELD);
            head.resize(head.len() + self.filler, b'-');
            head.extend_from_slice(b"\r\n");
        }
        if close {
            head.extend_from_slice(b"Connection: close\r\n");
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}

const FILLER_FIELD: &[u8] = b"X-Filler: ";

/// Parses a size: `N`, `Nk` or `Nm`.
fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1 << 10),
        b'm' | b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    // `parse` would accept `+1`.
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // A size that overflows is an ordinary path with the default body.
    let bytes = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (bytes <= BODY_BYTES_MAX).then_some(bytes)
}

/// A static page of about 2 KB, as in report R3.
fn page() -> String {
    let mut page = "<!DOCTYPE html>\n<html><head><title>yumen-bench</title></head><body>\n".to_owned();
    let end = "</body></html>\n";
    while page.len() + end.len() < PAGE_BYTES {
        page.push_str("<p>A paragraph of a static page.</p>\n");
    }
    page.push_str(end);
    page
}

fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Unnamed")
}
