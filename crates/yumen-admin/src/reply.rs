//! JSON responses. They end with a line feed, as tools of this API expect.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec::IntoIter;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use serde_json::Value;

/// A response with a JSON value.
pub(crate) fn json(status: StatusCode, body: &Value) -> Response {
    text(status, format!("{body}\n"))
}

/// A response with a JSON text.
pub(crate) fn text(status: StatusCode, text: String) -> Response {
    let content_type = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (status, [content_type], text).into_response()
}

/// A response with a JSON text in several pieces.
pub(crate) fn pieces(status: StatusCode, pieces: Vec<Bytes>) -> Response {
    let left_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
    let content_type = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let body = Body::new(ChunkedReply { pieces: pieces.into_iter(), left_bytes });
    (status, [content_type], body).into_response()
}

struct ChunkedReply {
    pieces: IntoIter<Bytes>,
    left_bytes: u64,
}

impl HttpBody for ChunkedReply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.next();
        self.left_bytes -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}
