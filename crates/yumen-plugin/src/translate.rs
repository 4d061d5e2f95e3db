//! Translation of buffered responses from the protocol of the upstream to that of the client.

use yumen_http::ResponseHead;

use crate::LocalResponse;

/// Translates the complete response of an endpoint before the response phases. The plugin that translated the
/// request stores it in [`crate::Exchange::translate`].
pub trait ResponseTranslator: Send {
    /// Largest response body in bytes; a larger one is a 502.
    fn bytes_max(&self) -> usize;

    /// The response for the client. Large bodies are translated on an offload thread.
    fn translate(&self, answer: BufferedResponse<'_>) -> LocalResponse;
}

/// The complete response of an endpoint.
#[derive(Debug, Clone, Copy)]
pub struct BufferedResponse<'a> {
    /// The head.
    pub head: &'a ResponseHead,
    /// The body.
    pub body: &'a [u8],
    /// The trailers as lines `name: value` with CRLF.
    pub trailers: &'a [u8],
}

impl<'a> BufferedResponse<'a> {
    /// The value of a trailer, or of a field in a response without a body.
    pub fn trailer(&self, name: &str) -> Option<&'a [u8]> {
        let lines = self.trailers.split(|byte| *byte == b'\n');
        let mut named = lines.filter_map(|line| {
            let (found, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
            found.eq_ignore_ascii_case(name.as_bytes()).then(|| value[1..].trim_ascii())
        });
        // A gRPC response without messages carries its trailers in the head (Trailers-Only).
        named.next().or_else(|| self.head.fields.get(name))
    }
}
