//! Sending a response, local or of an endpoint, from its head to its last byte.
//!
//! This file owns the head towards the client and the end of the exchange. It must not choose endpoints.

use bytes::Bytes;
use yumen_http::fields::write_line;
use yumen_http::{Fields, Framing, HttpVersion, KnownField, Method, ResponseHead, encode};
use yumen_plugin::{Exchange, LocalResponse, ResponseSource};

mod edited;
mod failed;
mod pump;
mod replaced;
mod translate;

use crate::copy::transfer::Transfer;
use crate::exchange::chains::{ExchangeChains, respond_head};
use crate::exchange::connection::{DownstreamConnection, is_discarded};
use crate::exchange::deadline;
use crate::exchange::disposition::After;
use crate::exchange::error_page;
use crate::exchange::exchange_stats::{ExchangeStats, RequestBodyState};
use crate::exchange::plugin_edit::PluginEdit;
use crate::exchange::proxied::ProxiedExchange;
use crate::exchange::tunnel::{self, TunnelEnd};
use crate::fault::{Fault, FaultKind};
use crate::grpc;
use crate::runtime::clock;
use crate::runtime::cold_future::box_cold;
use crate::transport::body::BodyEncoding;
use crate::transport::http2::heads;
use crate::transport::stream::HeadSent;
use crate::transport::tcp::TcpConnection;
use crate::upstream::attempt::{Attempt, ResponseStarted};
use edited::Edited;
use failed::{note_failed_attempts, note_upstream_status};
use pump::BodyCopy;

pub(crate) use replaced::pass_on_or_replace;
pub(crate) use translate::pass_on_translated;

/// Sends a local response.
pub(crate) async fn answer(
    conn: &mut DownstreamConnection,
    ex: &mut Exchange<'_>,
    chains: &ExchangeChains<'_>,
    response: LocalResponse,
    flow: &mut ExchangeStats,
) -> After {
    let worker = conn.worker.clone();
    let fault = flow.fault.map(|fault| fault.kind);
    let response = match ex.response.errors.take() {
        Some(rules) => box_cold(error_page::in_place_of(&worker, ex, rules, response, fault)).await,
        None => response,
    };
    let response = match response.status {
        400.. if grpc::is_call(ex) => grpc::refusal(response, fault),
        _ => response,
    };
    let mut head = worker.take_response();
    head.set_status(response.status);
    head.framing = Framing::Length(response.body.len() as u64);
    head.fields.extend(response.fields());
    // Browsers guess the type of a body without Content-Type, and the body may contain input of the client.
    if !response.body.is_empty() && head.fields.known(KnownField::ContentType).is_none() {
        head.fields.add("Content-Type", b"text/plain; charset=utf-8");
    }
    respond_head(ex, chains, &mut head);
    let edited = match ex.response.edits_body() {
        true => Some(box_cold(PluginEdit::new(ex, chains).whole(&response.body)).await),
        false => None,
    };
    let is_edited = edited.is_some();
    if !is_edited {
        ex.tap_response_data(&response.body);
    }
    let body = edited.map_or(response.body, Bytes::from);
    // Plugins may have changed the body, so only the length of the final body is valid.
    if is_edited || matches!(head.framing, Framing::Length(_)) {
        head.framing = Framing::Length(body.len() as u64);
        head.fields.remove("content-length");
    }
    let is_bodyless = ex.request.client_method() == Method::Head || has_no_body(head.status);
    let unread = if flow.body == RequestBodyState::Read { Framing::None } else { ex.request.framing };
    let ends = flow.ends_connection() || worker.admission.is_draining();
    // A client that waits for 100 (Continue) may send the body or omit it, so the start of its next request
    // is ambiguous (RFC 9110 §10.1.1).
    let keeps = ex.request.persistent() && !ends && !expects_more(conn, ex) && is_discarded(unread);
    let mut text = worker.buffers.take_text();
    write_head(&mut text, conn, ex, &mut head, keeps);
    keep_sent(conn, ex, chains, &text);
    let body = if is_bodyless { Bytes::new() } else { body };
    note_head(ex, &head, ResponseSource::Gateway, flow);
    flow.sent_head_bytes = text.len() as u64;
    worker.give_response(head);
    if let Err(kind) = send(conn, text, body, flow).await {
        // The first fault is the cause. A failure to send its response must not replace it in the log.
        flow.fault = flow.fault.or(Some(deadline::end(conn, ex, kind.into())));
        return After::Close;
    }
    if conn.stream.is_shared() {
        // On a shared connection, the end of the HTTP stream stops the rest of the request body.
        return if flow.is_last { After::Leave } else { After::Next };
    }
    match unread {
        Framing::None if keeps => After::Next,
        Framing::None => ends_with(conn, ex),
        // Releases the memory of this exchange before the rest of the request body is read.
        unread if keeps => After::Unread(unread),
        _ => After::Linger,
    }
}

/// Sends a local response and counts the bytes that the connection took.
async fn send(
    conn: &mut DownstreamConnection,
    mut text: Vec<u8>,
    body: Bytes,
    flow: &mut ExchangeStats,
) -> Result<(), FaultKind> {
    let sent = conn.stream.send_head(&text, body.is_empty()).map_err(|_| FaultKind::ClientGone)?;
    if sent == HeadSent::Separately {
        flow.sent_bytes = flow.sent_head_bytes;
        text.clear();
    }
    let (sent_bytes, result) = conn.write_text(text, body).await;
    flow.sent_bytes += sent_bytes;
    result
}

/// Returns how to close after a request that was read completely. A client that did not request the close may
/// have sent another request. Closing with unread bytes would reset the connection (RFC 9112 §9.6).
fn ends_with(conn: &DownstreamConnection, ex: &Exchange<'_>) -> After {
    let is_agreed = !ex.request.persistent();
    if is_agreed && conn.inbox.is_empty() { After::Close } else { After::Linger }
}

/// Whether the client still waits for 100 (Continue) before it sends a body (RFC 9110 §10.1.1).
fn expects_more(conn: &DownstreamConnection, ex: &Exchange<'_>) -> bool {
    ex.request.expects_continue() && conn.inbox.is_empty()
}

/// Sends the local response of a fault: a JSON body with its message.
///
/// Sends nothing to a client that has disconnected, nor to one that took only a part of an interim response,
/// since it would parse the response as the rest of that.
pub(crate) async fn send_fault(
    conn: &mut DownstreamConnection,
    ex: &mut Exchange<'_>,
    chains: &ExchangeChains<'_>,
    fault: Fault,
    flow: &mut ExchangeStats,
) -> After {
    // Evaluated first, since `deadline::end` may replace the kind of the fault.
    let cannot_respond = matches!(fault.kind, FaultKind::ClientGone | FaultKind::ClientStalled);
    let fault = deadline::end(conn, ex, fault);
    let (side, status, word, message) = fault.kind.facts();
    flow.fault = Some(fault);
    if cannot_respond {
        flow.status = status;
        return After::Close;
    }
    tracing::debug!(?side, word, status, "exchange failed");
    let mut response = LocalResponse::error_msg(status, message);
    if fault.kind.is_passing() {
        response = response.field("Retry-After", "1");
    }
    let response = note_failed_attempts(response, &flow.failed_statuses);
    let after = answer(conn, ex, chains, response, flow).await;
    if fault.kind.ends_connection() { After::Linger } else { after }
}

/// Forwards the response of an endpoint to the client, head and body.
pub(crate) async fn pass_on<'s>(
    proxied: &mut ProxiedExchange<'_, 's>,
    mut attempt: Attempt<'s, ResponseStarted>,
) -> After {
    // Read first: `begin` edits the head for the client.
    let persists = attempt.head().persistent();
    let read_timeout_ms = proxied.timeouts().read_ms;
    let Some(begun) = begin(proxied, &mut attempt) else {
        return lose_client(proxied, attempt);
    };
    let BegunResponse { mut download, outgoing, keeps, edits, drops_body } = begun;
    if attempt.is_upgrade() {
        return box_cold(run_tunnel(proxied, attempt, download, read_timeout_ms)).await;
    }
    let ProxiedExchange { conn, ex, chains, upload, flow, .. } = proxied;
    // A body that plugins edit is tapped behind them.
    if ex.has_taps() && !edits {
        download.tap = ex.new_response_tap();
    }
    let upload = &mut upload.transfer;
    let mut bodies = BodyCopy {
        conn,
        connection: attempt.connection(),
        upload,
        download: &mut download,
        keeps,
        read_timeout_ms,
    };
    let (result, grpc_status) = if edits {
        let edited = Edited { ex, chains, is_call: flow.grpc_status.is_some() };
        box_cold(edited.pass_on(bodies)).await
    } else {
        (bodies.run(&mut None).await, None)
    };
    flow.sent_bytes += download.sent_bytes();
    flow.received_bytes += upload.read_bytes();
    let now = clock::now();
    flow.note_upstream_end(now.mono_us);
    let mut finished = attempt.finish(now);
    let client = &conn.worker.upstream;
    // An idle connection holds no buffer.
    finished.connection.inbox.release(&client.buffers);
    // With an unsent rest of the request, or a response body that was dropped unread, the start of the next
    // message is unknown.
    let is_reusable = result.is_ok() && upload.is_done() && persists && !drops_body;
    let keepalive = &proxied.pinned.upstream.keepalive;
    if is_reusable && !download.is_read() {
        let client = client.clone();
        box_cold(finished.drain(&client, &mut download, *keepalive, keeps)).await;
    } else if is_reusable && finished.connection.is_reusable() {
        finished.keep(client, keepalive, now);
    } else {
        if let Err(kind) = result {
            finished.connection.note_fault(kind);
        }
        finished.close(client);
    }
    if flow.grpc_status == Some(grpc::NO_STATUS) {
        flow.grpc_status = grpc_status.or_else(|| end_call(conn, ex, &download, result));
    }
    keep_tap(ex, &mut download);
    give_back(conn, upload, &mut download);
    if let Err(kind) = result {
        // The client detects an incomplete body by its missing end. With close framing a regular close would
        // be that end, so the connection is reset (RFC 9112 §8).
        flow.fault = Some(deadline::end(conn, ex, kind.into()));
        return break_off(kind, outgoing);
    }
    go_on(conn, ex, upload, keeps)
}

/// Leaves the copied begin of the body for the log phase.
#[inline(always)]
fn keep_tap(ex: &mut Exchange<'_>, download: &mut Transfer) {
    if ex.has_taps() {
        ex.set_response_tap(download.tap.take());
    }
}

/// Returns how to close after an incomplete response. Earlier responses may still be in flight: closing with
/// unread requests would cause a reset that destroys them.
#[cold]
fn break_off(kind: FaultKind, outgoing: Framing) -> After {
    match kind {
        _ if outgoing == Framing::Close => After::Reset,
        FaultKind::ClientGone | FaultKind::ClientStalled => After::Close,
        _ => After::Linger,
    }
}

/// A response whose head was sent, or is queued ahead of its body.
struct BegunResponse {
    download: Transfer,
    /// The framing towards the client.
    outgoing: Framing,
    /// Whether the client connection stays open.
    keeps: bool,
    /// Whether plugins change the body.
    edits: bool,
    /// Whether the endpoint sends a body that the response to the client must not have.
    drops_body: bool,
}

/// Sends or queues the head of an endpoint's response; `None` if the client has disconnected.
#[inline(always)]
fn begin<'s>(
    proxied: &mut ProxiedExchange<'_, 's>,
    attempt: &mut Attempt<'s, ResponseStarted>,
) -> Option<BegunResponse> {
    let ProxiedExchange { conn, ex, chains, upload, flow, .. } = proxied;
    let upgrade = attempt.is_upgrade();
    let (connection, head) = attempt.parts();
    note_upstream_status(ex, head.status, &flow.failed_statuses);
    let mut received = connection.stream.incoming(head.framing);
    respond_head(ex, chains, head);
    if upgrade && head.status != 101 {
        keep_upgrade(ex, head);
    }
    note_head(ex, head, ResponseSource::Upstream, flow);
    let is_bodyless = ex.request.client_method() == Method::Head || has_no_body(head.status);
    let drops_body = is_bodyless && !upgrade && !matches!(received, Framing::None | Framing::Length(0));
    if drops_body {
        received = Framing::None;
    } else if head.framing == Framing::None && !is_bodyless {
        set_empty_framing(head);
    }
    let edits = ex.response.edits_body() && !is_bodyless && !upgrade;
    let outgoing = outgoing_framing(head, is_bodyless, ex.request.version);
    // The head announces whether the connection persists. While the upload is open, the endpoint may never
    // read its end.
    let keeps = ex.request.persistent()
        && !conn.worker.admission.is_draining()
        && outgoing != Framing::Close
        && upload.transfer.is_read();
    head.framing = outgoing;
    let mut text = conn.worker.buffers.take_text();
    write_head(&mut text, conn, ex, head, keeps);
    keep_sent(conn, ex, chains, &text);
    // On HTTP/2 and HTTP/3 an empty response ends the stream together with its head.
    let is_empty = is_bodyless || (matches!(received, Framing::None | Framing::Length(0)) && !edits);
    flow.sent_head_bytes = text.len() as u64;
    // A separate head on HTTP/2 and HTTP/3 does not go through the transfer.
    if conn.stream.send_head(&text, is_empty && !upgrade).ok()? == HeadSent::Separately {
        flow.sent_bytes = flow.sent_head_bytes;
        text.clear();
    }
    let ending = if upgrade { BodyEncoding::Known } else { conn.stream.ending(outgoing == Framing::Chunked) };
    let download = Transfer::new(received, ending, text, 0);
    Some(BegunResponse { download, outgoing, keeps, edits, drops_body })
}

/// Restores status 101: a plugin may have changed the status, but the endpoint has switched protocols.
#[cold]
fn keep_upgrade(ex: &mut Exchange<'_>, head: &mut ResponseHead) {
    head.set_status(101);
    ex.response.status = 101;
}

/// Sets length 0 on a response that came without a body, as to a HEAD, for a client that expects a body.
#[cold]
fn set_empty_framing(head: &mut ResponseHead) {
    head.body_changes(Some(0));
}

/// Copies bytes in both directions after a protocol switch.
async fn run_tunnel<'s>(
    proxied: &mut ProxiedExchange<'_, 's>,
    mut attempt: Attempt<'s, ResponseStarted>,
    opening: Transfer,
    idle_timeout_ms: u64,
) -> After {
    let bounds = tunnel_bounds(proxied, attempt.index(), idle_timeout_ms);
    let ProxiedExchange { conn, flow, .. } = proxied;
    // The deadline bounds the time to the response; a tunnel has no deadline.
    conn.timer.uncap();
    let ended = tunnel::run(conn, attempt.connection(), opening, bounds).await;
    let now = clock::now();
    flow.note_upstream_end(now.mono_us);
    let finished = attempt.finish(now);
    flow.received_bytes += ended.up_bytes;
    flow.sent_bytes += ended.down_bytes;
    let after = match ended.end {
        // A reset, caused by bytes that the client still sends, would destroy the last bytes sent to it.
        TunnelEnd::ClosedByGateway => After::Linger,
        TunnelEnd::Complete => After::Close,
        TunnelEnd::Truncated => {
            // A regular close would mark an incomplete transfer as complete.
            finished.connection.stream.tcp().into_iter().for_each(TcpConnection::reset_on_close);
            After::Reset
        }
    };
    finished.close(&conn.worker.upstream);
    after
}

/// Collects the conditions that end a tunnel besides a close by either side.
fn tunnel_bounds(
    proxied: &ProxiedExchange<'_, '_>,
    endpoint_index: usize,
    idle_timeout_ms: u64,
) -> tunnel::TunnelBounds {
    let ProxiedExchange { conn, ex, route, pinned, .. } = proxied;
    let upgrade = ex.request.fields.known(KnownField::Upgrade);
    let worker = &conn.worker;
    tunnel::TunnelBounds {
        idle_timeout_ms,
        binding: worker.ties.tie(&worker.timers, route, pinned.upstream, endpoint_index),
        is_websocket: upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket")),
    }
}

/// Returns how the connection continues after a complete response.
#[inline(always)]
fn go_on(conn: &DownstreamConnection, ex: &Exchange<'_>, upload: &Transfer, keeps: bool) -> After {
    match (keeps, upload.is_read()) {
        (true, _) => After::Next,
        (false, true) if upload.read_bytes() == 0 => ends_with(conn, ex),
        (false, _) => After::Linger,
    }
}

/// Ends an exchange whose client disconnected before the head was sent.
#[cold]
fn lose_client<'s>(proxied: &mut ProxiedExchange<'_, 's>, attempt: Attempt<'s, ResponseStarted>) -> After {
    let ProxiedExchange { conn, flow, .. } = proxied;
    flow.fault = Some(FaultKind::ClientGone.into());
    let now = clock::now();
    flow.note_upstream_end(now.mono_us);
    attempt.finish(now).close(&conn.worker.upstream);
    After::Close
}

#[inline(always)]
fn note_head(ex: &Exchange<'_>, head: &ResponseHead, source: ResponseSource, flow: &mut ExchangeStats) {
    flow.status = head.status;
    flow.grpc_status = grpc::status_of_answer(ex, &head.fields);
    flow.source = source;
}

#[inline(always)]
fn give_back(conn: &mut DownstreamConnection, upload: &mut Transfer, download: &mut Transfer) {
    // An endpoint that responded early did not take the rest of the frame.
    upload.discard_frame(&mut conn.inbox);
    let buffers = &conn.worker.buffers;
    download.recycle(buffers);
    upload.recycle(buffers);
    conn.inbox.release(buffers);
}

/// Returns the status of an ended call: of its trailers, or of the trailers that the gateway sends in their
/// place after a failure.
#[cold]
fn end_call(
    conn: &mut DownstreamConnection,
    ex: &Exchange<'_>,
    download: &Transfer,
    result: Result<(), FaultKind>,
) -> Option<u8> {
    let Err(kind) = result else {
        return grpc::status_of_lines(download.trailers()).or(Some(grpc::NO_STATUS));
    };
    if kind == FaultKind::ClientGone {
        return Some(grpc::NO_STATUS);
    }
    let trailers = grpc::abort_trailers(deadline::settle(conn, ex, kind.into()).kind);
    // If the trailers cannot be sent, the stream ends without them.
    let _ = conn.stream.finish(trailers.as_bytes());
    grpc::status_of_lines(trailers.as_bytes())
}

fn has_no_body(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

/// Selects the framing towards the client: the known length, else chunked, else close for HTTP/1.0 clients,
/// which must not receive Transfer-Encoding (RFC 9112 §6.1).
fn outgoing_framing(head: &ResponseHead, is_bodyless: bool, client: HttpVersion) -> Framing {
    match head.framing {
        _ if is_bodyless => Framing::None,
        Framing::Chunked | Framing::Close if client == HttpVersion::Http10 => Framing::Close,
        Framing::Chunked | Framing::Close => Framing::Chunked,
        other => other,
    }
}

/// Writes a response head with the framing of `head.framing`.
fn write_head(
    out: &mut Vec<u8>,
    conn: &DownstreamConnection,
    ex: &Exchange<'_>,
    head: &mut ResponseHead,
    keeps: bool,
) {
    let settings = &conn.worker.settings;
    let server = &settings.forwarding.server_line;
    encode::status_line(out, head.status, head.reason());
    // A value that the configuration sets wins.
    let writes_server = !server.is_empty() && head.fields.written(KnownField::Server).is_none();
    if writes_server {
        out.extend_from_slice(server);
    }
    let has_date = head.fields.known(KnownField::Date).is_some();
    // A recipient adds `Date` to a response that it forwards without one (RFC 9110 §6.6.1).
    if !has_date {
        conn.worker.date.write(out);
    }
    if let Some(line) = &conn.peer.alt_svc
        && head.fields.get("alt-svc").is_none()
    {
        out.extend_from_slice(line);
    }
    // RFC 9110 §8.6: no Content-Length in 1xx and 204, and only one that equals the length of the sent body.
    let drops_length =
        matches!(head.framing, Framing::Chunked | Framing::Close) || head.status < 200 || head.status == 204;
    let mut has_length = false;
    encode::response_fields(out, head, |field| match field.known() {
        KnownField::Server => !server.is_empty() && field.is_received(),
        KnownField::ContentLength => {
            // Plugins cannot set the length. Without a body, the field is the length that a GET would have
            // had.
            let matches_body =
                head.framing == Framing::None || head.framing.agrees_with(head.fields.value(field));
            let is_dropped = drops_length || !field.is_received() || !matches_body;
            has_length |= !is_dropped;
            is_dropped
        }
        _ => false,
    });
    match head.framing {
        Framing::Length(_) if has_length || head.status == 204 => {}
        framing => encode::framing(out, framing),
    }
    // Connection must list Upgrade, and HTTP/1.0 has no Upgrade (RFC 9110 §7.8).
    if matches!(head.status, 101 | 426) && ex.request.version != HttpVersion::Http10 {
        write_upgrade(out, ex, head, keeps);
    } else if !keeps {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if ex.request.version == HttpVersion::Http10 {
        // HTTP/1.0 connections persist only if both sides agree (RFC 9112 §9.3).
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Copies the sent fields for the access log and for plugins that read them later.
#[inline(always)]
fn keep_sent(conn: &DownstreamConnection, ex: &mut Exchange<'_>, chains: &ExchangeChains<'_>, text: &[u8]) {
    if conn.worker.recorders.logs_response || chains.read_sent_head() {
        show_sent(conn, ex, text);
    }
}

#[cold]
fn show_sent(conn: &DownstreamConnection, ex: &mut Exchange<'_>, text: &[u8]) {
    let is_shared = conn.stream.is_shared();
    let keeps = |known: KnownField| !is_shared || heads::is_expressed(known);
    ex.response.expose_fields(Fields::of_written_head(text, keeps));
}

/// Writes Upgrade and Connection: the new protocol of a 101, the required protocol of a 426 (RFC 9110 §7.8,
/// §15.5.22).
#[cold]
fn write_upgrade(out: &mut Vec<u8>, ex: &Exchange<'_>, head: &ResponseHead, keeps: bool) {
    let protocol = head.fields.known(KnownField::Upgrade);
    // A plugin may have removed the field, but the switch of protocols has happened.
    let requested = || ex.request.fields.known(KnownField::Upgrade).filter(|_| head.status == 101);
    let protocol = protocol.or_else(requested);
    let ends = !keeps && head.status != 101;
    out.extend_from_slice(match (protocol, ends) {
        (Some(_), true) => b"Connection: upgrade, close\r\n",
        (Some(_), false) => b"Connection: upgrade\r\n",
        (None, true) => b"Connection: close\r\n",
        (None, false) => b"",
    });
    if let Some(protocol) = protocol {
        write_line(out, b"Upgrade", protocol);
    }
}

#[cfg(test)]
mod tests;
