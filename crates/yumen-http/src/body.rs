//! Chunked bodies (RFC 9112 §7.1): decoding with strict framing, encoding of sizes.

/// Why a chunked body was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The size line is not hexadecimal digits.
    #[error("a chunk size is not a number")]
    Size,
    /// Data was not followed by CRLF.
    #[error("chunk data does not end at its size")]
    End,
    /// A size line or the trailers are longer than allowed.
    #[error("a chunk line is longer than allowed")]
    TooLong,
    /// A trailer line is malformed.
    #[error("a trailer line is malformed")]
    Trailer,
    /// The content is not in the coding that its head names.
    #[error("the content does not match its content coding")]
    Coding,
}

/// What one step of decoding gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkDecodeStep {
    /// So many bytes from the front of the input are body data.
    Data(usize),
    /// So many bytes from the front of the input were framing; step again with the rest.
    Framing(usize),
    /// The input holds nothing more to decode.
    NeedMore,
    /// The body has ended; nothing more belongs to it.
    Done,
}

/// Chunk extensions and trailers are bounded by this many bytes each.
const LINE_BYTES_MAX: u32 = 4096;
/// Chunk extensions of one body are bounded by this many bytes together: they are skipped, and a
/// peer must not keep the gateway skipping.
const EXTENSION_BYTES_MAX: u32 = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkedState {
    Size {
        digits: u8,
        size: u64,
    },
    /// Behind the digits only the space before an extension may follow.
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
    /// For good: what is read again from the middle of a line could mean something else.
    Broken(BodyError),
}

/// A decoder of one chunked body. Trailers are collected, extensions skipped.
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
    /// Whether the last chunk and its trailers were read.
    pub fn is_done(&self) -> bool {
        self.state == ChunkedState::Done
    }

    /// The trailer lines, each with its CRLF; complete once the body is done.
    pub fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Looks at the front of `input`. The caller drops what was framing or data before it steps on.
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
            (SizeSpace { size }, b';') => Extension { size },
            (SizeSpace { size }, b' ' | b'\t') => {
                self.count_line_byte()?;
                self.count_extension_byte()?;
                SizeSpace { size }
            }
            (SizeSpace { .. }, _) => return Err(BodyError::Size),
            (Size { .. }, _) => return Err(BodyError::Size),
            (Extension { size }, b'\r') => SizeFeed { size },
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
            0..=8 | 10..=31 | 127 => Err(BodyError::Trailer),
            _ => Ok(ChunkedState::Trailer),
        }
    }

    /// The line that just ended must be a field line.
    fn check_trailer(&self) -> Result<(), BodyError> {
        let lines = &self.trailers[..self.trailers.len() - 2];
        let start = memchr::memrchr(b'\n', lines).map_or(0, |feed| feed + 1);
        let line = &lines[start..];
        let colon = memchr::memchr(b':', line).ok_or(BodyError::Trailer)?;
        if crate::ascii::is_token(&line[..colon]) { Ok(()) } else { Err(BodyError::Trailer) }
    }
}

/// The size line of a chunk.
#[derive(Debug, Clone, Copy)]
pub struct ChunkSizeLine {
    bytes: [u8; 18],
    start: u8,
}

impl ChunkSizeLine {
    /// The line announcing a chunk of `size` bytes.
    pub fn new(size: usize) -> ChunkSizeLine {
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

    /// The line with its CRLF.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start as usize..]
    }
}

#[cfg(test)]
mod tests;
