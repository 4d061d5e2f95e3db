//! The chunked transfer coding (RFC 9112 §7.1): a strict decoder, and an encoder of chunk-size lines.
//!
//! Independent of connections or content codings.

/// The reason why a body was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// A chunk-size line does not start with hexadecimal digits, or continues with invalid characters.
    #[error("a chunk size is not a number")]
    Size,
    /// Chunk data is not followed by CRLF.
    #[error("chunk data does not end at its size")]
    End,
    /// A chunk-size line or the trailers exceed their limit.
    #[error("a chunk line is longer than allowed")]
    TooLong,
    /// A trailer line is malformed.
    #[error("a trailer line is malformed")]
    Trailer,
    /// The content is invalid in the coding that its head declares.
    #[error("the content does not match its content coding")]
    Coding,
}

/// The result of one decoding step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkDecodeStep {
    /// This number of bytes at the front of the input is body data.
    Data(usize),
    /// This number of bytes at the front of the input is framing; continue with the rest.
    Framing(usize),
    /// The input contains nothing more to decode.
    NeedMore,
    /// The body has ended; further bytes belong to the next message.
    Done,
}

/// The most bytes of one chunk-size line's extensions, and of the trailers.
const LINE_BYTES_MAX: u32 = 4096;
/// The most bytes of chunk extensions in one body. The decoder skips extensions, and a peer could otherwise
/// occupy the gateway with them.
const EXTENSION_BYTES_MAX: u32 = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkedState {
    Size {
        digits: u8,
        size: u64,
    },
    /// After the digits, only whitespace may precede an extension (RFC 9112 §7.1.1).
    SizeSpace {
        size: u64,
    },
    Extension {
        size: u64,
    },
    SizeFeed {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataReturn,
    DataFeed,
    TrailerStart,
    Trailer,
    TrailerFeed,
    LastFeed,
    Done,
    /// Final: resuming within a line could change the meaning of the rest.
    Broken(BodyError),
}

/// A decoder of one chunked body. Trailers are collected; extensions are skipped.
#[derive(Debug)]
pub struct ChunkedDecoder {
    state: ChunkedState,
    line_bytes: u32,
    extension_bytes: u32,
    trailers: Vec<u8>,
}

impl Default for ChunkedDecoder {
    fn default() -> Self {
        ChunkedDecoder {
            state: ChunkedState::Size { digits: 0, size: 0 },
            line_bytes: 0,
            extension_bytes: 0,
            trailers: Vec::new(),
        }
    }
}

impl ChunkedDecoder {
    /// Whether the last chunk and the trailers were decoded.
    pub fn is_done(&self) -> bool {
        self.state == ChunkedState::Done
    }

    /// The trailer lines, each with its CRLF. They are complete once the body is done.
    pub fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Decodes the front of `input`. The caller removes the reported data or framing before the next step.
    pub fn step(&mut self, input: &[u8]) -> Result<ChunkDecodeStep, BodyError> {
        match self.state {
            ChunkedState::Done => return Ok(ChunkDecodeStep::Done),
            ChunkedState::Broken(error) => return Err(error),
            _ => {}
        }
        if let ChunkedState::Data { left } = self.state {
            if input.is_empty() {
                return Ok(ChunkDecodeStep::NeedMore);
            }
            let taken = left.min(input.len() as u64);
            self.state = match left - taken {
                0 => ChunkedState::DataReturn,
                left => ChunkedState::Data { left },
            };
            return Ok(ChunkDecodeStep::Data(taken as usize));
        }
        let mut used = 0;
        for byte in input {
            used += 1;
            self.state = match self.advance(*byte) {
                Ok(state) => state,
                Err(error) => {
                    self.state = ChunkedState::Broken(error);
                    return Err(error);
                }
            };
            if matches!(self.state, ChunkedState::Data { .. } | ChunkedState::Done) {
                break;
            }
        }
        Ok(if used == 0 { ChunkDecodeStep::NeedMore } else { ChunkDecodeStep::Framing(used) })
    }

    fn advance(&mut self, byte: u8) -> Result<ChunkedState, BodyError> {
        use ChunkedState::*;
        Ok(match (self.state, byte) {
            (Size { digits, size }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                // 15 digits are 60 bits, so the size cannot overflow.
                if digits == 15 {
                    return Err(BodyError::TooLong);
                }
                let digit = char::from(byte).to_digit(16).ok_or(BodyError::Size)?;
                Size { digits: digits + 1, size: size * 16 + u64::from(digit) }
            }
            (Size { digits: 1.., size }, b'\r') => SizeFeed { size },
            (Size { digits: 1.., size }, b';' | b' ' | b'\t') => {
                self.line_bytes = 0;
                self.count_extension_byte()?;
                if byte == b';' { Extension { size } } else { SizeSpace { size } }
            }
            (SizeSpace { size }, b'\r') => SizeFeed { size },
            // Whitespace may precede an extension (RFC 9112 §7.1.1).
            (SizeSpace { size }, b';') => Extension { size },
            (SizeSpace { size }, b' ' | b'\t') => {
                self.count_line_byte()?;
                self.count_extension_byte()?;
                SizeSpace { size }
            }
            (SizeSpace { .. }, _) => return Err(BodyError::Size),
            (Size { .. }, _) => return Err(BodyError::Size),
            (Extension { size }, b'\r') => SizeFeed { size },
            // A bare line feed in an extension would end the line for lenient parsers, and thus smuggle a
            // request.
            (Extension { .. }, 0..=8 | 10..=31 | 127) => return Err(BodyError::Size),
            (Extension { size }, _) => {
                self.count_line_byte()?;
                self.count_extension_byte()?;
                Extension { size }
            }
            (SizeFeed { size: 0 }, b'\n') => {
                self.line_bytes = 0;
                TrailerStart
            }
            (SizeFeed { size }, b'\n') => Data { left: size },
            (SizeFeed { .. }, _) => return Err(BodyError::Size),
            (DataReturn, b'\r') => DataFeed,
            (DataFeed, b'\n') => Size { digits: 0, size: 0 },
            (DataReturn | DataFeed, _) => return Err(BodyError::End),
            (TrailerStart, b'\r') => LastFeed,
            (TrailerStart | Trailer, _) => return self.trailer_byte(byte),
            (TrailerFeed, b'\n') => {
                self.trailers.push(byte);
                self.check_trailer()?;
                TrailerStart
            }
            (LastFeed, b'\n') => Done,
            (TrailerFeed | LastFeed, _) => return Err(BodyError::Trailer),
            (Data { .. } | Done | Broken(_), _) => return Err(BodyError::End),
        })
    }

    fn count_line_byte(&mut self) -> Result<(), BodyError> {
        self.line_bytes += 1;
        if self.line_bytes > LINE_BYTES_MAX { Err(BodyError::TooLong) } else { Ok(()) }
    }

    fn count_extension_byte(&mut self) -> Result<(), BodyError> {
        self.extension_bytes += 1;
        if self.extension_bytes > EXTENSION_BYTES_MAX { Err(BodyError::TooLong) } else { Ok(()) }
    }

    fn trailer_byte(&mut self, byte: u8) -> Result<ChunkedState, BodyError> {
        self.count_line_byte()?;
        self.trailers.push(byte);
        match byte {
            b'\r' => Ok(ChunkedState::TrailerFeed),
            // Includes a bare line feed, which lenient parsers take for the end of the line (RFC 9112 §2.2).
            0..=8 | 10..=31 | 127 => Err(BodyError::Trailer),
            _ => Ok(ChunkedState::Trailer),
        }
    }

    /// Checks that the line that has just ended is a field line.
    fn check_trailer(&self) -> Result<(), BodyError> {
        let lines = &self.trailers[..self.trailers.len() - 2];
        let start = memchr::memrchr(b'\n', lines).map_or(0, |feed| feed + 1);
        let line = &lines[start..];
        let colon = memchr::memchr(b':', line).ok_or(BodyError::Trailer)?;
        // A name with whitespace before the colon is no token either (RFC 9112 §5.1).
        if crate::ascii::is_token(&line[..colon]) { Ok(()) } else { Err(BodyError::Trailer) }
    }
}

/// A chunk-size line.
#[derive(Debug, Clone, Copy)]
pub struct ChunkSizeLine {
    bytes: [u8; 18],
    start: u8,
}

impl ChunkSizeLine {
    /// Formats the line for a chunk of `size` bytes.
    pub fn new(size: usize) -> ChunkSizeLine {
        // 16 digits for 64 bits, and the line end.
        let mut bytes = [0u8; 18];
        bytes[16] = b'\r';
        bytes[17] = b'\n';
        let mut start = 16;
        let mut left = size;
        loop {
            start -= 1;
            bytes[start] = b"0123456789abcdef"[left & 15];
            left >>= 4;
            if left == 0 {
                break;
            }
        }
        ChunkSizeLine { bytes, start: start as u8 }
    }

    /// The line, with its CRLF.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start as usize..]
    }
}

#[cfg(test)]
mod tests;
