//! The body of a watch, cut into lines.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use kube_client::client::Body;

use crate::error::ApiError;

/// The most bytes of one line: an object has 1.5 MiB at most in etcd, and less than twice that as JSON of a watch.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 20;

/// Cuts chunks into lines.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer {
    pending: BytesMut,
    /// Bytes of `pending` without a line end.
    searched: usize,
}

impl LineBuffer {
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.pending.extend_from_slice(chunk);
    }

    /// The next whole line without its end. Empty lines are left out.
    pub(crate) fn pop_line(&mut self) -> Option<Bytes> {
        loop {
            let Some(found) = memchr::memchr(b'\n', &self.pending[self.searched..]) else {
                self.searched = self.pending.len();
                return None;
            };
            let mut line = self.pending.split_to(self.searched + found + 1);
            self.searched = 0;
            line.truncate(line.len() - 1);
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            if !line.is_empty() {
                return Some(line.freeze());
            }
        }
    }

    /// Bytes of a line whose end has not arrived.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }
}

/// The lines of an open watch. Dropping it closes the connection.
pub struct LineStream {
    body: Body,
    lines: LineBuffer,
    /// Verb and path, for errors.
    subject: String,
}

impl LineStream {
    pub(crate) fn new(body: Body, subject: String) -> LineStream {
        LineStream { body, lines: LineBuffer::default(), subject }
    }

    /// The next line, or `None` at the end that the server announced.
    ///
    /// # Errors
    ///
    /// [`ApiError::Unreachable`] if the connection failed or ended within a line, [`ApiError::Malformed`] for a line
    /// beyond 16 MiB.
    pub async fn next_line(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            if let Some(line) = self.lines.pop_line() {
                return Ok(Some(line));
            }
            if self.lines.pending_bytes() > LINE_BYTES_MAX {
                return Err(ApiError::Malformed(format!(
                    "{}: line beyond {LINE_BYTES_MAX} bytes",
                    self.subject
                )));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(chunk) = frame.data_ref() {
                        self.lines.push(chunk);
                    }
                }
                Some(Err(error)) => {
                    let cause = error_chain(&error);
                    return Err(ApiError::Unreachable(format!("{}: {cause}", self.subject)));
                }
                None if self.lines.pending_bytes() > 0 => {
                    return Err(ApiError::Unreachable(format!("{}: body ended within a line", self.subject)));
                }
                None => return Ok(None),
            }
        }
    }

    /// The same with a bound on the wait; `Err(None)` if nothing came within `silence`.
    ///
    /// # Errors
    ///
    /// Those of [`LineStream::next_line`].
    pub async fn next_line_within(&mut self, silence: Duration) -> Result<Option<Bytes>, Option<ApiError>> {
        match tokio::time::timeout(silence, self.next_line()).await {
            Ok(line) => line.map_err(Some),
            Err(_) => Err(None),
        }
    }
}

/// An error with its sources: the outer text of transport errors has no cause.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        // Some wrappers repeat the text of their source.
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::LineBuffer;

    fn check(chunks: &[&str], expected: &[&str], pending: usize) {
        let mut buffer = LineBuffer::default();
        let mut lines = Vec::new();
        for chunk in chunks {
            buffer.push(chunk.as_bytes());
            while let Some(line) = buffer.pop_line() {
                lines.push(String::from_utf8(line.to_vec()).unwrap());
            }
        }
        assert_eq!(
            (lines.iter().map(String::as_str).collect::<Vec<_>>(), buffer.pending_bytes()),
            (expected.to_vec(), pending)
        );
    }

    #[test]
    fn lines_do_not_depend_on_chunks() {
        check(&["a\nbc\r\n\nd\n"], &["a", "bc", "d"], 0);
        check(&["a", "\nb", "c\r", "\n", "\nd", "\n", "ef"], &["a", "bc", "d"], 2);
        check(&["", "\n", "\r\n"], &[], 0);
    }
}
