//! A scripted client of HTTP/2: many streams on one connection, each judged against the ledger.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{Method, Request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::client::Habits;
use super::endpoint::BODY_BYTES_MAX;
use super::ledger::{Asked, Judged, Ledger};
use super::net::End;
use super::scheduler::{Gate, Random};
use super::wire::content;

/// Whoever opens smaller windows, byte by byte, is taken for one who floods.
const WINDOW_BYTES_MIN: u32 = 1000;

/// A script that reads slowly has nothing against small frames, of which much is made in crumbs.
pub(crate) const FRAMES_BUDGET: usize = 1 << 30;

/// An end of a connection as libraries want it; others may hold the end too.
pub(crate) struct Io(pub(crate) Rc<End>);

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let count = ready!(self.0.poll_read(cx, room.initialize_unfilled()))?;
        room.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, &[IoSlice::new(bytes)])
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.shutdown())
    }
}

/// Sends data in pieces as large as the peer has room for, and the end behind it if `ends`; tells how much went.
pub(crate) async fn send(
    stream: &mut SendStream<Bytes>,
    data: &[u8],
    ends: bool,
    random: &Random,
    sent: impl Fn(usize),
) {
    let mut rest = data;
    while !rest.is_empty() {
        let requested = rest.len().min(1 + random.size(40_000));
        stream.reserve_capacity(requested);
        while stream.capacity() == 0 {
            match poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
        let (piece, later) = rest.split_at(stream.capacity().min(requested));
        if stream.send_data(Bytes::copy_from_slice(piece), false).is_err() {
            return;
        }
        sent(piece.len());
        rest = later;
    }
    if ends {
        // A peer that is gone is noticed by whoever reads from it.
        let _ = stream.send_data(Bytes::new(), true);
    }
}

/// Reads a body; says whether it was whole. `nap` is what its reader does after so many bytes.
pub(crate) async fn read_body(incoming: &mut RecvStream, nap: impl AsyncFn(usize)) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(data) = incoming.data().await {
        let Ok(data) = data else { return (body, false) };
        body.extend_from_slice(&data);
        nap(data.len()).await;
        // It fails only for a stream that is over.
        let _ = incoming.flow_control().release_capacity(data.len());
    }
    let is_whole = incoming.trailers().await.is_ok();
    (body, is_whole)
}

/// What the streams of a connection share.
struct Shared {
    ledger: Rc<Ledger>,
    end: Rc<End>,
    habits: Habits,
    name: String,
    connection: u64,
    streams: usize,
    /// Streams that are over.
    over: Gate,
    over_count: Cell<usize>,
    vanished: Cell<bool>,
}

/// Asks over one connection; done when it is over.
pub(crate) async fn run(ledger: Rc<Ledger>, end: End, habits: Habits, name: String) {
    let scheduler = ledger.scheduler.clone();
    let random = &scheduler.random;
    let end = Rc::new(end);
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size(WINDOW_BYTES_MIN + random.size(100_000) as u32)
        .enable_push(false)
        .data_frame_budget(FRAMES_BUDGET);
    let Ok((sender, connection)) = builder.handshake::<_, Bytes>(Io(end.clone())).await else { return };
    let connection_over = Rc::new(Gate::default());
    let driven = connection_over.clone();
    scheduler.spawn(format!("{name} driver"), async move {
        // Each stream reports its own end.
        let _ = connection.await;
        driven.raise(1);
    });
    let shared = Rc::new(Shared {
        connection: ledger.connection(),
        ledger,
        end: end.clone(),
        habits,
        name,
        streams: 1 + random.below(9),
        over: Gate::default(),
        over_count: Cell::new(0),
        vanished: Cell::new(false),
    });
    for index in 0..shared.streams {
        let (shared, sender) = (shared.clone(), sender.clone());
        scheduler.spawn(format!("{} stream{index}", shared.name), async move {
            stream(&shared, sender, index).await;
            shared.over_count.set(shared.over_count.get() + 1);
            shared.over.raise(shared.over_count.get());
        });
    }
    if random.percent(habits.vanishes) {
        scheduler.sleep_us(random.size(3_000_000) as u64).await;
        shared.vanished.set(true);
        end.note(|| "client vanishes".into());
        if random.percent(50) { end.reset() } else { end.close() }
    }
    shared.over.reached(shared.streams).await;
    drop(sender);
    connection_over.reached(1).await;
    end.close();
}

/// One request and its answer.
async fn stream(shared: &Shared, sender: SendRequest<Bytes>, index: usize) {
    let scheduler = &shared.ledger.scheduler;
    let random = &scheduler.random;
    scheduler.sleep_us(random.size(2_000_000) as u64).await;
    let method = random.one(&["GET", "GET", "HEAD", "POST", "POST", "PUT"]);
    let has_body = matches!(method, "POST" | "PUT");
    let body_bytes = if has_body { random.size(BODY_BYTES_MAX) } else { 0 };
    let Ok(mut sender) = sender.ready().await else { return lost(shared, 0) };
    let id = shared.ledger.record(Asked { connection: shared.connection, index, method, body_bytes });
    let sends_length = random.percent(50);
    let request = head(id, method, has_body && sends_length, body_bytes);
    let Ok((answer, mut outgoing)) = sender.send_request(request, !has_body) else { return lost(shared, id) };
    let takes_back = random.percent(shared.habits.vanishes);
    let body = content(id, 0, body_bytes);
    let sending = async {
        if random.percent(shared.habits.dawdles) {
            scheduler.sleep_us(random.size(4_000_000) as u64).await;
        }
        if has_body {
            send(&mut outgoing, &body, true, random, |_| {}).await;
        }
        if takes_back {
            scheduler.sleep_us(random.size(1_000_000) as u64).await;
            shared.end.note(|| format!("client takes {id} back"));
            outgoing.send_reset(h2::Reason::CANCEL);
        }
    };
    let reading = async {
        let Ok(response) = answer.await else { return lost(shared, if takes_back { 0 } else { id }) };
        let (head, mut incoming) = response.into_parts();
        let nap = async |bytes| {
            shared.ledger.taken(id, bytes);
            if random.percent(shared.habits.slow_reads) {
                scheduler.sleep_us(random.size(500_000) as u64).await;
            }
        };
        let (body, is_whole) = read_body(&mut incoming, nap).await;
        scheduler.note(|| format!("{}: {} bytes of answer {} to {id}", shared.name, body.len(), head.status));
        let number = |name: &str| head.headers.get(name)?.to_str().ok()?.parse().ok();
        let received = Judged {
            id,
            method,
            status: head.status.as_u16(),
            named: number("x-id"),
            number: number("x-answer").unwrap_or(0),
            body: &body,
            is_whole,
        };
        shared.ledger.check(&shared.name, &received, shared.habits.calm);
        if !is_whole && !takes_back {
            lost(shared, id);
        }
    };
    both(sending, reading).await;
}

/// Runs two things at once.
async fn both(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut one_over, mut other_over) = (false, false);
    poll_fn(|cx| {
        one_over = one_over || one.as_mut().poll(cx).is_ready();
        other_over = other_over || other.as_mut().poll(cx).is_ready();
        if one_over && other_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// A stream ended without a whole answer; in a calm world none does.
fn lost(shared: &Shared, id: u64) {
    if shared.habits.calm && !shared.vanished.get() {
        shared.ledger.broken(format!("{}: request {id} got no whole answer", shared.name));
    }
}

fn head(id: u64, method: &str, sends_length: bool, body_bytes: usize) -> Request<()> {
    let method: Method = method.parse().expect("a method");
    let mut request = Request::builder().method(method).uri(format!("http://sim/r/{id}")).header("x-id", id);
    if sends_length {
        request = request.header("content-length", body_bytes);
    }
    request.body(()).expect("a request")
}
