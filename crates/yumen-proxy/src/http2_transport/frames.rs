//! Where frames of HTTP/2 begin in bytes that come in pieces of any size.
//!
//! Reads their heads (RFC 9113 §4.1) and nothing else of them.

/// A frame's head is so long.
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

/// What a frame's head tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameHead {
    pub(super) kind: u8,
    pub(super) flags: u8,
    /// Of its payload, in bytes.
    pub(super) length: usize,
}

/// What was read.
pub(super) enum FramePart {
    /// The rest of a head or all of it, and what has come of its payload.
    Head(FrameHead),
    /// Some of a head, whose rest has not come.
    Part,
    /// More of a payload.
    Payload,
}

/// The place in a sequence of frames.
#[derive(Debug)]
pub(super) struct FrameCursor {
    head: [u8; HEAD_BYTES],
    head_len: usize,
    payload_left: usize,
}

impl FrameCursor {
    /// `preface_bytes` come before the first frame.
    pub(super) fn behind(preface_bytes: usize) -> FrameCursor {
        FrameCursor { head: [0; HEAD_BYTES], head_len: 0, payload_left: preface_bytes }
    }

    /// Payload of the current frame still to come.
    pub(super) fn payload_left(&self) -> usize {
        self.payload_left
    }

    /// Whether a head has begun whose rest has not come.
    pub(super) fn is_in_head(&self) -> bool {
        self.head_len > 0
    }

    /// Whether bytes begin with a frame of one of these kinds, as far as they tell.
    pub(super) fn begins_with(&self, bytes: &[u8], kinds: &[u8]) -> bool {
        let is_at_head = self.payload_left == 0 && self.head_len == 0;
        is_at_head && bytes.get(KIND_AT).is_some_and(|kind| kinds.contains(kind))
    }

    /// Reads one piece off bytes, of which there are some.
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
