//! Response bodies that plugins change, trailers included.

use std::future::poll_fn;
use std::task::Poll;

use yumen_plugin::{BodyChunk, Exchange};

use super::pump::BodyCopy;
use crate::copy::body_edit::BodyEdit;
use crate::copy::transfer::{BodySource, Edit};
use crate::exchange::chains::ExchangeChains;
use crate::exchange::deadline;
use crate::exchange::plugin_edit::PluginEdit;
use crate::fault::FaultKind;
use crate::grpc;

/// An exchange whose response body passes through body filters.
pub(super) struct Edited<'a, 's> {
    pub(super) ex: &'a mut Exchange<'s>,
    pub(super) chains: &'a ExchangeChains<'a>,
    /// Whether the request is a gRPC call.
    pub(super) is_call: bool,
}

impl Edited<'_, '_> {
    /// Copies both bodies. Also returns the grpc-status of the received trailers, which plugins may have
    /// removed.
    pub(super) async fn pass_on(self, mut bodies: BodyCopy<'_>) -> (Result<(), FaultKind>, Option<u8>) {
        let Edited { ex, chains, is_call } = self;
        bodies.download.expect_edit();
        let mut edit_body = PluginEdit::new(ex, chains);
        let mut edit: Option<Edit<'_>> = Some(&mut edit_body);
        let result = bodies.run(&mut edit).await;
        let mut grpc_status = edit_body.grpc_status;
        if let Err(kind) = result
            && is_call
            && grpc_status.is_none()
            && kind != FaultKind::ClientGone
        {
            // The client gets the status that is logged: an expired deadline is no failure of the endpoint.
            let settled = deadline::settle(bodies.conn, edit_body.exchange(), kind.into());
            let trailers = grpc::abort_trailers(settled.kind).into_bytes();
            let status = grpc::status_of_lines(&trailers);
            let end = BodyChunk { last: true, trailers, ..BodyChunk::default() };
            if let Poll::Ready(edited) = edit_body.edit(end) {
                grpc_status = end_with(bodies, edited).await.and(status);
            }
        }
        (result, grpc_status)
    }
}

/// Ends a failed response with the trailers that the body filters return; `None` if they cannot be sent.
async fn end_with(bodies: BodyCopy<'_>, edited: BodyChunk) -> Option<()> {
    let BodyCopy { conn, connection, download, .. } = bodies;
    // Bytes that wait for the client precede the trailers, and it may never take them.
    if download.waits_for_sink() {
        return None;
    }
    download.end_with(&mut connection.inbox, edited);
    conn.timer.set(conn.worker.settings.timeouts.send_ms);
    let (buffers, stream, timer) = (&conn.worker.buffers, &mut conn.stream, &conn.timer);
    poll_fn(|cx| {
        let source = BodySource { stream: &mut connection.stream, inbox: &mut connection.inbox };
        match download.poll(cx, buffers, source, stream, &mut None) {
            Poll::Pending if timer.is_over(cx) => Poll::Ready(None),
            polled => polled.map(Result::ok),
        }
    })
    .await
}
