//! Recent requests: the parts of a request that select its route, without query, fields, body or secrets.

use std::net::IpAddr;

use serde::Serialize;
use yumen_plugin::Exchange;

/// Size limit of each text, in bytes.
const TEXT_BYTES_MAX: usize = 256;
/// Marks the end of a truncated text.
const CUT: &str = "…";

/// A request that was served recently. Texts longer than 256 bytes are truncated and end with `…`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecentRequest {
    /// Time of the complete request head, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// Number of requests that the sample represents.
    pub weight: u32,
    /// The request method.
    pub method: Box<str>,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The host of the request, in lower case, without port.
    pub host: Box<str>,
    /// The path as received, without the query.
    pub path: Box<str>,
    /// The client address.
    pub client_ip: IpAddr,
    /// The SNI of the TLS connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sni: Option<Box<str>>,
    /// Id of the listener, if it belongs to the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener: Option<Box<str>>,
    /// Whether a text was truncated; such a request cannot be replayed.
    pub is_cut: bool,
    /// The authenticated consumer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer: Option<Box<str>>,
    /// The route that matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_id: Option<Box<str>>,
    /// The status of the response; 499 if the client disconnected first.
    pub status: u16,
}

impl RecentRequest {
    /// Creates the entry from the request, before plugins change it.
    pub(crate) fn of(ex: &Exchange<'_>, listener: Option<&str>, weight: u32) -> RecentRequest {
        let request = &ex.request;
        let target = request.upstream_target();
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        let sni = ex.client.tls().and_then(|tls| tls.sni.as_deref());
        let mut is_cut = false;
        let mut text = |bytes: &[u8]| cut(bytes, &mut is_cut);
        RecentRequest {
            at_unix_ms: ex.now.unix_ms,
            weight,
            method: text(request.method_name()),
            scheme: ex.client.scheme(),
            host: text(request.host()),
            path: text(path),
            client_ip: ex.client.ip,
            sni: sni.map(|name| text(name.as_bytes())),
            listener: listener.map(Box::from),
            consumer: None,
            route_id: None,
            status: 0,
            is_cut,
        }
    }

    /// Adds the result of the exchange.
    pub(crate) fn finish(&mut self, ex: &Exchange<'_>, status: u16) {
        // A truncated result does not matter: only the request is replayed.
        let text = |text: &str| cut(text.as_bytes(), &mut false);
        self.consumer = ex.consumer.map(|consumer| text(&consumer.username));
        self.route_id = ex.route.info.map(|route| text(&route.id));
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
