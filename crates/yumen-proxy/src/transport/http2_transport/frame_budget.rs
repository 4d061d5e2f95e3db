//! Frame budget of a peer: the bound on control frames without data, and the detection of heads that never
//! end.
//!
//! Reads the heads of frames in both directions. Must not depend on streams or sockets.

use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameCursor, FrameHead, FramePart, GOAWAY, HEADERS, PADDED,
    PING, RESET, WINDOW_UPDATE,
};

/// Costs and gains of frames. A stream that is opened and reset costs more than it gains, in any order.
const CONTROL_COST: u32 = 1;
const RESET_COST: u32 = 6;
const REQUEST_GAIN: u32 = 2;
/// Payload bytes, in either direction, that gain one control frame.
const PAYLOAD_BYTES: u64 = 128;
/// Gain per second.
const SECOND_GAIN: u64 = 100;
/// PING and WINDOW_UPDATE frames that one DATA frame pays for: gRPC libraries send a ping, to measure the
/// path, and one or two window updates for each. An attack through DATA frames costs the client more than it
/// gains: each must fit the window, arrive in time, and be accepted by the other side.
const DATA_GAIN: u32 = 3;
/// Length of the gRPC message prefix, in bytes. Shorter DATA frames carry no message and pay for no other
/// frame.
const MESSAGE_BYTES_MIN: usize = 5;

/// Budget of one peer.
#[derive(Debug)]
pub(crate) struct FrameBudget {
    left: u32,
    max: u32,
    /// PING and WINDOW_UPDATE frames that DATA frames have paid for.
    paid: u32,
    /// Gain for each head that is sent: an endpoint may reset any request that it received.
    sent_head_gain: u32,
    received: FrameCursor,
    sent: FrameCursor,
    /// Whether the frame being received is DATA, whose rate is checked where bodies are read.
    is_data: bool,
    /// Whether a head has begun without END_HEADERS.
    is_head_open: bool,
    unfinished_since_ms: Option<u64>,
    /// Payload bytes that have not been converted into budget yet.
    moved_bytes: u64,
    since_ms: u64,
}

impl FrameBudget {
    /// Budget for a client. `max` is the largest cost at once; `preface_bytes` precede the first frame.
    pub(crate) fn new(max: u32, preface_bytes: usize, now_ms: u64) -> FrameBudget {
        FrameBudget {
            left: max,
            max,
            paid: 0,
            sent_head_gain: 0,
            received: FrameCursor::after(preface_bytes),
            sent: FrameCursor::after(0),
            // An incomplete preface is subject to the timeout of the handshake, not to that of heads.
            is_data: true,
            is_head_open: false,
            unfinished_since_ms: None,
            moved_bytes: 0,
            since_ms: now_ms,
        }
    }

    /// Budget for an endpoint, to which the gateway sends the preface and requests.
    pub(crate) fn with_endpoint(max: u32, preface_bytes: usize, now_ms: u64) -> FrameBudget {
        let sent = FrameCursor::after(preface_bytes);
        FrameBudget { sent, sent_head_gain: RESET_COST, ..FrameBudget::new(max, 0, now_ms) }
    }

    /// Whether the budget is exhausted.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Time since which a head, or a frame other than DATA, is incomplete.
    pub(crate) fn unfinished_since_ms(&self) -> Option<u64> {
        self.unfinished_since_ms
    }

    /// Restarts the time of incomplete input, after a period in which the gateway did not read.
    pub(crate) fn wait_anew(&mut self, now_ms: u64) {
        self.unfinished_since_ms = self.unfinished_since_ms.map(|_| now_ms);
    }

    /// Accounts for bytes to send, which must not be empty, and returns the number that one write may
    /// contain. RST_STREAM and GOAWAY are not written together with frames before them: clients that read the
    /// end of a response and the reset of their upload at once (curl 7.88) fail without showing the response.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> usize {
        let mut left = bytes;
        let mut has_more = false;
        while !left.is_empty() {
            if has_more && self.sent.begins_with(left, &[RESET, GOAWAY]) {
                break;
            }
            match self.sent.read(&mut left) {
                // Consecutive resets may share a write.
                FramePart::Head(FrameHead { kind: RESET | GOAWAY, .. }) => continue,
                FramePart::Head(head) if head.kind == DATA => self.pay(head),
                FramePart::Head(head) if head.kind == HEADERS => self.gain(self.sent_head_gain),
                _ => {}
            }
            has_more = true;
        }
        let count = bytes.len() - left.len();
        self.moved_bytes += count as u64;
        count
    }

    /// Accounts for bytes that the peer sent.
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

    /// Clears the incomplete input when a frame has ended or is DATA, and no head is open.
    fn settle(&mut self) {
        if (self.received.payload_left() == 0 || self.is_data) && !self.is_head_open {
            self.unfinished_since_ms = None;
        }
    }

    /// Credits the time since the last call and the payload moved.
    fn replenish(&mut self, now_ms: u64) {
        let gained_by_time = now_ms.saturating_sub(self.since_ms) * SECOND_GAIN / 1000;
        // The rest of a second that has not gained a credit yet counts at the next call.
        if gained_by_time > 0 {
            self.since_ms = now_ms;
        }
        let gained = gained_by_time + self.moved_bytes / PAYLOAD_BYTES;
        self.moved_bytes %= PAYLOAD_BYTES;
        self.gain(gained.min(u64::from(self.max)) as u32);
    }

    /// Credits `gained` up to the maximum. An exhausted budget stays exhausted.
    fn gain(&mut self, gained: u32) {
        if self.left > 0 {
            self.left = self.left.saturating_add(gained).min(self.max);
        }
    }

    /// Credits a DATA frame that was sent or received. A padded frame is not credited.
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
            // An empty DATA frame that does not end its stream costs as much as a control frame.
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
