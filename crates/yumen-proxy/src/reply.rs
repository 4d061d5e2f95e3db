//! From an answer, the upstream's or our own, to the last byte the client gets of it.

use yumen_base::Now;
use yumen_http::fields::write_line;
use yumen_http::{Fields, Framing, Known, Method, ResponseHead, Version, encode};
use yumen_plugin::{Chunk, Exchange, Response, Source};
use yumen_snapshot::protection::Permit;
use yumen_snapshot::upstream::Keepalive;
use yumen_snapshot::{Route, Underway, Upstream};

mod edited;
mod failed;
mod pump;
mod surplus;
mod translate;

use crate::apart::apart;
use crate::body::Ending;
use crate::chains::{Chains, respond_head};
use crate::clock;
use crate::connection::{Connection, is_discarded};
use crate::deadline;
use crate::desk::After;
use crate::fault::{Fault, Kind};
use crate::flow::{Flow, RequestBody};
use crate::grpc;
use crate::http2::heads;
use crate::relay::Relay;
use crate::tcp::Tcp;
use crate::transfer::Transfer;
use crate::tunnel;
use crate::upstream::connection::UpstreamConnection;
use edited::Edited;
use failed::note_upstream_status;
use pump::download_body;

pub(crate) use translate::pass_on_translated;

/// Answers with a response made here.
pub(crate) async fn answer(
    conn: &mut Connection,
    ex: &mut Exchange<'_>,
    chains: &Chains<'_>,
    response: Response,
    flow: &mut Flow,
) -> After {
    let worker = conn.worker.clone();
    let response = match response.status {
        400.. if grpc::is_call(ex) => grpc::refusal(response, flow.fault.map(|fault| fault.kind)),
        _ => response,
    };
    let mut head = worker.take_response();
    head.set_status(response.status);
    head.framing = Framing::Length(response.body.len() as u64);
    head.fields.extend(response.fields());
    // What has no type is guessed at by browsers, and may hold what the client sent.
    if !response.body.is_empty() && head.fields.known(Known::ContentType).is_none() {
        head.fields.add("Content-Type", b"text/plain; charset=utf-8");
    }
    respond_head(ex, chains, &mut head);
    let whole = |body: &[u8]| Chunk { data: body.to_vec(), last: true, ..Chunk::default() };
    let edited = ex.edits_body.then(|| chains.edit(ex, whole(&response.body)).data);
    let body: &[u8] = edited.as_deref().unwrap_or(&response.body);
    if edited.is_some() || matches!(head.framing, Framing::Length(_)) {
        head.framing = Framing::Length(body.len() as u64);
        head.fields.remove("content-length");
    }
    let is_bodyless = ex.request.client_method() == Method::Head || has_no_body(head.status);
    let unread = if flow.body == RequestBody::Read { Framing::None } else { ex.request.framing };
    let ends = flow.ends_connection() || worker.draining.get();
    let keeps = ex.request.persistent() && !ends && !expects_more(conn, ex) && is_discarded(unread);
    let mut text = worker.buffers.take_text();
    write_head(&mut text, conn, ex, &mut head, keeps);
    keep_sent(conn, ex, chains, &text);
    let body = if is_bodyless { &[] } else { body };
    note_head(ex, &head, Source::Gateway, flow);
    flow.sent_head_bytes = text.len() as u64;
    worker.give_response(head);
    if let Err(kind) = send(conn, text, body, flow).await {
        flow.fault = flow.fault.or(Some(deadline::end(conn, kind.into())));
        return After::Close;
    }
    if conn.stream.is_shared() {
        // What the client still sends of the body is stopped with its stream.
        return if flow.is_last { After::Leave } else { After::Next };
    }
    match unread {
        Framing::None if keeps => After::Next,
        Framing::None => ends_with(conn, ex),
        // What this exchange holds is given back before more is waited for.
        unread if keeps => After::Unread(unread),
        _ => After::Linger,
    }
}

/// Sends an answer made here, and notes how much of it the client took.
async fn send(conn: &mut Connection, mut text: Vec<u8>, body: &[u8], flow: &mut Flow) -> Result<(), Kind> {
    conn.stream.send_head(&mut text, body.is_empty()).map_err(|_| Kind::ClientGone)?;
    // Where heads do not go among the bytes, it was sent already.
    flow.sent_bytes = flow.sent_head_bytes - text.len() as u64;
    text.extend_from_slice(body);
    let (sent_bytes, result) = conn.write_text(text).await;
    flow.sent_bytes += sent_bytes;
    result
}

/// How a connection ends whose last request was read. A client that did not agree on the end may have
/// sent another, and closing with that unread would reset the connection.
fn ends_with(conn: &Connection, ex: &Exchange<'_>) -> After {
    let is_agreed = !ex.request.persistent();
    if is_agreed && conn.inbox.is_empty() { After::Close } else { After::Linger }
}

/// Whether the client still waits for leave to send a body nobody wants now.
fn expects_more(conn: &Connection, ex: &Exchange<'_>) -> bool {
    ex.request.expects_continue() && conn.inbox.is_empty()
}

/// Answers for a fault: a JSON body that says what went wrong. To a client that is gone nothing is said, nor to one that
/// did not take all of an interim answer: it would be read as the rest of that.
pub(crate) async fn apologize(
    conn: &mut Connection,
    ex: &mut Exchange<'_>,
    chains: &Chains<'_>,
    fault: Fault,
    flow: &mut Flow,
) -> After {
    // Whatever it is called where the deadline has passed as well.
    let is_untellable = matches!(fault.kind, Kind::ClientGone | Kind::ClientStalled);
    let fault = deadline::end(conn, fault);
    let (side, status, word, message) = fault.kind.facts();
    flow.fault = Some(fault);
    if is_untellable {
        flow.status = status;
        return After::Close;
    }
    tracing::debug!(?side, word, status, "exchange failed");
    let mut response = Response::error_msg(status, message);
    if fault.kind.is_passing() {
        response = response.field("Retry-After", "1");
    }
    let after = answer(conn, ex, chains, response, flow).await;
    if fault.kind.ends_connection() { After::Linger } else { after }
}

/// Passes an endpoint's answer on to the client, body and all.
pub(crate) async fn pass_on(
    conn: &mut Connection,
    ex: &mut Exchange<'_>,
    chains: &Chains<'_>,
    relay: &mut Relay<'_>,
    route: &Route,
    upstream: &Upstream,
    flow: &mut Flow,
) -> After {
    let upgrade = relay.upgrade;
    let (head, upload) = (&mut *relay.head, &mut relay.upload);
    let Some(link) = &mut relay.link else { return After::Close };
    let link_persists = head.persistent();
    let Some(begun) = begin(conn, ex, chains, (link, head), (upload.is_read(), upgrade), flow) else {
        return lose_client(relay.underway.take(), flow);
    };
    let Begun { mut download, outgoing, keeps, edits, drops_body } = begun;
    let link_persists = link_persists && !drops_body;
    let read_timeout_ms = route.timeouts.as_deref().unwrap_or(&upstream.timeouts).read_ms;
    if upgrade {
        let underway = relay.underway.take();
        let bounds = tunnel_bounds(&conn.worker, ex, (route, upstream), underway.as_ref(), read_timeout_ms);
        return apart(run_tunnel(conn, link, download, bounds, underway, flow)).await;
    }
    let (result, told) = if edits {
        let edited = Edited { ex, chains, is_call: flow.grpc_status.is_some() };
        apart(edited.pass_on(conn, link, upload, &mut download, keeps, read_timeout_ms)).await
    } else {
        let no = &mut None;
        (download_body::<false>(conn, link, upload, &mut download, no, keeps, read_timeout_ms).await, None)
    };
    flow.sent_bytes += download.sent_bytes;
    flow.received_bytes += upload.read_bytes;
    let now = end_attempt(relay.underway.take(), flow);
    link.inbox.release(&conn.worker.buffers);
    let is_reusable = result.is_ok() && upload.is_done() && link_persists;
    if let Some(link) = relay.link.take_if(|link| is_reusable && download.is_read() && link.is_reusable()) {
        keep_link(&conn.worker, link, relay.permit.take(), &upstream.keepalive, now);
    } else if let Some(link) = relay.link.take_if(|_| is_reusable && !download.is_read()) {
        let is_bounded = relay.permit.is_some() || relay.turn.is_some();
        let client = surplus::Waits { keeps, is_bounded, permit: &mut relay.permit };
        apart(surplus::drop_rest(&conn.worker, link, &mut download, upstream.keepalive, client)).await;
    }
    if flow.grpc_status == Some(grpc::UNTOLD) {
        flow.grpc_status = told.or_else(|| end_call(conn, &download, result));
    }
    give_back(conn, upload, &mut download);
    if let Err(kind) = result {
        // The client learns of a broken body by the missing end. Where closing would be that end it
        // takes a reset (RFC 9112 §8).
        relay.note_fault(kind);
        flow.fault = Some(deadline::end(conn, kind.into()));
        return break_off(kind, outgoing);
    }
    go_on(conn, ex, upload, keeps)
}

/// How a connection ends whose answer is not whole. Answers before it may still be on their way, which closing with
/// requests unread would destroy.
#[cold]
fn break_off(kind: Kind, outgoing: Framing) -> After {
    match kind {
        _ if outgoing == Framing::Close => After::Reset,
        Kind::ClientGone | Kind::ClientStalled => After::Close,
        _ => After::Linger,
    }
}

/// An answer whose head is written, or stands before its body.
struct Begun {
    download: Transfer,
    /// How the client is told where the body ends.
    outgoing: Framing,
    /// Whether the client's connection lives on.
    keeps: bool,
    /// Whether plugins change the body.
    edits: bool,
    /// Whether the endpoint sends a body that the client's answer has no place for.
    drops_body: bool,
}

/// Writes the head of an endpoint's answer as the client gets it; `None` where the client is gone.
#[inline(always)]
fn begin(
    conn: &mut Connection,
    ex: &mut Exchange<'_>,
    chains: &Chains<'_>,
    (link, head): (&mut UpstreamConnection, &mut ResponseHead),
    (request_is_read, upgrade): (bool, bool),
    flow: &mut Flow,
) -> Option<Begun> {
    note_upstream_status(ex, head.status);
    let mut received = link.stream.incoming(head.framing);
    respond_head(ex, chains, head);
    if upgrade && head.status != 101 {
        keep_upgrade(ex, head);
    }
    note_head(ex, head, Source::Upstream, flow);
    let is_bodyless = ex.request.client_method() == Method::Head || has_no_body(head.status);
    let drops_body = is_bodyless && !upgrade && !matches!(received, Framing::None | Framing::Length(0));
    if drops_body {
        received = Framing::None;
    } else if head.framing == Framing::None && !is_bodyless {
        tell_no_body(head);
    }
    let edits = ex.edits_body && !is_bodyless && !upgrade;
    let outgoing = outgoing_framing(head, is_bodyless, ex.request.version);
    let keeps = ex.request.persistent()
        && !conn.worker.draining.get()
        && outgoing != Framing::Close
        && request_is_read;
    head.framing = outgoing;
    let mut text = conn.worker.buffers.take_text();
    write_head(&mut text, conn, ex, head, keeps);
    keep_sent(conn, ex, chains, &text);
    let is_empty = is_bodyless || (matches!(received, Framing::None | Framing::Length(0)) && !edits);
    let head_bytes = text.len() as u64;
    conn.stream.send_head(&mut text, is_empty && !upgrade).ok()?;
    // Where heads do not go among the bytes, it was sent already.
    flow.sent_bytes = head_bytes - text.len() as u64;
    flow.sent_head_bytes = head_bytes;
    let ending = if upgrade { Ending::Known } else { conn.stream.ending(outgoing == Framing::Chunked) };
    let download = Transfer::new(received, ending, text, 0);
    Some(Begun { download, outgoing, keeps, edits, drops_body })
}

/// The endpoint has changed protocols, whatever a plugin makes of its answer.
#[cold]
fn keep_upgrade(ex: &mut Exchange<'_>, head: &mut ResponseHead) {
    head.set_status(101);
    ex.status = 101;
}

/// Says of an answer that came without a body, as those to HEAD do, what one that may have a body must say.
#[cold]
fn tell_no_body(head: &mut ResponseHead) {
    head.body_changes(Some(0));
}

/// What the client and the endpoint say to each other after a change of protocols.
async fn run_tunnel(
    conn: &mut Connection,
    link: &mut UpstreamConnection,
    opening: Transfer,
    bounds: tunnel::Bounds,
    underway: Option<Underway<'_>>,
    flow: &mut Flow,
) -> After {
    // The request was answered; what follows has no end that anybody set.
    conn.timer.uncap();
    let ended = tunnel::run(conn, link, opening, bounds).await;
    end_attempt(underway, flow);
    flow.received_bytes += ended.up_bytes;
    flow.sent_bytes += ended.down_bytes;
    match ended {
        // What the client was told must not be destroyed by what it still sends.
        tunnel::Ended { was_told: true, .. } => After::Linger,
        tunnel::Ended { is_whole: true, .. } => After::Close,
        _ => {
            // What was cut off must not look finished.
            link.stream.tcp().into_iter().for_each(Tcp::reset_on_close);
            After::Reset
        }
    }
}

/// What ends a tunnel beside its two sides.
fn tunnel_bounds(
    worker: &crate::worker::Worker,
    ex: &Exchange<'_>,
    (route, upstream): (&Route, &Upstream),
    underway: Option<&Underway<'_>>,
    idle_timeout_ms: u64,
) -> tunnel::Bounds {
    let upgrade = ex.request.fields.known(Known::Upgrade);
    tunnel::Bounds {
        idle_timeout_ms,
        tie: underway.and_then(|one| worker.ties.tie(&worker.timers, route, upstream, one.index())),
        is_websocket: upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket")),
    }
}

/// What follows an answer that was passed on whole.
#[inline(always)]
fn go_on(conn: &Connection, ex: &Exchange<'_>, upload: &Transfer, keeps: bool) -> After {
    match (keeps, upload.is_read()) {
        (true, _) => After::Next,
        (false, true) if upload.read_bytes == 0 => ends_with(conn, ex),
        (false, _) => After::Linger,
    }
}

/// The client went away before it could be told anything.
#[cold]
fn lose_client(underway: Option<Underway<'_>>, flow: &mut Flow) -> After {
    flow.fault = Some(Kind::ClientGone.into());
    end_attempt(underway, flow);
    After::Close
}

#[inline(always)]
fn note_head(ex: &Exchange<'_>, head: &ResponseHead, source: Source, flow: &mut Flow) {
    flow.status = head.status;
    flow.grpc_status = grpc::status_of_answer(ex, &head.fields);
    flow.source = source;
}

#[inline(always)]
fn give_back(conn: &mut Connection, upload: &mut Transfer, download: &mut Transfer) {
    // An endpoint that answered early took no more of it.
    upload.discard_frame(&mut conn.inbox);
    let buffers = &conn.worker.buffers;
    download.recycle(buffers);
    upload.recycle(buffers);
    conn.inbox.release(buffers);
}

/// The status a call ended with: its trailers', or what is told in their place where it broke off.
#[cold]
fn end_call(conn: &mut Connection, download: &Transfer, result: Result<(), Kind>) -> Option<u8> {
    let Err(kind) = result else { return grpc::status_of_lines(download.trailers()).or(Some(grpc::UNTOLD)) };
    if kind == Kind::ClientGone {
        return Some(grpc::UNTOLD);
    }
    let trailers = grpc::broken_off(deadline::settle(conn, kind.into()).kind);
    // Where it cannot be told, the stream is given up.
    let _ = conn.stream.finish(trailers.as_bytes());
    grpc::status_of_lines(trailers.as_bytes())
}

/// Notes when an endpoint was done.
fn end_attempt(underway: Option<Underway<'_>>, flow: &mut Flow) -> Now {
    let now = clock::now();
    let now_us = now.mono_us;
    let spent_us = now_us.saturating_sub(flow.upstream_started_us.unwrap_or(now_us));
    flow.upstream_us = Some(spent_us);
    underway.into_iter().for_each(|underway| underway.end_now(now_us));
    now
}

#[inline(always)]
fn keep_link(
    worker: &crate::worker::Worker,
    link: UpstreamConnection,
    permit: Option<Permit>,
    keepalive: &Keepalive,
    now: Now,
) {
    if permit.as_ref().is_some_and(|permit| permit.is_wanted_elsewhere(worker.id)) {
        // Before its permit, which lets another be made.
        drop(link);
        return;
    }
    let UpstreamConnection { stream, requests, pool_key, .. } = link;
    let now_ms = now.mono_ms();
    worker.pool.borrow_mut().give(pool_key, (stream, permit), requests + 1, keepalive, now_ms);
}

fn has_no_body(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

/// How the client is told where the body ends: by its length, by chunks where it knows them, else by
/// closing.
fn outgoing_framing(head: &ResponseHead, is_bodyless: bool, client: Version) -> Framing {
    match head.framing {
        _ if is_bodyless => Framing::None,
        Framing::Chunked | Framing::Close if client == Version::Http10 => Framing::Close,
        Framing::Chunked | Framing::Close => Framing::Chunked,
        other => other,
    }
}

/// Writes a response head. `head.framing` says how the body leaves.
fn write_head(out: &mut Vec<u8>, conn: &Connection, ex: &Exchange<'_>, head: &mut ResponseHead, keeps: bool) {
    let settings = &conn.worker.settings;
    let server = &settings.server_line;
    encode::status_line(out, head.status, head.reason());
    if !server.is_empty() {
        out.extend_from_slice(server);
    }
    let has_date = head.fields.known(Known::Date).is_some();
    if !has_date {
        conn.worker.date.write(out);
    }
    if let Some(line) = &conn.peer.alt_svc
        && head.fields.get("alt-svc").is_none()
    {
        out.extend_from_slice(line);
    }
    // A length survives only if the body leaves with that length.
    let drops_length =
        matches!(head.framing, Framing::Chunked | Framing::Close) || head.status < 200 || head.status == 204;
    let mut has_length = false;
    encode::response_fields(out, head, |field| match field.known() {
        Known::Server => !server.is_empty(),
        Known::ContentLength => {
            // What plugins say of it is nothing but a wish. Without a body it is that of one there might have been.
            let is_told = head.framing == Framing::None || head.framing.is_told_by(head.fields.value(field));
            let is_dropped = drops_length || !field.is_received() || !is_told;
            has_length |= !is_dropped;
            is_dropped
        }
        _ => false,
    });
    match head.framing {
        Framing::Length(_) if has_length || head.status == 204 => {}
        framing => encode::framing(out, framing),
    }
    if matches!(head.status, 101 | 426) && ex.request.version != Version::Http10 {
        write_upgrade(out, ex, head, keeps);
    } else if !keeps {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if ex.request.version == Version::Http10 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Keeps the fields of a head that was written, where the log or a plugin that runs later looks into them.
#[inline(always)]
fn keep_sent(conn: &Connection, ex: &mut Exchange<'_>, chains: &Chains<'_>, text: &[u8]) {
    if conn.worker.logs_answer || chains.read_what_was_sent() {
        show_sent(conn, ex, text);
    }
}

#[cold]
fn show_sent(conn: &Connection, ex: &mut Exchange<'_>, text: &[u8]) {
    let is_shared = conn.stream.is_shared();
    let mut fields = Fields::default();
    for line in text.split(|byte| *byte == b'\n').skip(1) {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if is_shared && !heads::is_told(Known::of(name)) {
            continue;
        }
        // No other name is written.
        if let Ok(name) = std::str::from_utf8(name) {
            fields.add(name, value);
        }
    }
    ex.show_answer(fields);
}

/// The protocol changed to, or that one has to ask for (RFC 9110 §7.8, §15.5.22).
#[cold]
fn write_upgrade(out: &mut Vec<u8>, ex: &Exchange<'_>, head: &ResponseHead, keeps: bool) {
    let protocol = head.fields.known(Known::Upgrade);
    // A plugin may have taken the field away, but not the change.
    let asked = || ex.request.fields.known(Known::Upgrade).filter(|_| head.status == 101);
    let protocol = protocol.or_else(asked);
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
