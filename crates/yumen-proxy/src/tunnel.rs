//! After a change of protocol: bytes both ways until both sides have ended, or what the tunnel is tied to
//! changes.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use yumen_http::Framing;
use yumen_http::websocket::{WebSocketFrameTracker, close_frame};

use crate::body::BodyEncoding;
use crate::buffer::Inbox;
use crate::connection::DownstreamConnection;
use crate::one_way_copy::{BidirectionalCopy, OneWayCopy, WatchedFrames};
use crate::stream::TransportStream;
use crate::task;
use crate::tcp::TcpConnection;
use crate::timers::Timer;
use crate::transfer::Transfer;
use crate::tunnel_binding::TunnelBinding;
use crate::upstream::connection::UpstreamConnection;
use crate::worker::Worker;

/// A WebSocket that has to end gets so long for the frames under way, in milliseconds.
const LEAVE_MS: u64 = 1000;

/// The endpoint goes away (RFC 6455 §7.4.1).
const GOING_AWAY: u16 = 1001;

/// How a tunnel ended.
#[derive(Default)]
pub(crate) struct TunnelOutcome {
    /// Bytes from the client.
    pub(crate) up_bytes: u64,
    /// Bytes to the client.
    pub(crate) down_bytes: u64,
    /// Whether it was ended here, the client being told.
    pub(crate) was_closed_by_us: bool,
    /// Whether both sides had ended what they said.
    pub(crate) is_whole: bool,
}

/// What ends a tunnel beside its two sides.
pub(crate) struct TunnelBounds {
    /// How long nothing may move.
    pub(crate) idle_timeout_ms: u64,
    pub(crate) tie: Option<Rc<TunnelBinding>>,
    /// Whether what passes are frames of a WebSocket.
    pub(crate) is_websocket: bool,
}

/// Runs until both sides have ended, either fails, or its bounds end it. `opening` holds the head that tells
/// the client of the change.
///
/// The bytes are moved by a task of their own: a message that passes wakes that alone, not all that led to the tunnel.
pub(crate) async fn run(
    conn: &mut DownstreamConnection,
    connection: &mut UpstreamConnection,
    opening: Transfer,
    bounds: TunnelBounds,
) -> TunnelOutcome {
    conn.timer.set(0);
    let mut tunnel = Tunnel {
        client: conn.stream.take(),
        endpoint: connection.stream.take(),
        worker: conn.worker.clone(),
        timer: conn.worker.timers.timer(),
        opening,
        is_open: false,
        pair: BidirectionalCopy::new(
            std::mem::take(&mut conn.inbox),
            std::mem::take(&mut connection.inbox),
            bounds.idle_timeout_ms,
        ),
        tied: bounds.tie.map(|tie| BoundTunnel::new(tie, bounds.is_websocket)),
    };
    tunnel.consume_buffered_frames();
    let (give_back, given_back) = oneshot::channel();
    task::spawn(async move {
        poll_fn(|cx| tunnel.poll(cx)).await;
        tunnel.pair.settle(&tunnel.worker, &mut tunnel.client, &mut tunnel.endpoint).await;
        // Where nobody takes it back any more it ends with its streams.
        let _ = give_back.send(tunnel);
    });
    let Ok(mut tunnel) = given_back.await else { return TunnelOutcome::default() };
    conn.stream = tunnel.client.take();
    connection.stream = tunnel.endpoint.take();
    TunnelOutcome {
        up_bytes: tunnel.pair.up.bytes(),
        down_bytes: tunnel.pair.down.bytes() + tunnel.opening.sent_bytes,
        is_whole: tunnel.pair.is_whole(),
        was_closed_by_us: tunnel.tied.as_ref().is_some_and(|tied| tied.leaving.is_some()),
    }
}

/// What a tunnel keeps in mind that may have to end between two frames.
struct BoundTunnel {
    tie: Rc<TunnelBinding>,
    is_websocket: bool,
    up: WebSocketFrameTracker,
    down: WebSocketFrameTracker,
    /// The last words to the endpoint and to the client, once they are due.
    leaving: Option<[Transfer; 2]>,
}

impl BoundTunnel {
    fn new(tie: Rc<TunnelBinding>, is_websocket: bool) -> BoundTunnel {
        BoundTunnel {
            tie,
            is_websocket,
            up: WebSocketFrameTracker::default(),
            down: WebSocketFrameTracker::default(),
            leaving: None,
        }
    }

    /// Begins to leave.
    fn leave(&mut self, worker: &Worker) {
        let last = |words| Transfer::new(Framing::None, BodyEncoding::Known, words, 0);
        let lot = worker.random().to_le_bytes();
        let mask = [lot[0], lot[1], lot[2], lot[3]];
        self.leaving = Some([last(close_frame(GOING_AWAY, Some(mask))), last(close_frame(GOING_AWAY, None))]);
        self.tie.give(LEAVE_MS);
    }
}

/// The frames of both directions, where they must be known.
fn watched(tied: &mut Option<BoundTunnel>) -> Option<(WatchedFrames<'_>, WatchedFrames<'_>)> {
    let tied = tied.as_mut().filter(|tied| tied.is_websocket)?;
    let is_leaving = tied.leaving.is_some();
    Some((
        WatchedFrames { frames: &mut tied.up, is_leaving },
        WatchedFrames { frames: &mut tied.down, is_leaving },
    ))
}

/// Says the last words once the frame before them has gone; whether they are said.
fn is_said(
    cx: &mut Context<'_>,
    (frames, before): (&WebSocketFrameTracker, &OneWayCopy),
    words: &mut Transfer,
    sink: &mut TransportStream,
) -> bool {
    if !frames.is_between() || before.waits_for_sink() {
        return false;
    }
    match words.poll_flush(cx, &mut Inbox::default(), sink) {
        Poll::Ready(Ok(())) => sink.poll_flush(cx).is_ready(),
        // Nobody is there to hear them.
        Poll::Ready(Err(_)) => true,
        Poll::Pending => false,
    }
}

struct Tunnel {
    client: TransportStream,
    endpoint: TransportStream,
    worker: Rc<Worker>,
    /// When it has been silent for too long.
    timer: Timer,
    opening: Transfer,
    /// Whether the client was told of the change.
    is_open: bool,
    pair: BidirectionalCopy,
    tied: Option<BoundTunnel>,
}

impl Drop for Tunnel {
    /// What a panic of its task cuts off is counted, and does not look finished.
    fn drop(&mut self) {
        if self.worker.counters.note_panic() {
            let sides = [self.client.tcp(), self.endpoint.tcp()];
            sides.into_iter().flatten().for_each(TcpConnection::reset_on_close);
        }
    }
}

impl Tunnel {
    /// Follows the frames in what came right behind the heads.
    fn consume_buffered_frames(&mut self) {
        if let Some((mut up, mut down)) = watched(&mut self.tied) {
            self.pair.up.consume_buffered_frames(&mut up);
            self.pair.down.consume_buffered_frames(&mut down);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_open {
            match self.opening.poll_flush(cx, &mut Inbox::default(), &mut self.client) {
                Poll::Ready(Ok(())) => self.is_open = true,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return self.wait(cx),
            }
        }
        if self.poll_bytes(cx).is_ready() || self.poll_leave(cx).is_ready() {
            return Poll::Ready(());
        }
        self.wait(cx)
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sides = (&mut self.client, &mut self.endpoint);
        self.pair.poll(cx, &self.worker, sides, watched(&mut self.tied))
    }

    /// Ends the tunnel when what it is tied to has changed: a WebSocket with a closing frame to both sides.
    fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(tied) = &mut self.tied else { return Poll::Pending };
        if tied.tie.is_over(cx) {
            if tied.leaving.is_some() || !tied.is_websocket {
                return Poll::Ready(());
            }
            tied.leave(&self.worker);
            // Registers for the time this may take.
            if tied.tie.is_over(cx) {
                return Poll::Ready(());
            }
        }
        let Some([to_endpoint, to_client]) = &mut tied.leaving else { return Poll::Pending };
        let (up, down) = (&self.pair.up, &self.pair.down);
        let is_up_done = up.is_shut() || is_said(cx, (&tied.up, up), to_endpoint, &mut self.endpoint);
        let is_down_done = down.is_shut() || is_said(cx, (&tied.down, down), to_client, &mut self.client);
        if !(is_up_done && is_down_done) {
            return Poll::Pending;
        }
        // Where it is a stream of a connection it ends in order; a reset might take back what was said.
        let _ = self.client.finish(&[]);
        Poll::Ready(())
    }

    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.client.client_gone(cx).is_some() {
            return Poll::Ready(());
        }
        self.pair.poll_silence(cx, &self.worker, &self.timer)
    }
}

#[cfg(test)]
mod tests;
