//! The part of serving that HTTP/2 and HTTP/3 streams share: body prefetch, deadline, exchange.

use std::future::poll_fn;
use std::task::Poll;

use yumen_http::{Framing, HeadError, RequestHead};

use crate::downstream::exchange_handle;
use crate::downstream::exchange_task::ExchangeJob;
use crate::exchange::connection::DownstreamConnection;
use crate::exchange::disposition::After;
use crate::fault::FaultKind;
use crate::grpc;
use crate::runtime::clock;

/// Serves a stream whose head was read or refused; returns the stream and how its connection continues.
pub(super) async fn serve(
    mut conn: Box<DownstreamConnection>,
    mut head: Box<RequestHead>,
    read: Result<(), HeadError>,
) -> (Box<DownstreamConnection>, After) {
    let job = match read {
        Ok(()) => {
            take_buffered_body(&mut conn, &mut head).await;
            set_deadline(&mut conn, &head);
            ExchangeJob::Serve(head)
        }
        Err(error) => ExchangeJob::Refuse(FaultKind::Head(error), Some(head)),
    };
    let (mut conn, after) = exchange_handle::serve(conn, job).await;
    conn.inbox.release(&conn.worker.buffers);
    (conn, after)
}

/// Sets the deadline of a gRPC call from its `grpc-timeout`.
fn set_deadline(conn: &mut DownstreamConnection, head: &RequestHead) {
    let Some(timeout_ms) = grpc::is_grpc(head).then(|| grpc::timeout_ms(head)).flatten() else { return };
    let deadline = conn.worker.timers.timer();
    deadline.set(timeout_ms);
    conn.stream.set_deadline(deadline);
    conn.timer.cap(clock::now().mono_ms() + timeout_ms);
}

/// Reads the part of the body that arrived with the head. A body that is complete gets a `Content-Length`.
async fn take_buffered_body(conn: &mut DownstreamConnection, head: &mut RequestHead) {
    if head.framing == Framing::None {
        return;
    }
    let DownstreamConnection { stream, inbox, worker, .. } = conn;
    // A single poll: the exchange must start without waiting for the rest of the body.
    let polled = poll_fn(|cx| Poll::Ready(stream.poll_fill(cx, inbox, &worker.buffers))).await;
    let is_whole = matches!(polled, Poll::Ready(Ok(_))) && stream.has_ended_plainly();
    // An empty body stays chunked: an empty DATA frame ends a gRPC call, and the endpoint must receive one as
    // well.
    if is_whole && head.framing == Framing::Chunked && !inbox.is_empty() {
        let length = inbox.len();
        head.framing = Framing::Length(length as u64);
        head.fields.set("Content-Length", length.to_string().as_bytes());
    }
}
