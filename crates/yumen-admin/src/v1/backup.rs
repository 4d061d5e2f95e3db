//! The store as one file, streamed to clients with the role `admin`.

use std::fs::File;
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Extension, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use yumen_config::node::AdminRole;
use yumen_store::StoreError;

use super::V1State;
use super::arguments::{NoArguments, StrictQuery};
use super::history::run_blocking;
use crate::keys::KeyHolder;
use crate::refusal::ApiRefusal;

const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks that are read ahead of a slow client.
const CHUNKS_MAX: usize = 4;

/// `GET /yumen/v1/backup`, for the role `admin`: a database file, sealed as the store is.
pub(super) async fn backup(
    State(state): State<V1State>,
    _: StrictQuery<NoArguments>,
    holder: Option<Extension<KeyHolder>>,
) -> Result<Response, ApiRefusal> {
    if holder.is_some_and(|Extension(holder)| holder.role != AdminRole::Admin) {
        let message = "a backup contains all secrets: a key with the role admin is required";
        return Err(ApiRefusal::new(StatusCode::FORBIDDEN, message));
    }
    let live = state.live.clone();
    let (file, bytes) = run_blocking(move || {
        let file = live.backup()?;
        let bytes = file.metadata().map_err(StoreError::from)?.len();
        // The length is known before the first byte, so a broken backup is noticed by the client.
        Ok((file, bytes))
    })
    .await?;
    let (chunks, body) = channel(CHUNKS_MAX);
    // File reads block, and the bounded channel blocks while the client is slow.
    tokio::task::spawn_blocking(move || send(file, &chunks));
    let mut response = Response::new(Body::new(SizedStreamBody { chunks: body, left_bytes: bytes }));
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Reads a file to its end at the speed of the client; stops when the client has closed the connection.
fn send(mut file: File, chunks: &Sender<io::Result<Bytes>>) {
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        let read = file.read(&mut chunk).map(|count| {
            chunk.truncate(count);
            Bytes::from(chunk)
        });
        // A read error is passed on and ends the body.
        let is_last = read.as_ref().map_or(true, Bytes::is_empty);
        if read.as_ref().is_ok_and(Bytes::is_empty) || chunks.blocking_send(read).is_err() || is_last {
            return;
        }
    }
}

/// A body of known length that arrives in chunks.
struct SizedStreamBody {
    chunks: Receiver<io::Result<Bytes>>,
    left_bytes: u64,
}

impl HttpBody for SizedStreamBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.chunks.poll_recv(context).map(|chunk| {
            let chunk = chunk?;
            if let Ok(bytes) = &chunk {
                self.left_bytes = self.left_bytes.saturating_sub(bytes.len() as u64);
            }
            Some(chunk.map(Frame::data))
        })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}
