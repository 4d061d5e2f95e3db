//! How much a peer may ask of a connection without moving any data: floods of control frames, and heads that it begins
//! and does not end.
//!
//! Reads the heads of frames off the bytes received and sent, and nothing else of them. Knows no stream and no socket.

use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameCursor, FrameHead, FramePart, GOAWAY, HEADERS, PADDED,
    PING, RESET, WINDOW_UPDATE,
};

/// What a frame costs. A stream that is opened and reset costs more than it gives, whatever the order.
const CONTROL_COST: u32 = 1;
const RESET_COST: u32 = 6;
const REQUEST_GAIN: u32 = 2;
/// Moving so many bytes of payload, either way, pays for one control frame.
const PAYLOAD_BYTES: u64 = 128;
/// What a second of time gives back.
const SECOND_GAIN: u64 = 100;
/// Control frames that a frame of data pays for: libraries of gRPC answer each with a ping, to measure the path, and with
/// one or two window updates. Whoever sends data only to buy pings asks little more with them than with the data, each
/// frame of which has to fit the window, to come in time, and to be taken by the other side.
const DATA_GAIN: u32 = 3;
/// Less is no message of gRPC, whose prefix is so long, but a window opened byte by byte.
const MESSAGE_BYTES_MIN: usize = 5;

/// What is left of the patience with one peer.
#[derive(Debug)]
pub(crate) struct FrameBudget {
    left: u32,
    max: u32,
    /// Pings and window updates that data has paid for. Nothing else is bought with it.
    paid: u32,
    /// What each head gives that is sent: an endpoint may reset a request, which is then no whim of its own.
    sent_head_gain: u32,
    received: FrameCursor,
    sent: FrameCursor,
    /// The frame being received is of data: how fast that comes is looked at where bodies are read.
    is_data: bool,
    /// A head was begun whose last frame has not come.
    is_head_open: bool,
    unfinished_since_ms: Option<u64>,
    /// Payload moved that has not been paid for yet.
    moved_bytes: u64,
    since_ms: u64,
}

impl FrameBudget {
    /// With a client. `max` is the cost a peer may run up at once; `preface_bytes` come before the first frame.
    pub(crate) fn new(max: u32, preface_bytes: usize, now_ms: u64) -> FrameBudget {
        FrameBudget {
            left: max,
            max,
            paid: 0,
            sent_head_gain: 0,
            received: FrameCursor::behind(preface_bytes),
            sent: FrameCursor::behind(0),
            // Who waits for the preface waits for all of it.
            is_data: true,
            is_head_open: false,
            unfinished_since_ms: None,
            moved_bytes: 0,
            since_ms: now_ms,
        }
    }

    /// With an endpoint, which is sent a preface and requests.
    pub(crate) fn with_endpoint(max: u32, preface_bytes: usize, now_ms: u64) -> FrameBudget {
        let sent = FrameCursor::behind(preface_bytes);
        FrameBudget { sent, sent_head_gain: RESET_COST, ..FrameBudget::new(max, 0, now_ms) }
    }

    /// Whether it has run out.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Since when the peer owes the rest of a head, or of a frame that is no data.
    pub(crate) fn unfinished_since_ms(&self) -> Option<u64> {
        self.unfinished_since_ms
    }

    /// Nothing was read from the peer up to now, for reasons of ours: what is unfinished counts from here.
    pub(crate) fn wait_anew(&mut self, now_ms: u64) {
        self.unfinished_since_ms = self.unfinished_since_ms.map(|_| now_ms);
    }

    /// Notes bytes that are to be sent to the peer, of which there are some, as far as they may be sent at once: a reset
    /// or a goodbye is not sent together with what stands before it. Clients that read an answer's end and the reset of
    /// what they still upload in one go (curl 7.88) fail instead of showing the answer.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> usize {
        let mut left = bytes;
        let mut says_more = false;
        while !left.is_empty() {
            if says_more && self.sent.begins_with(left, &[RESET, GOAWAY]) {
                break;
            }
            match self.sent.read(&mut left) {
                FramePart::Head(FrameHead { kind: RESET | GOAWAY, .. }) => continue,
                FramePart::Head(head) if head.kind == DATA => self.pay(head),
                FramePart::Head(head) if head.kind == HEADERS => self.gain(self.sent_head_gain),
                _ => {}
            }
            says_more = true;
        }
        let count = bytes.len() - left.len();
        self.moved_bytes += count as u64;
        count
    }

    /// Reads on in what the peer sent.
    pub(crate) fn received(&mut self, mut bytes: &[u8], now_ms: u64) {
        self.replenish(now_ms);
        while !bytes.is_empty() {
            match self.received.read(&mut bytes) {
                FramePart::Head(head) => self.frame(head),
                FramePart::Payload => {}
                FramePart::Part => break,
            }
            self.settle();
        }
        let is_unfinished = self.is_head_open
            || self.received.is_in_head()
            || (self.received.payload_left() > 0 && !self.is_data);
        if is_unfinished && self.unfinished_since_ms.is_none() {
            self.unfinished_since_ms = Some(now_ms);
        }
    }

    /// What was unfinished is not any more, where a frame has ended or turns out to be of data, and no head goes on.
    fn settle(&mut self) {
        if (self.received.payload_left() == 0 || self.is_data) && !self.is_head_open {
            self.unfinished_since_ms = None;
        }
    }

    /// What the time since and the payload moved are worth.
    fn replenish(&mut self, now_ms: u64) {
        let gained_by_time = now_ms.saturating_sub(self.since_ms) * SECOND_GAIN / 1000;
        if gained_by_time > 0 {
            self.since_ms = now_ms;
        }
        let gained = gained_by_time + self.moved_bytes / PAYLOAD_BYTES;
        self.moved_bytes %= PAYLOAD_BYTES;
        self.gain(gained.min(u64::from(self.max)) as u32);
    }

    /// Once it is over it stays over.
    fn gain(&mut self, gained: u32) {
        if self.left > 0 {
            self.left = self.left.saturating_add(gained).min(self.max);
        }
    }

    /// What a frame of data is worth that was sent or received. Padding is no message.
    fn pay(&mut self, data: FrameHead) {
        if data.length >= MESSAGE_BYTES_MIN && data.flags & PADDED == 0 {
            self.paid = self.paid.saturating_add(DATA_GAIN).min(self.max);
        }
    }

    fn frame(&mut self, head: FrameHead) {
        let FrameHead { kind, flags, length } = head;
        self.is_data = kind == DATA;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.is_head_open = flags & END_HEADERS == 0;
        }
        let cost = match kind {
            HEADERS => {
                self.gain(REQUEST_GAIN);
                0
            }
            DATA if length > 0 || flags & END_STREAM != 0 => {
                self.moved_bytes += length as u64;
                self.pay(head);
                0
            }
            RESET => RESET_COST,
            PING | WINDOW_UPDATE if self.paid > 0 => {
                self.paid -= 1;
                0
            }
            _ => CONTROL_COST,
        };
        self.left = self.left.saturating_sub(cost);
    }
}

#[cfg(test)]
mod tests;
