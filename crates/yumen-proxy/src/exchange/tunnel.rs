//! Tunnels: bytes in both directions after an upgrade or CONNECT, until both sides have ended or a binding
//! ends it.
//!
//! Owns both streams meanwhile. Independent of routes or plugins.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use yumen_http::Framing;
use yumen_http::websocket::{WebSocketFrameTracker, close_frame};

use crate::copy::one_way_copy::{BidirectionalCopy, OneWayCopy, WatchedFrames};
use crate::copy::transfer::Transfer;
use crate::copy::tunnel_binding::TunnelBinding;
use crate::exchange::connection::DownstreamConnection;
use crate::runtime::buffer::Inbox;
use crate::runtime::task;
use crate::runtime::timers::Timer;
use crate::transport::body::BodyEncoding;
use crate::transport::stream::TransportStream;
use crate::transport::tcp::TcpConnection;
use crate::upstream::connection::UpstreamConnection;
use crate::worker::Worker;

/// Time for frames in flight before a WebSocket is closed, in milliseconds.
const LEAVE_MS: u64 = 1000;

/// Status code 1001, going away (RFC 6455 §7.4.1).
const GOING_AWAY: u16 = 1001;

/// The summary of an ended tunnel.
#[derive(Default)]
pub(crate) struct TunnelOutcome {
    /// Bytes from the client.
    pub(crate) up_bytes: u64,
    /// Bytes to the client.
    pub(crate) down_bytes: u64,
    /// Whether the gateway ended the tunnel with a WebSocket Close frame.
    pub(crate) was_closed_by_us: bool,
    /// Whether both sides have ended their direction.
    pub(crate) is_whole: bool,
}

/// The bounds that end a tunnel while both sides are open.
pub(crate) struct TunnelBounds {
    /// The idle timeout, in milliseconds.
    pub(crate) idle_timeout_ms: u64,
    pub(crate) tie: Option<Rc<TunnelBinding>>,
    /// Whether the tunnel carries WebSocket frames.
    pub(crate) is_websocket: bool,
}

/// Runs until both sides have ended, either fails, or a bound ends the tunnel. `opening` holds the response
/// head of the upgrade.
///
/// A task of its own moves the bytes, so a message wakes only that task and not the exchange around it.
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
        tunnel.pair.settle(tunnel.worker.copy_context(), &mut tunnel.client, &mut tunnel.endpoint).await;
        // If the receiver was dropped, the tunnel ends and closes its streams.
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

/// State of a tunnel with a binding, which may have to end between two frames.
struct BoundTunnel {
    tie: Rc<TunnelBinding>,
    is_websocket: bool,
    up: WebSocketFrameTracker,
    down: WebSocketFrameTracker,
    /// The Close frames to the endpoint and to the client, once the tunnel leaves.
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

    /// Starts to close the tunnel.
    fn leave(&mut self, worker: &Worker) {
        let last = |words| Transfer::new(Framing::None, BodyEncoding::Known, words, 0);
        let lot = worker.random().to_le_bytes();
        let mask = [lot[0], lot[1], lot[2], lot[3]];
        self.leaving = Some([last(close_frame(GOING_AWAY, Some(mask))), last(close_frame(GOING_AWAY, None))]);
        self.tie.give(LEAVE_MS);
    }
}

/// The trackers of both directions, for a bound WebSocket.
fn watched(tied: &mut Option<BoundTunnel>) -> Option<(WatchedFrames<'_>, WatchedFrames<'_>)> {
    let tied = tied.as_mut().filter(|tied| tied.is_websocket)?;
    let is_leaving = tied.leaving.is_some();
    Some((
        WatchedFrames { frames: &mut tied.up, is_leaving },
        WatchedFrames { frames: &mut tied.down, is_leaving },
    ))
}

/// Sends a Close frame after the frame before it is complete; returns whether the frame was sent.
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
        // The peer has closed, so nothing is left to send.
        Poll::Ready(Err(_)) => true,
        Poll::Pending => false,
    }
}

struct Tunnel {
    client: TransportStream,
    endpoint: TransportStream,
    worker: Rc<Worker>,
    /// The idle timer.
    timer: Timer,
    opening: Transfer,
    /// Whether the response head of the upgrade was sent.
    is_open: bool,
    pair: BidirectionalCopy,
    tied: Option<BoundTunnel>,
}

impl Drop for Tunnel {
    /// Counts a panic of the task, and resets the connections so that the truncated bytes do not look
    /// complete.
    fn drop(&mut self) {
        if self.worker.counters.note_panic() {
            let sides = [self.client.tcp(), self.endpoint.tcp()];
            sides.into_iter().flatten().for_each(TcpConnection::reset_on_close);
        }
    }
}

impl Tunnel {
    /// Tracks the frames that arrived together with the heads.
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
        self.pair.poll(cx, self.worker.copy_context(), sides, watched(&mut self.tied))
    }

    /// Ends the tunnel after a change of its binding; a WebSocket ends with a Close frame to both sides.
    fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(tied) = &mut self.tied else { return Poll::Pending };
        if tied.tie.is_over(cx) {
            if tied.leaving.is_some() || !tied.is_websocket {
                return Poll::Ready(());
            }
            tied.leave(&self.worker);
            // Registers for the new deadline.
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
        // A stream of a multiplexed connection ends with END_STREAM; a reset might discard the Close frame.
        let _ = self.client.finish(&[]);
        Poll::Ready(())
    }

    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.client.client_gone(cx).is_some() {
            return Poll::Ready(());
        }
        self.pair.poll_silence(cx, self.worker.copy_context(), &self.timer)
    }
}

#[cfg(test)]
mod tests;
