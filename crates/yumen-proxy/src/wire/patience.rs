//! How much a peer may ask of a connection without moving any data: floods of control frames, and heads that it begins
//! and does not end.
//!
//! Reads frame headers off the bytes received, and nothing else of them. Knows no stream and no socket.

/// A frame's header is so long (RFC 9113 §4.1).
const HEADER_BYTES: usize = 9;

/// What a frame costs. A stream that is opened and reset costs more than it gives, whatever the order.
const CONTROL_COST: u32 = 1;
const RESET_COST: u32 = 6;
const REQUEST_GAIN: u32 = 2;
/// Moving so many bytes of payload, either way, pays for one control frame.
const PAYLOAD_BYTES: u64 = 128;
/// What a second of time gives back.
const SECOND_GAIN: u64 = 100;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// What is left of the patience with one peer.
#[derive(Debug)]
pub(crate) struct Patience {
    left: u32,
    max: u32,
    header: [u8; HEADER_BYTES],
    header_len: usize,
    /// Payload of the current frame still to come.
    payload_left: usize,
    /// It is of data: how fast that comes is looked at where bodies are read.
    is_data: bool,
    /// A head was begun whose last frame has not come.
    is_head_open: bool,
    unfinished_since_ms: Option<u64>,
    /// Payload moved that has not been paid for yet.
    moved_bytes: u64,
    since_ms: u64,
}

impl Patience {
    /// `max` is the cost a peer may run up at once; `preface_bytes` come before the first frame.
    pub(crate) fn new(max: u32, preface_bytes: usize, now_ms: u64) -> Patience {
        Patience {
            left: max,
            max,
            header: [0; HEADER_BYTES],
            header_len: 0,
            payload_left: preface_bytes,
            // Who waits for the preface waits for all of it.
            is_data: true,
            is_head_open: false,
            unfinished_since_ms: None,
            moved_bytes: 0,
            since_ms: now_ms,
        }
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

    /// Notes bytes that were sent to the peer.
    pub(crate) fn sent(&mut self, count: usize) {
        self.moved_bytes += count as u64;
    }

    /// Reads on in what the peer sent.
    pub(crate) fn received(&mut self, mut bytes: &[u8], now_ms: u64) {
        self.regain(now_ms);
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let skipped = self.payload_left.min(bytes.len());
                self.payload_left -= skipped;
                bytes = &bytes[skipped..];
                self.settle();
                continue;
            }
            let taken = (HEADER_BYTES - self.header_len).min(bytes.len());
            self.header[self.header_len..self.header_len + taken].copy_from_slice(&bytes[..taken]);
            self.header_len += taken;
            bytes = &bytes[taken..];
            if self.header_len == HEADER_BYTES {
                self.header_len = 0;
                self.frame();
                self.settle();
            }
        }
        let is_unfinished =
            self.is_head_open || self.header_len > 0 || (self.payload_left > 0 && !self.is_data);
        if is_unfinished && self.unfinished_since_ms.is_none() {
            self.unfinished_since_ms = Some(now_ms);
        }
    }

    /// What was unfinished is not any more, where a frame has ended or turns out to be of data, and no head goes on.
    fn settle(&mut self) {
        if (self.payload_left == 0 || self.is_data) && !self.is_head_open {
            self.unfinished_since_ms = None;
        }
    }

    /// What the time since and the payload moved are worth.
    fn regain(&mut self, now_ms: u64) {
        let gained_by_time = now_ms.saturating_sub(self.since_ms) * SECOND_GAIN / 1000;
        if gained_by_time > 0 {
            self.since_ms = now_ms;
        }
        let gained = gained_by_time + self.moved_bytes / PAYLOAD_BYTES;
        self.moved_bytes %= PAYLOAD_BYTES;
        // Once it is over it stays over.
        if self.left > 0 {
            self.left = (u64::from(self.left) + gained).min(u64::from(self.max)) as u32;
        }
    }

    fn frame(&mut self) {
        let [high, middle, low, kind, flags, ..] = self.header;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        self.payload_left = length;
        self.is_data = kind == DATA;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.is_head_open = flags & END_HEADERS == 0;
        }
        let cost = match kind {
            HEADERS => {
                if self.left > 0 {
                    self.left = (self.left + REQUEST_GAIN).min(self.max);
                }
                0
            }
            DATA if length > 0 || flags & END_STREAM != 0 => {
                self.moved_bytes += length as u64;
                0
            }
            RESET => RESET_COST,
            _ => CONTROL_COST,
        };
        self.left = self.left.saturating_sub(cost);
    }
}

#[cfg(test)]
mod tests;
