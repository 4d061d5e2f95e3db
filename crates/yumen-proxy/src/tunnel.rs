//! After a change of protocol: bytes both ways until both sides have ended, or what the tunnel is tied to
//! changes.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use yumen_http::Framing;
use yumen_http::websocket::{Frames, close_frame};
use yumen_plugin::Host;
use yumen_plugin::plugin::Chunk;

use crate::connection::Connection;
use crate::relay::Link;
use crate::stream::Stream;
use crate::ties::Tie;
use crate::transfer::{Edit, Ending, Transfer};

/// A WebSocket that has to end gets so long for the frames under way, in milliseconds.
const LEAVE_MS: u64 = 1000;

/// The endpoint goes away (RFC 6455 §7.4.1).
const GOING_AWAY: u16 = 1001;

/// How a tunnel ended.
pub(crate) struct Ended {
    /// Bytes from the client.
    pub(crate) up_bytes: u64,
    /// Bytes to the client.
    pub(crate) down_bytes: u64,
    /// Whether it was ended here, the client being told.
    pub(crate) was_told: bool,
}

/// What ends a tunnel beside its two sides.
pub(crate) struct Bounds {
    /// How long nothing may move.
    pub(crate) idle_timeout_ms: u64,
    pub(crate) tie: Option<Rc<Tie>>,
    /// Whether what passes are frames of a WebSocket.
    pub(crate) is_websocket: bool,
}

/// Runs until both sides have ended, either fails, or its bounds end it. `opening` holds the head that tells
/// the client of the change.
pub(crate) async fn run(conn: &mut Connection, link: &mut Link, opening: Transfer, bounds: Bounds) -> Ended {
    let mut tunnel = Tunnel {
        opening,
        up: Transfer::new(Framing::Close, Ending::Known, Vec::new(), 0),
        down: Transfer::new(Framing::Close, Ending::Known, Vec::new(), 0),
        up_shut: false,
        down_shut: false,
        progress: u64::MAX,
        idle_timeout_ms: bounds.idle_timeout_ms,
        tied: bounds.tie.map(|tie| Tied::new(tie, bounds.is_websocket)),
    };
    poll_fn(|cx| tunnel.poll(cx, conn, link)).await;
    Ended {
        up_bytes: tunnel.up.read_bytes,
        down_bytes: tunnel.down.sent_bytes + tunnel.opening.sent_bytes,
        was_told: tunnel.tied.is_some_and(|tied| tied.leaving.is_some()),
    }
}

/// What a tunnel keeps in mind that may have to end between two frames.
struct Tied {
    tie: Rc<Tie>,
    is_websocket: bool,
    up: Frames,
    down: Frames,
    /// The last words to the endpoint and to the client, once they are due.
    leaving: Option<[Transfer; 2]>,
}

impl Tied {
    fn new(tie: Rc<Tie>, is_websocket: bool) -> Tied {
        Tied { tie, is_websocket, up: Frames::default(), down: Frames::default(), leaving: None }
    }

    /// Begins to leave.
    fn leave(&mut self, conn: &Connection) {
        let last = |words| Transfer::new(Framing::None, Ending::Known, words, 0);
        let lot = conn.worker.random().to_le_bytes();
        let mask = [lot[0], lot[1], lot[2], lot[3]];
        self.leaving = Some([last(close_frame(GOING_AWAY, Some(mask))), last(close_frame(GOING_AWAY, None))]);
        self.tie.give(LEAVE_MS);
    }
}

/// What of a piece goes on: all of it, or once the tunnel ends only what completes a frame.
fn let_pass(frames: &mut Frames, mut chunk: Chunk, is_leaving: bool) -> Chunk {
    if !is_leaving {
        frames.pass(&chunk.data);
    } else if frames.is_between() {
        chunk.data.clear();
    } else {
        let end = frames.pass_frame(&chunk.data);
        chunk.data.truncate(end);
    }
    chunk
}

/// Says the last words once the frame before them has gone; whether they are said.
fn is_said(
    cx: &mut Context<'_>,
    (frames, before): (&Frames, &Transfer),
    words: &mut Transfer,
    (sink, source): (&mut Stream, &mut crate::buffer::Inbox),
) -> bool {
    if !frames.is_between() || before.waits_for_sink() {
        return false;
    }
    match words.poll_flush(cx, source, sink) {
        Poll::Ready(Ok(())) => sink.poll_flush(cx).is_ready(),
        // Nobody is there to hear them.
        Poll::Ready(Err(_)) => true,
        Poll::Pending => false,
    }
}

struct Tunnel {
    opening: Transfer,
    up: Transfer,
    down: Transfer,
    up_shut: bool,
    down_shut: bool,
    progress: u64,
    idle_timeout_ms: u64,
    tied: Option<Tied>,
}

impl Tunnel {
    fn poll(&mut self, cx: &mut Context<'_>, conn: &mut Connection, link: &mut Link) -> Poll<()> {
        match self.opening.poll_flush(cx, &mut link.inbox, &mut conn.stream) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => return Poll::Ready(()),
            Poll::Pending => return self.wait(cx, conn),
        }
        if self.poll_bytes(cx, conn, link).is_ready() || self.poll_leave(cx, conn, link).is_ready() {
            return Poll::Ready(());
        }
        self.wait(cx, conn)
    }

    /// Moves bytes both ways; ready when there is nothing more to move.
    fn poll_bytes(&mut self, cx: &mut Context<'_>, conn: &mut Connection, link: &mut Link) -> Poll<()> {
        let buffers = &conn.worker.buffers;
        let watched = self.tied.as_mut().filter(|tied| tied.is_websocket);
        let (frames, is_leaving) = match watched {
            Some(tied) => (Some((&mut tied.up, &mut tied.down)), tied.leaving.is_some()),
            None => (None, false),
        };
        let (mut frames_up, mut frames_down) = frames.unzip();
        if !self.up_shut {
            let mut pass =
                frames_up.as_mut().map(|frames| |chunk: Chunk| let_pass(frames, chunk, is_leaving));
            let mut edit: Option<Edit<'_>> = pass.as_mut().map(|pass| pass as Edit<'_>);
            let source = (&mut conn.stream, &mut conn.inbox);
            match self.up.poll(cx, buffers, source, &mut link.stream, &mut edit) {
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => self.up_shut = link.stream.poll_shutdown(cx).is_ready(),
                Poll::Pending => {}
            }
        }
        if !self.down_shut {
            let mut pass =
                frames_down.as_mut().map(|frames| |chunk: Chunk| let_pass(frames, chunk, is_leaving));
            let mut edit: Option<Edit<'_>> = pass.as_mut().map(|pass| pass as Edit<'_>);
            let source = (&mut link.stream, &mut link.inbox);
            match self.down.poll(cx, buffers, source, &mut conn.stream, &mut edit) {
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => self.down_shut = conn.stream.poll_shutdown(cx).is_ready(),
                Poll::Pending => {}
            }
        }
        if self.up_shut && self.down_shut { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Ends the tunnel when what it is tied to has changed: a WebSocket with a closing frame to both sides.
    fn poll_leave(&mut self, cx: &mut Context<'_>, conn: &mut Connection, link: &mut Link) -> Poll<()> {
        let Some(tied) = &mut self.tied else { return Poll::Pending };
        if tied.tie.is_over(cx) {
            if tied.leaving.is_some() || !tied.is_websocket {
                return Poll::Ready(());
            }
            tied.leave(conn);
            // Registers for the time this may take.
            if tied.tie.is_over(cx) {
                return Poll::Ready(());
            }
        }
        let Some([to_endpoint, to_client]) = &mut tied.leaving else { return Poll::Pending };
        let up = (&mut link.stream, &mut conn.inbox);
        let is_up_done = self.up_shut || is_said(cx, (&tied.up, &self.up), to_endpoint, up);
        let down = (&mut conn.stream, &mut link.inbox);
        let is_down_done = self.down_shut || is_said(cx, (&tied.down, &self.down), to_client, down);
        if is_up_done && is_down_done { Poll::Ready(()) } else { Poll::Pending }
    }

    fn wait(&mut self, cx: &mut Context<'_>, conn: &mut Connection) -> Poll<()> {
        if conn.stream.given_up(cx).is_some() {
            return Poll::Ready(());
        }
        let progress = self.up.sent_bytes + self.down.sent_bytes;
        if progress != self.progress {
            self.progress = progress;
            conn.timer.set(self.idle_timeout_ms);
        }
        if conn.timer.is_over(cx) { Poll::Ready(()) } else { Poll::Pending }
    }
}
