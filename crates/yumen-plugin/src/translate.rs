//! Translation of whole responses from the protocol of the endpoint into that of the client.

use yumen_http::ResponseHead;

use crate::LocalResponse;

/// Translates a whole response before the response phases. Set in
/// [`ExchangeResponse::translator`](crate::ExchangeResponse) by the plugin that translated the request.
pub trait ResponseTranslator: Send {
    /// Maximum size of the body, in bytes; a longer one becomes 502.
    fn bytes_max(&self) -> usize;

    /// Returns the response for the client. Long bodies are translated in another thread.
    fn translate(&self, answer: BufferedResponse<'_>) -> LocalResponse;
}

/// A response of an endpoint, read to its end.
#[derive(Debug, Clone, Copy)]
pub struct BufferedResponse<'a> {
    /// The head.
    pub head: &'a ResponseHead,
    /// The body.
    pub body: &'a [u8],
    /// The trailers, one line `name: value` with CRLF each.
    pub trailers: &'a [u8],
}

impl<'a> BufferedResponse<'a> {
    /// Returns the value of a trailer, or of a field if the response has only a head.
    pub fn trailer(&self, name: &str) -> Option<&'a [u8]> {
        let lines = self.trailers.split(|byte| *byte == b'\n');
        let mut named = lines.filter_map(|line| {
            let (found, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
            found.eq_ignore_ascii_case(name.as_bytes()).then(|| value[1..].trim_ascii())
        });
        named.next().or_else(|| self.head.fields.get(name))
    }
}
