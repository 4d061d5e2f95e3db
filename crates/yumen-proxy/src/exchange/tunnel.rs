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

use crate::copy::one_way_copy::{BidirectionalCopy, OneWayCopy, WatchedFrames, WatchedTunnel};
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
    pub(crate) end: TunnelEnd,
}

/// The way in which a tunnel ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum TunnelEnd {
    /// The gateway has sent WebSocket Close frames.
    ClosedByGateway,
    /// Both sides have ended their direction.
    Complete,
    /// A failure or a timeout.
    #[default]
    Truncated,
}

/// The bounds that end a tunnel while both sides are open.
pub(crate) struct TunnelBounds {
    /// The idle timeout, in milliseconds.
    pub(crate) idle_timeout_ms: u64,
    pub(crate) binding: Option<Rc<TunnelBinding>>,
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
    // The task has a timer of its own.
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
        bound: bounds.binding.map(|binding| BoundTunnel::new(binding, bounds.is_websocket)),
    };
    tunnel.consume_buffered_frames();
    let (give_back, given_back) = oneshot::channel();
    task::spawn(async move {
        poll_fn(|cx| tunnel.poll(cx)).await;
        tunnel.pair.settle(tunnel.worker.copy_context(), &mut tunnel.client, &mut tunnel.endpoint).await;
        // If the receiver was dropped, the tunnel ends and closes its streams.
        let _ = give_back.send(tunnel);
    });
    // The sender is dropped without a tunnel only if the task panicked.
    let Ok(mut tunnel) = given_back.await else { return TunnelOutcome::default() };
    conn.stream = tunnel.client.take();
    connection.stream = tunnel.endpoint.take();
    TunnelOutcome {
        up_bytes: tunnel.pair.up.bytes(),
        down_bytes: tunnel.pair.down.bytes() + tunnel.opening.sent_bytes(),
        end: tunnel.end(),
    }
}

/// State of a tunnel with a binding.
struct BoundTunnel {
    binding: Rc<TunnelBinding>,
    /// Set if the tunnel carries WebSocket frames: it ends between two of them.
    websocket: Option<WebSocketTunnel>,
}

/// The frames of a WebSocket.
#[derive(Default)]
struct WebSocketTunnel {
    up: WebSocketFrameTracker,
    down: WebSocketFrameTracker,
    /// Set once the gateway closes the tunnel.
    closing: Option<CloseFrames>,
}

/// The Close frames with which the gateway ends a WebSocket.
struct CloseFrames {
    to_endpoint: Transfer,
    to_client: Transfer,
}

impl BoundTunnel {
    fn new(binding: Rc<TunnelBinding>, is_websocket: bool) -> BoundTunnel {
        BoundTunnel { binding, websocket: is_websocket.then(WebSocketTunnel::default) }
    }
}

impl CloseFrames {
    /// Creates the frames; only frames to a server are masked (RFC 6455 §5.1).
    fn new() -> CloseFrames {
        let mut mask = [0; 4];
        // RFC 6455 §5.3: the mask must not be predictable, or the content chooses the bytes on the wire.
        aws_lc_rs::rand::fill(&mut mask).expect("the system has randomness");
        let transfer = |mask| {
            let frame = close_frame(GOING_AWAY, mask);
            Transfer::new(Framing::None, BodyEncoding::Known, frame, 0)
        };
        CloseFrames { to_endpoint: transfer(Some(mask)), to_client: transfer(None) }
    }
}

/// The trackers of both directions, for a bound WebSocket.
fn watched(bound: &mut Option<BoundTunnel>) -> Option<WatchedTunnel<'_>> {
    let WebSocketTunnel { up, down, closing } = bound.as_mut()?.websocket.as_mut()?;
    let is_leaving = closing.is_some();
    Some(WatchedTunnel {
        up: WatchedFrames { frames: up, is_leaving },
        down: WatchedFrames { frames: down, is_leaving },
    })
}

/// Sends a Close frame after the copied frame before it is complete; true once the Close frame was sent, or
/// cannot be sent any more.
fn send_close_frame(
    cx: &mut Context<'_>,
    tracker: &WebSocketFrameTracker,
    copy: &OneWayCopy,
    close_frame: &mut Transfer,
    sink: &mut TransportStream,
) -> bool {
    if copy.is_shut() {
        return true;
    }
    if !tracker.is_between() || copy.waits_for_sink() {
        return false;
    }
    match close_frame.poll_flush(cx, &mut Inbox::default(), sink) {
        Poll::Ready(Ok(())) => sink.poll_flush(cx).is_ready(),
        // The peer has closed.
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
    bound: Option<BoundTunnel>,
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
        if let Some(WatchedTunnel { mut up, mut down }) = watched(&mut self.bound) {
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
        let Tunnel { pair, worker, client, endpoint, bound, .. } = self;
        pair.poll(cx, worker.copy_context(), client, endpoint, watched(bound))
    }

    /// Ends the tunnel after a change of its binding; a WebSocket ends with a Close frame to both sides.
    fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(BoundTunnel { binding, websocket }) = &mut self.bound else { return Poll::Pending };
        let is_over = binding.is_over(cx);
        let Some(WebSocketTunnel { up, down, closing }) = websocket else {
            return if is_over { Poll::Ready(()) } else { Poll::Pending };
        };
        if is_over {
            if closing.is_some() {
                return Poll::Ready(());
            }
            *closing = Some(CloseFrames::new());
            binding.set_deadline(LEAVE_MS);
            // Registers for the new deadline.
            if binding.is_over(cx) {
                return Poll::Ready(());
            }
        }
        let Some(CloseFrames { to_endpoint, to_client }) = closing else { return Poll::Pending };
        let is_up_closed = send_close_frame(cx, up, &self.pair.up, to_endpoint, &mut self.endpoint);
        let is_down_closed = send_close_frame(cx, down, &self.pair.down, to_client, &mut self.client);
        if !(is_up_closed && is_down_closed) {
            return Poll::Pending;
        }
        // A stream of a multiplexed connection ends with END_STREAM; a reset might discard the Close frame.
        let _ = self.client.finish(&[]);
        Poll::Ready(())
    }

    fn end(&self) -> TunnelEnd {
        let websocket = self.bound.as_ref().and_then(|bound| bound.websocket.as_ref());
        if websocket.is_some_and(|websocket| websocket.closing.is_some()) {
            TunnelEnd::ClosedByGateway
        } else if self.pair.is_whole() {
            TunnelEnd::Complete
        } else {
            TunnelEnd::Truncated
        }
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
