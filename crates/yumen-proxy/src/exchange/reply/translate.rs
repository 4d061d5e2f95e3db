//! Responses of endpoints with another protocol than the client's: read completely, translated, sent as local
//! responses.
//!
//! This file must not know the protocol: the plugin that translated the request has left a translator.

use yumen_plugin::{BodyChunk, BufferedResponse, Computation, LocalResponse, ResponseSource, compute};

use super::pump::BodyCopy;
use super::{answer, note_upstream_status, send_fault};
use crate::copy::transfer::{Edit, Transfer};
use crate::exchange::disposition::After;
use crate::exchange::exchange_stats::RequestBodyState;
use crate::exchange::proxied::ProxiedExchange;
use crate::fault::FaultKind;
use crate::grpc;
use crate::runtime::clock;
use crate::transport::body::BodyEncoding;
use crate::upstream::attempt::{Attempt, ResponseStarted};

/// The body of a response, and its trailer lines.
struct CollectedBody {
    data: Vec<u8>,
    trailers: Vec<u8>,
}

/// Reads the response of the endpoint and sends its translation to the client.
pub(crate) async fn pass_on_translated<'s>(
    proxied: &mut ProxiedExchange<'_, 's>,
    mut attempt: Attempt<'s, ResponseStarted>,
) -> After {
    let Some(translate) = proxied.ex.response.translator.take() else { return After::Close };
    note_upstream_status(proxied.ex, attempt.head().status, &proxied.flow.failed_statuses);
    let collected = collect(proxied, &mut attempt, translate.bytes_max()).await;
    let keepalive = &proxied.pinned.upstream.keepalive;
    let ProxiedExchange { conn, ex, chains, upload, flow, .. } = proxied;
    let upload = &upload.transfer;
    flow.received_bytes += upload.read_bytes();
    // The translator has read the request body up to the end that it needs.
    flow.body = if upload.is_read() { RequestBodyState::Read } else { RequestBodyState::Partial };
    let now = clock::now();
    flow.note_upstream_end(now.mono_us);
    let mut finished = attempt.finish(now);
    let client = &conn.worker.upstream;
    finished.connection.inbox.release(&client.buffers);
    let CollectedBody { data, trailers } = match collected {
        Ok(collected) => collected,
        Err(kind) => {
            finished.close(client);
            return send_fault(conn, ex, chains, kind.into(), flow).await;
        }
    };
    let status = grpc::status_of_lines(&trailers).or_else(|| grpc::status_of(&finished.head.fields));
    let persists = finished.head.persistent() && upload.is_done();
    let head = std::mem::take(&mut finished.head);
    // Returned before the translation, so that other requests can use the connection meanwhile.
    if persists && finished.connection.is_reusable() {
        finished.keep(client, keepalive, now);
    } else {
        finished.close(client);
    }
    // Translation runs on an offload thread if the body is large, so that the worker serves other
    // connections.
    let bytes = data.len();
    let work =
        move || translate.translate(BufferedResponse { head: &head, body: &data, trailers: &trailers });
    let translated = match compute(&*conn.worker, bytes, work) {
        Computation::Ready(translated) => translated,
        Computation::Pending(translating) => translating.await,
    };
    let response = translated.unwrap_or_else(|refused| LocalResponse::error_msg(503, &refused.to_string()));
    let after = answer(conn, ex, chains, response, flow).await;
    // `answer` has recorded the gateway as the source.
    flow.source = ResponseSource::Upstream;
    flow.grpc_status = status;
    after
}

/// Reads the complete body and its trailers.
///
/// # Errors
///
/// [`FaultKind::UpstreamTooLarge`] if the body exceeds `bytes_max`; 0 is no limit.
async fn collect<'s>(
    proxied: &mut ProxiedExchange<'_, 's>,
    attempt: &mut Attempt<'s, ResponseStarted>,
    bytes_max: usize,
) -> Result<CollectedBody, FaultKind> {
    let read_timeout_ms = proxied.timeouts().read_ms;
    let framing = attempt.head().framing;
    let connection = attempt.connection();
    let received = connection.stream.incoming(framing);
    let mut download = Transfer::new(received, BodyEncoding::Known, Vec::new(), bytes_max as u64);
    download.expect_edit();
    let mut collected = CollectedBody { data: Vec::new(), trailers: Vec::new() };
    // Nothing is forwarded: the translation replaces the body.
    let mut take = |chunk: BodyChunk| {
        collected.data.extend_from_slice(&chunk.data);
        collected.trailers.extend_from_slice(&chunk.trailers);
        BodyChunk::default()
    };
    let mut edit: Option<Edit<'_>> = Some(&mut take);
    let mut bodies = BodyCopy {
        conn: proxied.conn,
        connection,
        upload: &mut proxied.upload.transfer,
        download: &mut download,
        keeps: true,
        read_timeout_ms,
    };
    let read = bodies.run(&mut edit).await;
    // Checked first, since `read` reports a body over the limit as a closed connection.
    if bytes_max != 0 && download.read_bytes() > bytes_max as u64 {
        return Err(FaultKind::UpstreamTooLarge);
    }
    read.map(|()| collected)
}
