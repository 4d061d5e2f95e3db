//! The request target after the exchange, as logs show it.

use crate::fields::ByteSpan;
use crate::head::{RequestHead, with_query};

impl RequestHead {
    /// Replaces the query in all forms of the target, after the exchange: for logs only.
    pub fn replace_logged_query(&mut self, query: &[u8]) {
        let origin_form = self.real_request_uri();
        let path_end = memchr::memchr(b'?', origin_form).unwrap_or(origin_form.len());
        let path = origin_form[..path_end].to_vec();
        // Text ahead of the path: scheme and authority of the absolute form (RFC 9112 §3.2.2).
        let ahead = self.target().len().saturating_sub(origin_form.len());
        let ahead = self.target()[..ahead].to_vec();
        let start = self.fields.block.len();
        self.fields.block.extend_from_slice(&ahead);
        let origin_start = self.fields.block.len();
        self.fields.block.extend_from_slice(&with_query(path, Some(query).filter(|query| !query.is_empty())));
        let end = self.fields.block.len();
        self.target.received = ByteSpan::new(start, end);
        self.target.origin_form = ByteSpan::new(origin_start, end);
        self.target.query = (!query.is_empty()).then(|| ByteSpan::new(end - query.len(), end));
    }
}
