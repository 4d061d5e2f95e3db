//! Request bodies: bounded, and JSON.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::Error;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};
use tokio::time::timeout;
use yumen_config::duplicate_keys::{self, DuplicateCheckedValue};

use crate::refusal::ApiRefusal;
use crate::whole_body::is_stalled;

const BODY_BYTES_MAX: usize = 1_572_864;
/// Maximum of a rejected body that is read and discarded, in bytes.
const DRAINED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum time for reading a rejected body.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// The body as JSON; `None` for an empty body.
pub(crate) async fn read(headers: &HeaderMap, mut body: Body) -> Result<Option<Value>, ApiRefusal> {
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    // Refused before a byte of the body is read into memory.
    if let Some(size) = declared.filter(|size: &usize| *size > BODY_BYTES_MAX) {
        // A client that waits for 100 (Continue) does not send the body.
        if !headers.contains_key(header::EXPECT) {
            drain(body).await;
        }
        return Err(too_large(&size.to_string()));
    }
    // The declared length has been checked, so the client cannot reserve more than the bound.
    let mut bytes = Vec::with_capacity(declared.unwrap_or(0));
    while let Some(chunk) = next(&mut body).await {
        bytes.extend_from_slice(&chunk.map_err(|error| cut_short(&error))?);
        if bytes.len() > BODY_BYTES_MAX {
            drain(body).await;
            return Err(too_large("of the chunks read"));
        }
    }
    if bytes.is_empty() {
        return Ok(None);
    }
    let read = duplicate_keys::from_json(&bytes).map_err(|error| error.to_string());
    read.and_then(DuplicateCheckedValue::into_distinct).map(Some).map_err(|error| {
        let message = format!("invalid request body: {error}");
        // APISIX returns the body with the error.
        let text = String::from_utf8_lossy(&bytes);
        ApiRefusal::of(StatusCode::BAD_REQUEST, json!({ "error_msg": message, "req_body": text }))
    })
}

fn cut_short(error: &Error) -> ApiRefusal {
    // RFC 9110 §15.5.9: the server did not receive a complete request in time.
    let status = if is_stalled(error) { StatusCode::REQUEST_TIMEOUT } else { StatusCode::BAD_REQUEST };
    ApiRefusal::new(status, format!("invalid request body: {error}"))
}

/// The next data of a body; empty for other frames.
async fn next(body: &mut Body) -> Option<Result<Bytes, Error>> {
    let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
    Some(frame.map(|frame| frame.into_data().unwrap_or_default()))
}

/// Reads and discards the rest of a body (lingering close). Most clients read the response only after sending everything;
/// a reset would destroy it. Bounded by [`DRAINED_BYTES_MAX`] and [`DRAIN_TIME`].
async fn drain(mut body: Body) {
    let reading = async {
        let mut drained = 0;
        while let Some(Ok(chunk)) = next(&mut body).await
            && drained < DRAINED_BYTES_MAX
        {
            drained += chunk.len();
        }
    };
    // The body is rejected either way.
    let _ = timeout(DRAIN_TIME, reading).await;
}

fn too_large(size: &str) -> ApiRefusal {
    ApiRefusal::invalid(format!(
        "invalid request body: request size {size} is greater than the maximum size {BODY_BYTES_MAX} allowed"
    ))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;

    const CHUNK: usize = 1024 * 1024;

    /// A body of `left` chunks, and the number of chunks read.
    struct CountedChunks {
        left: usize,
        taken: Arc<AtomicUsize>,
    }

    impl HttpBody for CountedChunks {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.left == 0 {
                return Poll::Ready(None);
            }
            self.left -= 1;
            self.taken.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b' '; CHUNK])))))
        }
    }

    #[tokio::test]
    async fn oversized_body_is_drained_up_to_a_bound() {
        for (headers, chunks, taken) in [
            (vec![], 4, 4..=4),
            (vec![("content-length", "4194304")], 4, 4..=4),
            (vec![("content-length", "4194304"), ("expect", "100-continue")], 4, 0..=0),
            (vec![("content-length", "104857600")], 100, 16..=20),
            (vec![], 100, 16..=20),
        ] {
            let counter = Arc::new(AtomicUsize::new(0));
            let body = Body::new(CountedChunks { left: chunks, taken: counter.clone() });
            let headers: HeaderMap =
                headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            assert!(read(&headers, body).await.is_err());
            let found = counter.load(Ordering::Relaxed);
            assert!(taken.contains(&found), "{headers:?}: {found} of {chunks}");
        }
    }
}
