//! Answers of endpoints that speak another protocol than the client: read whole, translated, answered as ours.
//!
//! Knows no protocol; the plugin that translated the request left a translator.

use yumen_plugin::{Chunk, Exchange, Source, WholeAnswer};
use yumen_snapshot::{Route, Upstream};

use super::{answer, apologize, download_body, end_attempt, keep_link, note_upstream_status};
use crate::body::Ending;
use crate::chains::Chains;
use crate::connection::Connection;
use crate::desk::After;
use crate::fault::Kind;
use crate::flow::{Flow, RequestBody};
use crate::grpc;
use crate::relay::Relay;
use crate::transfer::{Edit, Transfer};

/// Reads the endpoint's answer and gives the client what the translator makes of it.
pub(crate) async fn pass_on_translated(
    conn: &mut Connection,
    ex: &mut Exchange<'_>,
    chains: &Chains<'_>,
    relay: &mut Relay<'_>,
    (route, upstream): (&Route, &Upstream),
    flow: &mut Flow,
) -> After {
    let Some(translate) = ex.translate.take() else { return After::Close };
    let read_timeout_ms = route.timeouts.as_deref().unwrap_or(&upstream.timeouts).read_ms;
    note_upstream_status(ex, relay.head.status);
    let collected = collect(conn, relay, translate.bytes_max(), read_timeout_ms).await;
    flow.received_bytes += relay.upload.read_bytes;
    // What is left of the request is nobody's: the translator read all of it.
    flow.body = if relay.upload.is_read() { RequestBody::Read } else { RequestBody::Torn };
    let now = end_attempt(relay.underway.take(), flow);
    if let Some(link) = &mut relay.link {
        link.inbox.release(&conn.worker.buffers);
    }
    let (body, trailers) = match collected {
        Ok(collected) => collected,
        Err(kind) => {
            relay.link = None;
            return apologize(conn, ex, chains, kind.into(), flow).await;
        }
    };
    let persists = relay.head.persistent() && relay.upload.is_done();
    if let Some(link) = relay.link.take_if(|link| persists && link.is_reusable()) {
        keep_link(&conn.worker, link, relay.permit.take(), &upstream.keepalive, now);
    }
    let whole = WholeAnswer { head: &relay.head, body: &body, trailers: &trailers };
    let response = translate.translate(whole);
    let status = grpc::status_of_lines(&trailers).or_else(|| grpc::status_of(&relay.head.fields));
    let after = answer(conn, ex, chains, response, flow).await;
    flow.source = Source::Upstream;
    flow.grpc_status = status;
    after
}

/// The whole body and its trailers.
async fn collect(
    conn: &mut Connection,
    relay: &mut Relay<'_>,
    bytes_max: usize,
    read_timeout_ms: u64,
) -> Result<(Vec<u8>, Vec<u8>), Kind> {
    let Some(link) = &mut relay.link else { return Err(Kind::UpstreamClosed) };
    let received = link.stream.incoming(relay.head.framing);
    let mut download = Transfer::new(received, Ending::Known, Vec::new(), bytes_max as u64);
    download.expect_edit();
    let (mut body, mut trailers) = (Vec::new(), Vec::new());
    let mut take = |chunk: Chunk| {
        body.extend_from_slice(&chunk.data);
        trailers.extend_from_slice(&chunk.trailers);
        Chunk::default()
    };
    let mut edit: Option<Edit<'_>> = Some(&mut take);
    let upload = &mut relay.upload;
    let read =
        download_body::<true>(conn, link, upload, &mut download, &mut edit, true, read_timeout_ms).await;
    if bytes_max != 0 && download.read_bytes > bytes_max as u64 {
        return Err(Kind::UpstreamTooLarge);
    }
    read.map(|()| (body, trailers))
}
