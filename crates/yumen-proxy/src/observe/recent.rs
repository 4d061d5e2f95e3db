//! The key of a request: what a route is found by, without query, fields, body or secrets.

use std::net::IpAddr;

use serde::Serialize;
use yumen_plugin::Exchange;

/// Bytes kept of each text.
const TEXT_BYTES_MAX: usize = 256;
/// Ends a text that was longer.
const CUT: &str = "…";

/// A request that was served lately. Texts end with `…` where they were longer than 256 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecentRequest {
    /// When its head was complete, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// Requests it stands for.
    pub weight: u32,
    /// Its method.
    pub method: Box<str>,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The host it named, in lower case, without port.
    pub host: Box<str>,
    /// The path as received, without the query.
    pub path: Box<str>,
    /// The client's address.
    pub client_ip: IpAddr,
    /// The server name its TLS connection asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sni: Option<Box<str>>,
    /// Whether a text was too long to be kept: such a request cannot be replayed.
    pub is_cut: bool,
    /// The consumer that was identified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer: Option<Box<str>>,
    /// The route that matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_id: Option<Box<str>>,
    /// The status it was answered with; 499 where the client left before.
    pub status: u16,
}

impl RecentRequest {
    /// What is known before a plugin changes it.
    pub(crate) fn of(ex: &Exchange<'_>, weight: u32) -> RecentRequest {
        let request = &ex.request;
        let target = request.upstream_target();
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        let sni = ex.client.tls.as_ref().and_then(|tls| tls.sni.as_deref());
        let mut is_cut = false;
        let mut text = |bytes: &[u8]| cut(bytes, &mut is_cut);
        RecentRequest {
            at_unix_ms: ex.now.unix_ms,
            weight,
            method: text(request.method_name()),
            scheme: ex.client.scheme(),
            host: text(request.host()),
            path: text(path),
            client_ip: ex.remote_ip,
            sni: sni.map(|name| text(name.as_bytes())),
            consumer: None,
            route_id: None,
            status: 0,
            is_cut,
        }
    }

    /// What came of it.
    pub(crate) fn finish(&mut self, ex: &Exchange<'_>, status: u16) {
        let text = |text: &str| cut(text.as_bytes(), &mut false);
        self.consumer = ex.consumer.map(|consumer| text(&consumer.username));
        self.route_id = ex.route.map(|route| text(&route.id));
        self.status = status;
    }
}

fn cut(bytes: &[u8], is_cut: &mut bool) -> Box<str> {
    if bytes.len() <= TEXT_BYTES_MAX {
        return String::from_utf8_lossy(bytes).into();
    }
    *is_cut = true;
    let mut text = String::from_utf8_lossy(&bytes[..TEXT_BYTES_MAX - CUT.len()]).into_owned();
    text.push_str(CUT);
    text.into()
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_long_text_ends_with_a_mark() {
        for (length, expected) in [(0, 0), (256, 256), (257, 256), (100_000, 256)] {
            let mut is_cut = false;
            let text = cut(&vec![b'a'; length], &mut is_cut);
            assert_eq!((text.len(), is_cut, text.ends_with('…')), (expected, length > 256, length > 256));
        }
    }
}
