//! Answers that speak another protocol than the client: collected whole, then turned into its own.

use yumen_http::ResponseHead;

use crate::LocalResponse;

/// Turns an endpoint's whole answer into the client's, before any response phase sees it. Left in
/// [`crate::Exchange::translate`] by the plugin that translated the request.
pub trait ResponseTranslator: Send {
    /// The longest body it takes; a longer one is answered 502.
    fn bytes_max(&self) -> usize;

    /// The answer for the client. Long bodies are translated beside the worker.
    fn translate(&self, answer: BufferedResponse<'_>) -> LocalResponse;
}

/// What an endpoint answered.
#[derive(Debug, Clone, Copy)]
pub struct BufferedResponse<'a> {
    /// Its head.
    pub head: &'a ResponseHead,
    /// Its body.
    pub body: &'a [u8],
    /// The trailers behind it, a line `name: value` with CRLF each.
    pub trailers: &'a [u8],
}

impl<'a> BufferedResponse<'a> {
    /// The value of a trailer, or of a field where the answer was nothing but a head.
    pub fn trailer(&self, name: &str) -> Option<&'a [u8]> {
        let lines = self.trailers.split(|byte| *byte == b'\n');
        let mut named = lines.filter_map(|line| {
            let (found, value) = line.split_at(line.iter().position(|byte| *byte == b':')?);
            found.eq_ignore_ascii_case(name.as_bytes()).then(|| value[1..].trim_ascii())
        });
        named.next().or_else(|| self.head.fields.get(name))
    }
}
