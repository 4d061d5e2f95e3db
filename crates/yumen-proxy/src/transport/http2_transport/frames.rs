//! Incremental reader of HTTP/2 frame boundaries, for input in chunks of any size.
//!
//! Reads frame heads (RFC 9113 §4.1) and skips payloads.

/// Length of a frame head, in bytes (RFC 9113 §4.1).
pub(super) const HEAD_BYTES: usize = 9;
const KIND_AT: usize = 3;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RESET: u8 = 3;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;

/// Fields of a frame head.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameHead {
    pub(super) kind: u8,
    pub(super) flags: u8,
    /// Length of the payload, in bytes.
    pub(super) length: usize,
}

/// Result of one read.
pub(super) enum FramePart {
    /// A complete head; the available part of its payload was skipped.
    Head(FrameHead),
    /// A head that is still incomplete.
    Part,
    /// More of a payload.
    Payload,
}

/// Position in a sequence of frames.
#[derive(Debug)]
pub(super) struct FrameCursor {
    head: [u8; HEAD_BYTES],
    head_len: usize,
    payload_left: usize,
}

impl FrameCursor {
    /// Cursor at the start of a connection, where `preface_bytes` precede the first frame.
    pub(super) fn after(preface_bytes: usize) -> FrameCursor {
        FrameCursor { head: [0; HEAD_BYTES], head_len: 0, payload_left: preface_bytes }
    }

    /// Payload bytes of the current frame that have not arrived.
    pub(super) fn payload_left(&self) -> usize {
        self.payload_left
    }

    /// Whether a frame head is incomplete.
    pub(super) fn is_in_head(&self) -> bool {
        self.head_len > 0
    }

    /// Whether `bytes` begin a frame of one of these kinds; false if the kind has not arrived.
    pub(super) fn begins_with(&self, bytes: &[u8], kinds: &[u8]) -> bool {
        let is_at_head = self.payload_left == 0 && self.head_len == 0;
        is_at_head && bytes.get(KIND_AT).is_some_and(|kind| kinds.contains(kind))
    }

    /// Reads one step from `bytes`, which must not be empty.
    pub(super) fn read(&mut self, bytes: &mut &[u8]) -> FramePart {
        if self.payload_left > 0 {
            let skipped = self.payload_left.min(bytes.len());
            self.payload_left -= skipped;
            *bytes = &bytes[skipped..];
            return FramePart::Payload;
        }
        if self.head_len == 0
            && let Some((head, rest)) = bytes.split_first_chunk()
        {
            *bytes = rest;
            return self.begin(*head, bytes);
        }
        let taken = (HEAD_BYTES - self.head_len).min(bytes.len());
        self.head[self.head_len..self.head_len + taken].copy_from_slice(&bytes[..taken]);
        self.head_len += taken;
        *bytes = &bytes[taken..];
        if self.head_len < HEAD_BYTES {
            return FramePart::Part;
        }
        self.head_len = 0;
        self.begin(self.head, bytes)
    }

    fn begin(&mut self, head: [u8; HEAD_BYTES], bytes: &mut &[u8]) -> FramePart {
        let [high, middle, low, kind, flags, ..] = head;
        let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let skipped = length.min(bytes.len());
        self.payload_left = length - skipped;
        *bytes = &bytes[skipped..];
        FramePart::Head(FrameHead { kind, flags, length })
    }
}
