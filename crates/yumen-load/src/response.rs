//! HTTP/1 response parser for the generator: end of the response, status, and persistence of the connection.
//! Independent of sockets. Invalid input is a `MalformedResponse`; the parser never guesses.

use memchr::{memchr, memmem};

/// Maximum size of a head in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Reason why bytes are not a valid response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MalformedResponse {
    #[error("the status line is not one of HTTP/1")]
    StatusLine,
    #[error("the head is longer than {HEAD_BYTES_MAX} bytes")]
    HeadTooLong,
    #[error("Content-Length is not one number")]
    ContentLength,
    #[error("the chunked body is broken")]
    Chunk,
    #[error("bytes came after the response")]
    Surplus,
    #[error("the protocol was switched without being asked to")]
    Switched,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseState {
    Head,
    Sized(u64),
    Chunked(ChunkState),
    UntilClose,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkState {
    /// In the hexadecimal size, with the number of digits so far.
    Size {
        size: u64,
        digits: u8,
    },
    /// After the size, before the end of its line.
    Extension(u64),
    Data(u64),
    /// At the line end after the data.
    DataEnd,
    /// In a line of the trailer section; whether the line is empty so far.
    Trailer {
        empty: bool,
    },
}

/// Parses successive responses from arbitrarily split input.
#[derive(Debug)]
pub(crate) struct ResponseReader {
    state: ResponseState,
    /// Beginning of a head that arrived in several chunks.
    head: Vec<u8>,
    /// Whether the request was HEAD: its response has no body.
    bodiless: bool,
    status: u16,
    keep_alive: bool,
}

impl ResponseReader {
    pub(crate) fn new(head_request: bool) -> Self {
        Self {
            state: ResponseState::Head,
            head: Vec::new(),
            bodiless: head_request,
            status: 0,
            keep_alive: true,
        }
    }

    /// Prepares for the next response.
    pub(crate) fn restart(&mut self) {
        self.state = ResponseState::Head;
        self.head.clear();
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == ResponseState::Done
    }

    /// Status of the last response.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Whether the connection may carry another request.
    pub(crate) fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Parses a chunk. Bytes beyond the end of the response are malformed.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), MalformedResponse> {
        while !bytes.is_empty() {
            let taken = match &mut self.state {
                // Without pipelining, no byte may follow; it would count for the next response.
                ResponseState::Done => return Err(MalformedResponse::Surplus),
                ResponseState::Head => self.feed_head(bytes)?,
                ResponseState::Sized(left) => {
                    let taken = (*left).min(bytes.len() as u64);
                    *left -= taken;
                    if *left == 0 {
                        self.state = ResponseState::Done;
                    }
                    taken as usize
                }
                ResponseState::UntilClose => bytes.len(),
                ResponseState::Chunked(chunk) => {
                    let (taken, next) = chunk.feed(bytes)?;
                    self.state = next.map_or(ResponseState::Done, ResponseState::Chunked);
                    taken
                }
            };
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Handles the end of the connection; returns whether the response is complete.
    pub(crate) fn finish(&mut self) -> bool {
        // Such a body ends with the connection (RFC 9112 §6.3); any other state means that it is cut off.
        if self.state == ResponseState::UntilClose {
            self.state = ResponseState::Done;
            self.keep_alive = false;
        }
        self.is_done()
    }

    fn feed_head(&mut self, bytes: &[u8]) -> Result<usize, MalformedResponse> {
        // A whole head in one read is the usual case and needs no copy.
        if self.head.is_empty()
            && let Some(end) = memmem::find(bytes, b"\r\n\r\n")
        {
            self.read_head(&bytes[..end + 2])?;
            return Ok(end + 4);
        }
        let before = self.head.len();
        self.head.extend_from_slice(bytes);
        // The end of the head may be split between two reads.
        let Some(end) = memmem::find(&self.head[before.saturating_sub(3)..], b"\r\n\r\n") else {
            // Checked only without an end, so that the bound limits the buffer.
            if self.head.len() > HEAD_BYTES_MAX {
                return Err(MalformedResponse::HeadTooLong);
            }
            self.check_beginning()?;
            return Ok(bytes.len());
        };
        let end = before.saturating_sub(3) + end;
        let head = std::mem::take(&mut self.head);
        self.read_head(&head[..end + 2])?;
        // The buffer is kept for the next response.
        self.head = head;
        self.head.clear();
        Ok(end + 4 - before)
    }

    /// Rejects input that is not HTTP at its first bytes, instead of at a timeout.
    fn check_beginning(&self) -> Result<(), MalformedResponse> {
        let expected = b"HTTP/1.";
        let length = self.head.len().min(expected.len());
        if self.head[..length] == expected[..length] { Ok(()) } else { Err(MalformedResponse::StatusLine) }
    }

    /// Parses a head with its last line end and without the empty line.
    fn read_head(&mut self, head: &[u8]) -> Result<(), MalformedResponse> {
        if head.len() > HEAD_BYTES_MAX {
            return Err(MalformedResponse::HeadTooLong);
        }
        let end = memchr(b'\n', head).ok_or(MalformedResponse::StatusLine)?;
        let (status, minor) = status_line(&head[..end])?;
        let fields = FramingFields::read(&head[end + 1..])?;
        // The final response follows an interim one (RFC 9110 §15.2).
        if status < 200 {
            return if status == 101 { Err(MalformedResponse::Switched) } else { Ok(()) };
        }
        self.status = status;
        // HTTP/1.0 closes by default, HTTP/1.1 persists (RFC 9112 §9.3).
        self.keep_alive = if minor == 0 { fields.keep_alive } else { !fields.close };
        let empty = self.bodiless || status == 204 || status == 304;
        // RFC 9112 §6.3: no body after HEAD, 204 or 304; Transfer-Encoding overrides Content-Length; a
        // response without either ends with the connection.
        self.state = match fields {
            _ if empty => ResponseState::Done,
            FramingFields { coding: TransferCoding::Chunked, .. } => {
                ResponseState::Chunked(ChunkState::START)
            }
            FramingFields { coding: TransferCoding::Other, .. } => ResponseState::UntilClose,
            // No byte will come to end the state `Sized`.
            FramingFields { length: Some(0), .. } => ResponseState::Done,
            FramingFields { length: Some(length), .. } => ResponseState::Sized(length),
            _ => ResponseState::UntilClose,
        };
        // The close is the end of the body.
        self.keep_alive &= self.state != ResponseState::UntilClose;
        Ok(())
    }
}

fn status_line(line: &[u8]) -> Result<(u16, u8), MalformedResponse> {
    let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9', b' ', a, b, c, rest @ ..] = line
    else {
        return Err(MalformedResponse::StatusLine);
    };
    let digits = [a, b, c].map(|digit| digit.wrapping_sub(b'0'));
    // The reason phrase may be absent (RFC 9112 §4); a missing space before it is tolerated.
    let ends = matches!(rest, [] | [b' ' | b'\r', ..]);
    if digits.iter().any(|digit| *digit > 9) || digits[0] == 0 || !ends {
        return Err(MalformedResponse::StatusLine);
    }
    let status = digits.iter().fold(0, |status, digit| status * 10 + u16::from(*digit));
    Ok((status, minor - b'0'))
}

/// The last transfer coding of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TransferCoding {
    #[default]
    None,
    Chunked,
    /// A coding without its own end: the body ends with the connection (RFC 9112 §6.3).
    Other,
}

/// Fields that decide framing and persistence of a response.
#[derive(Default)]
pub(crate) struct FramingFields {
    pub(crate) length: Option<u64>,
    pub(crate) coding: TransferCoding,
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
}

impl FramingFields {
    /// Parses the field lines after the status line.
    pub(crate) fn read(mut lines: &[u8]) -> Result<Self, MalformedResponse> {
        let mut fields = Self::default();
        while let Some(end) = memchr(b'\n', lines) {
            let line = &lines[..end];
            lines = &lines[end + 1..];
            // Only names with these initials matter, so most lines are skipped at the first byte.
            if !matches!(line.first(), Some(b'c' | b'C' | b't' | b'T')) {
                continue;
            }
            let Some(colon) = memchr(b':', line) else { continue };
            let value = line[colon + 1..].trim_ascii();
            match &line[..colon] {
                name if name.eq_ignore_ascii_case(b"content-length") => fields.add_length(value)?,
                name if name.eq_ignore_ascii_case(b"connection") => fields.add_connection(value),
                name if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                    // Only the last coding decides the framing (RFC 9112 §6.3).
                    fields.coding = match last_token(value).eq_ignore_ascii_case(b"chunked") {
                        true => TransferCoding::Chunked,
                        false => TransferCoding::Other,
                    };
                }
                _ => {}
            }
        }
        Ok(fields)
    }

    fn add_length(&mut self, value: &[u8]) -> Result<(), MalformedResponse> {
        // `parse` would accept `+1`.
        let digits = std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
        let length = digits.and_then(|text| text.parse().ok()).ok_or(MalformedResponse::ContentLength)?;
        // Equal repeated values are valid (RFC 9110 §8.6).
        if self.length.is_some_and(|before| before != length) {
            return Err(MalformedResponse::ContentLength);
        }
        self.length = Some(length);
        Ok(())
    }

    fn add_connection(&mut self, value: &[u8]) {
        for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            // Several field lines form one list (RFC 9110 §5.3).
            self.close |= token.eq_ignore_ascii_case(b"close");
            self.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
        }
    }
}

fn last_token(value: &[u8]) -> &[u8] {
    value.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii()
}

impl ChunkState {
    pub(crate) const START: Self = Self::Size { size: 0, digits: 0 };

    /// Bytes consumed, and the next state; `None` at the end of the body.
    pub(crate) fn feed(self, bytes: &[u8]) -> Result<(usize, Option<Self>), MalformedResponse> {
        let byte = bytes[0];
        let next = match self {
            Self::Data(left) => {
                let taken = left.min(bytes.len() as u64);
                let rest = left - taken;
                let next = if rest == 0 { Self::DataEnd } else { Self::Data(rest) };
                return Ok((taken as usize, Some(next)));
            }
            Self::Size { size, digits } => match (byte as char).to_digit(16) {
                // Sixteen digits fill 64 bits.
                Some(digit) if digits < 16 => {
                    Self::Size { size: size << 4 | u64::from(digit), digits: digits + 1 }
                }
                None if digits > 0 && matches!(byte, b';' | b' ' | b'\t' | b'\r') => Self::Extension(size),
                None if digits > 0 && byte == b'\n' => Self::after_size(size),
                _ => return Err(MalformedResponse::Chunk),
            },
            Self::Extension(size) if byte == b'\n' => Self::after_size(size),
            Self::Extension(size) => Self::Extension(size),
            // A bare LF is tolerated here as in the head (RFC 9112 §2.2).
            Self::DataEnd if byte == b'\r' => Self::DataEnd,
            Self::DataEnd if byte == b'\n' => Self::START,
            Self::DataEnd => return Err(MalformedResponse::Chunk),
            Self::Trailer { empty: true } if byte == b'\n' => return Ok((1, None)),
            Self::Trailer { empty } => Self::Trailer { empty: byte == b'\n' || (empty && byte == b'\r') },
        };
        Ok((1, Some(next)))
    }

    fn after_size(size: u64) -> Self {
        if size == 0 { Self::Trailer { empty: true } } else { Self::Data(size) }
    }
}

#[cfg(test)]
mod tests;
