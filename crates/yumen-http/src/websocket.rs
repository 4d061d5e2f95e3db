//! A tracker of WebSocket frame boundaries (RFC 6455 §5.2) in a stream of bytes.
//!
//! Reads no payload and validates nothing: invalid frames yield wrong boundaries, but no error.

#[cfg(test)]
mod tests;

/// The longest frame header: 2 bytes, 8 of length, 4 of mask.
const HEAD_BYTES_MAX: usize = 14;

/// The tracker of one direction.
#[derive(Debug, Default)]
pub struct WebSocketFrameTracker {
    /// The received bytes of the current header.
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    /// Payload bytes to come.
    payload_bytes: u64,
}

impl WebSocketFrameTracker {
    /// Whether the position is at a frame boundary.
    pub fn is_between(&self) -> bool {
        self.head_bytes == 0 && self.payload_bytes == 0
    }

    /// Advances over `bytes`.
    pub fn pass(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            at += self.pass_frame(&bytes[at..]);
        }
    }

    /// Advances at most to the end of a frame; returns the number of bytes.
    pub fn pass_frame(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while self.payload_bytes == 0 {
            let Some(byte) = bytes.get(at) else { return at };
            at += 1;
            self.head[self.head_bytes] = *byte;
            self.head_bytes += 1;
            if self.head_bytes == self.head_length() {
                self.payload_bytes = self.payload_length();
                self.head_bytes = 0;
                // A frame without payload ends with its header.
                if self.payload_bytes == 0 {
                    return at;
                }
            }
        }
        let count = self.payload_bytes.min((bytes.len() - at) as u64);
        self.payload_bytes -= count;
        at + count as usize
    }

    /// The length of the header, in bytes, as far as it is known.
    fn head_length(&self) -> usize {
        if self.head_bytes < 2 {
            return 2;
        }
        let mask = if self.head[1] & 0x80 == 0 { 0 } else { 4 };
        let length = match self.head[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + mask
    }

    fn payload_length(&self) -> u64 {
        let of = |bytes: &[u8]| bytes.iter().fold(0, |length, byte| length << 8 | u64::from(*byte));
        match self.head[1] & 0x7f {
            126 => of(&self.head[2..4]),
            127 => of(&self.head[2..10]),
            short => short.into(),
        }
    }
}

/// A Close frame with its status code (RFC 6455 §5.5.1). Frames of clients are masked (§5.3).
pub fn close_frame(code: u16, mask: Option<[u8; 4]>) -> Vec<u8> {
    let [high, low] = code.to_be_bytes();
    match mask {
        // FIN with opcode 8; a payload of two bytes, with the mask bit for a server (RFC 6455 §5.2).
        None => vec![0x88, 2, high, low],
        Some([a, b, c, d]) => vec![0x88, 0x82, a, b, c, d, high ^ a, low ^ b],
    }
}
