//! A scripted endpoint of HTTP/2: answers each stream from its id, and misbehaves as the seed says.

use std::rc::Rc;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Request, Response};

use super::endpoint::{BODY_BYTES_MAX, Manners};
use super::http2::{FRAMES_BUDGET, Io, read_body, send};
use super::ledger::{Answer, Ledger};
use super::net::End;
use super::wire::content;

/// Serves a connection to its end.
pub(crate) async fn serve(end: End, ledger: Rc<Ledger>, manners: Manners, counts: bool, name: String) {
    let scheduler = ledger.scheduler.clone();
    let random = &scheduler.random;
    let end = Rc::new(end);
    let mut builder = h2::server::Builder::new();
    // The library stalls where a window smaller than the usual one is told after data has come.
    builder.initial_window_size(65_535 + random.size(100_000) as u32).data_frame_budget(FRAMES_BUDGET);
    if manners.refuses > 0 {
        // Streams that come before this is known are refused.
        builder.max_concurrent_streams(random.one(&[1, 3, 100]));
    }
    let Ok(mut connection) = builder.handshake::<_, Bytes>(Io(end.clone())).await else { return };
    let mut count = 0;
    while let Some(accepted) = connection.accept().await {
        let Ok((request, respond)) = accepted else { return };
        count += 1;
        if random.percent(manners.refuses) {
            end.note(|| "endpoint refuses a stream".into());
            refuse(respond);
            continue;
        }
        if random.percent(manners.ends_early) && random.percent(30) {
            end.note(|| "endpoint falls".into());
            note(&ledger, &request);
            if random.percent(50) {
                end.reset();
            }
            return;
        }
        let served = Served { ledger: ledger.clone(), end: end.clone(), manners, counts };
        scheduler.spawn(format!("served {name} {count}"), served.run(request, respond));
        if random.percent(manners.closes_idle) {
            end.note(|| "endpoint says goodbye".into());
            connection.graceful_shutdown();
        }
    }
}

/// It was not looked at, and may be asked again.
fn refuse(mut respond: SendResponse<Bytes>) {
    respond.send_reset(Reason::REFUSED_STREAM);
}

/// Notes that a request came; gives its id, 0 for none.
fn note<T>(ledger: &Ledger, request: &Request<T>) -> u64 {
    let id: u64 = request.uri().path().strip_prefix("/r/").and_then(|id| id.parse().ok()).unwrap_or(0);
    let named = request.headers().get("x-id").and_then(|value| value.to_str().ok()?.parse().ok());
    if id == 0 || named != Some(id) {
        ledger.broken(format!("an endpoint got a head of no request: {:?}", request.headers()));
        return 0;
    }
    ledger.reached(id);
    id
}

struct Served {
    ledger: Rc<Ledger>,
    end: Rc<End>,
    manners: Manners,
    /// Whether clients report how many response bytes they have read.
    counts: bool,
}

/// More than may be under way of an answer.
const LONG_BYTES: usize = 3 * 1024 * 1024;

impl Served {
    async fn nap(&self, us_max: usize) {
        let us = self.ledger.scheduler.random.size(us_max) as u64;
        self.ledger.scheduler.sleep_us(us).await;
    }

    async fn run(self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let random = &self.ledger.scheduler.random;
        let id = note(&self.ledger, &request);
        let is_head = request.method() == http::Method::HEAD;
        let mut incoming = request.into_body();
        self.end.note(|| format!("endpoint got {id}"));
        if random.percent(self.manners.ends_early) {
            self.end.note(|| format!("endpoint resets {id}"));
            return respond.send_reset(random.one(&[Reason::INTERNAL_ERROR, Reason::CANCEL]));
        }
        if random.percent(self.manners.stalls) {
            self.end.note(|| format!("endpoint hangs on {id}"));
            // Until the gateway gives it up.
            let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
            return;
        }
        if random.percent(30) {
            self.nap(300_000).await;
        }
        if random.percent(10) {
            let early = Response::builder().status(103).header("link", "</a>").body(()).expect("a response");
            // The client may be gone.
            let _ = respond.send_informational(early);
        }
        if random.percent(self.manners.answers_early) {
            self.answer(id, is_head, &mut respond).await;
            return self.read(id, &mut incoming).await;
        }
        self.read(id, &mut incoming).await;
        self.answer(id, is_head, &mut respond).await;
    }

    async fn read(&self, id: u64, incoming: &mut RecvStream) {
        let random = &self.ledger.scheduler.random;
        let nap = async |_| {
            if random.percent(10) {
                self.nap(200_000).await;
            }
        };
        let (body, is_whole) = read_body(incoming, nap).await;
        self.ledger.got_body(id, &body, is_whole);
    }

    async fn answer(&self, id: u64, is_head: bool, respond: &mut SendResponse<Bytes>) {
        let random = &self.ledger.scheduler.random;
        let status = random.one(&[200, 200, 200, 200, 201, 204, 304, 404, 500]);
        let has_body = !matches!(status, 204 | 304);
        let most = if random.percent(5) { LONG_BYTES } else { BODY_BYTES_MAX };
        let body_bytes = if has_body { random.size(most) } else { 0 };
        let number = self.ledger.answer(id, Answer { status, body_bytes });
        let mut head = Response::builder().status(status).header("x-id", id).header("x-answer", number);
        if has_body && random.percent(50) {
            head = head.header("content-length", body_bytes);
        }
        let is_whole = is_head || !has_body;
        let head = head.body(()).expect("a response");
        let Ok(mut outgoing) = respond.send_response(head, is_whole) else { return };
        if is_whole {
            return;
        }
        let body = content(id, number, body_bytes);
        let sent = |bytes| {
            if self.counts {
                self.ledger.sent(id, bytes);
            }
        };
        if random.percent(self.manners.breaks_answer) {
            let cut = random.below(body.len() + 1);
            self.end.note(|| format!("endpoint breaks its answer to {id} after {cut}"));
            send(&mut outgoing, &body[..cut], false, random, sent).await;
            return outgoing.send_reset(Reason::INTERNAL_ERROR);
        }
        send(&mut outgoing, &body, true, random, sent).await;
    }
}
