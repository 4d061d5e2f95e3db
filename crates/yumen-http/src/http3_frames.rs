//! A filter for HTTP/3 frames (RFC 9114 §7.1) ahead of the `h3` library.
//!
//! The library buffers whole frames other than DATA without a limit; the filter enforces one. Reads frame
//! types and lengths, never payloads, and performs no I/O.

use bytes::{Buf, Bytes, BytesMut};

/// Two variable-length integers of at most 8 bytes each.
const HEADER_BYTES_MAX: usize = 16;
/// The longest frame other than DATA and HEADERS, in bytes. The longest in use is SETTINGS, with a few known
/// entries.
const FRAME_BYTES_MAX: u64 = 1024;

/// The stream type of a control stream (RFC 9114 §6.2.1).
const CONTROL: u64 = 0x0;

/// The frame filter of one stream.
///
/// Drops frames that the library mishandles: empty DATA frames, which it takes for the end of the body, and
/// frames of unknown types, which are to be ignored (RFC 9114 §9). Known frames other than DATA are passed on
/// only when complete.
pub struct Http3FrameFilter {
    position: Http3FramePosition,
    /// HEADERS frames received: the head, then the trailers.
    sections: usize,
    /// The longest encoded field section, in bytes; `None` if the stream has no field sections.
    section_bytes_max: Option<u64>,
}

enum Http3FramePosition {
    /// Within the stream type of a unidirectional stream.
    Type(PartialFrameHeader),
    /// Before a frame, or within its header, of which these bytes are held back.
    Header(PartialFrameHeader),
    /// Within a DATA frame with `left` bytes to come.
    Data { left: u64 },
    /// Within another known frame, held back until it is complete.
    Gathering { frame: BytesMut, left: u64 },
    /// Within a dropped frame. If it never ends, its header is passed on, so that the library detects the
    /// error.
    Ignoring { header: PartialFrameHeader, left: u64 },
    /// In a stream without frames.
    Unframed,
    /// At a frame that is too long.
    Refused(Http3FrameTooLong),
}

#[derive(Clone, Copy, Default)]
struct PartialFrameHeader {
    bytes: [u8; HEADER_BYTES_MAX],
    len: usize,
}

/// The frame exceeds its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Http3FrameTooLong {
    /// A head or trailers: a fault of the request.
    #[error("a head or trailers of HTTP/3 are longer than allowed")]
    Section,
    /// Another frame: a fault of the connection.
    #[error("a frame of HTTP/3 is longer than allowed")]
    Frame,
}

/// The way in which a stream ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Http3StreamEnd {
    /// Ended at a frame boundary, or with these bytes of an incomplete frame.
    Clean(Bytes),
    /// Ended within a DATA frame.
    Truncated,
}

impl Http3FrameFilter {
    /// The filter of a request stream. `section_bytes_max` limits each encoded field section, in bytes.
    pub fn of_request(section_bytes_max: u64) -> Http3FrameFilter {
        let position = Http3FramePosition::Header(PartialFrameHeader::default());
        Http3FrameFilter { position, sections: 0, section_bytes_max: Some(section_bytes_max) }
    }

    /// The filter of a unidirectional stream, whose first bytes are its type.
    pub fn one_way() -> Http3FrameFilter {
        Http3FrameFilter {
            position: Http3FramePosition::Type(PartialFrameHeader::default()),
            sections: 0,
            section_bytes_max: None,
        }
    }

    /// Returns the bytes of `input` that can be passed on, which may be none while input remains.
    ///
    /// Fails at a frame that is too long, and on every later call.
    pub fn pass(&mut self, input: &mut Bytes) -> Result<Bytes, Http3FrameTooLong> {
        let mut at = 0;
        while at < input.len() {
            match &mut self.position {
                // The streams of QPACK carry instructions instead of frames (RFC 9204 §4.2).
                Http3FramePosition::Unframed => at = input.len(),
                Http3FramePosition::Type(partial) => {
                    partial.push(input[at]);
                    at += 1;
                    self.position = partial.stream();
                }
                Http3FramePosition::Data { left } => {
                    at += take(left, input.len() - at);
                    if *left == 0 {
                        self.position = Http3FramePosition::default();
                    }
                }
                Http3FramePosition::Header(PartialFrameHeader { len: 0, .. }) => {
                    match Http3FrameHeader::read(&input[at..]) {
                        Some(header) if self.passes_on(&header, input.len() - at) => {
                            at += self.begin_forwarded_frame(&header)
                        }
                        // Frames before this one are passed on first.
                        _ if at > 0 => break,
                        Some(header) => {
                            let partial = PartialFrameHeader::of(&input.split_to(header.len));
                            self.enter(&header, partial)?;
                        }
                        None => {
                            self.position = Http3FramePosition::Header(PartialFrameHeader::of(
                                &input.split_to(input.len()),
                            ))
                        }
                    }
                }
                Http3FramePosition::Header(partial) => {
                    partial.push(input.get_u8());
                    let partial = *partial;
                    let Some(header) = Http3FrameHeader::read(partial.bytes()) else { continue };
                    if self.enter(&header, partial)? {
                        return Ok(Bytes::copy_from_slice(partial.bytes()));
                    }
                }
                Http3FramePosition::Gathering { frame, left } => {
                    let piece = take(left, input.len());
                    frame.extend_from_slice(&input.split_to(piece));
                    if *left == 0 {
                        let whole = std::mem::take(frame).freeze();
                        self.position = Http3FramePosition::default();
                        return Ok(whole);
                    }
                }
                Http3FramePosition::Ignoring { left, .. } => {
                    input.advance(take(left, input.len()));
                    if *left == 0 {
                        self.position = Http3FramePosition::default();
                    }
                }
                Http3FramePosition::Refused(why) => return Err(*why),
            }
        }
        Ok(input.split_to(at))
    }

    /// Returns how the stream ended. Repeated calls report a truncated stream again.
    pub fn end(&mut self) -> Http3StreamEnd {
        let rest = match &mut self.position {
            Http3FramePosition::Data { .. } => return Http3StreamEnd::Truncated,
            // The library detects the incomplete frame and reports the error.
            Http3FramePosition::Gathering { frame, .. } => std::mem::take(frame).freeze(),
            Http3FramePosition::Header(partial) | Http3FramePosition::Ignoring { header: partial, .. } => {
                Bytes::copy_from_slice(partial.bytes())
            }
            Http3FramePosition::Type(_) | Http3FramePosition::Unframed | Http3FramePosition::Refused(_) => {
                return Http3StreamEnd::Clean(Bytes::new());
            }
        };
        self.position = Http3FramePosition::default();
        Http3StreamEnd::Clean(rest)
    }

    /// Whether a frame is passed on together with those before it; `input` is the number of bytes from its
    /// start.
    fn passes_on(&self, header: &Http3FrameHeader, input: usize) -> bool {
        let is_whole = header.payload <= (input - header.len) as u64;
        match header.kind {
            Http3FrameKind::Data => !self.drops(header),
            Http3FrameKind::Section | Http3FrameKind::Other => is_whole && self.validate(header).is_ok(),
            Http3FrameKind::Unknown => false,
        }
    }

    /// Enters such a frame and returns the number of bytes to pass on unexamined.
    fn begin_forwarded_frame(&mut self, header: &Http3FrameHeader) -> usize {
        self.sections += usize::from(header.kind == Http3FrameKind::Section);
        if header.kind == Http3FrameKind::Data {
            self.position = Http3FramePosition::of_data(header);
            return header.len;
        }
        header.len + usize::try_from(header.payload).unwrap_or(usize::MAX)
    }

    /// Enters a frame whose header was consumed. Returns whether the header is passed on now.
    fn enter(
        &mut self,
        header: &Http3FrameHeader,
        partial: PartialFrameHeader,
    ) -> Result<bool, Http3FrameTooLong> {
        if let Err(why) = self.validate(header) {
            self.position = Http3FramePosition::Refused(why);
            return Err(why);
        }
        let is_whole = header.payload == 0;
        let is_handed_on = match header.kind {
            Http3FrameKind::Data => !self.drops(header),
            Http3FrameKind::Section | Http3FrameKind::Other => is_whole,
            Http3FrameKind::Unknown => false,
        };
        self.sections += usize::from(header.kind == Http3FrameKind::Section);
        let left = header.payload;
        self.position = match header.kind {
            _ if is_whole => Http3FramePosition::default(),
            Http3FrameKind::Data => Http3FramePosition::of_data(header),
            Http3FrameKind::Section | Http3FrameKind::Other => {
                Http3FramePosition::Gathering { frame: partial.bytes().into(), left }
            }
            Http3FrameKind::Unknown => Http3FramePosition::Ignoring { header: partial, left },
        };
        Ok(is_handed_on)
    }

    /// Whether an empty DATA frame is dropped. Outside the body the library must see it, as an error.
    fn drops(&self, header: &Http3FrameHeader) -> bool {
        header.kind == Http3FrameKind::Data && header.payload == 0 && self.sections == 1
    }

    fn validate(&self, header: &Http3FrameHeader) -> Result<(), Http3FrameTooLong> {
        let (bytes_max, why) = match (header.kind, self.section_bytes_max) {
            // DATA is streamed and frames of unknown types are dropped, so neither is buffered.
            (Http3FrameKind::Data | Http3FrameKind::Unknown, _) => return Ok(()),
            (Http3FrameKind::Section, Some(bytes_max)) => (bytes_max, Http3FrameTooLong::Section),
            (Http3FrameKind::Section | Http3FrameKind::Other, _) => {
                (FRAME_BYTES_MAX, Http3FrameTooLong::Frame)
            }
        };
        if header.payload > bytes_max { Err(why) } else { Ok(()) }
    }
}

impl Default for Http3FramePosition {
    fn default() -> Http3FramePosition {
        Http3FramePosition::Header(PartialFrameHeader::default())
    }
}

impl Http3FramePosition {
    fn of_data(header: &Http3FrameHeader) -> Http3FramePosition {
        match header.payload {
            0 => Http3FramePosition::default(),
            left => Http3FramePosition::Data { left },
        }
    }
}

impl PartialFrameHeader {
    /// A header of at most [`HEADER_BYTES_MAX`] bytes.
    fn of(bytes: &[u8]) -> PartialFrameHeader {
        let mut partial = PartialFrameHeader { len: bytes.len(), ..PartialFrameHeader::default() };
        partial.bytes[..bytes.len()].copy_from_slice(bytes);
        partial
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The position in a stream of the type with these bytes.
    fn stream(self) -> Http3FramePosition {
        match integer(self.bytes()) {
            None => Http3FramePosition::Type(self),
            Some((CONTROL, _)) => Http3FramePosition::default(),
            Some(_) => Http3FramePosition::Unframed,
        }
    }
}

/// Consumes available bytes from `left` and returns their number.
fn take(left: &mut u64, input: usize) -> usize {
    let taken = input.min(usize::try_from(*left).unwrap_or(usize::MAX));
    *left -= taken as u64;
    taken
}

struct Http3FrameHeader {
    kind: Http3FrameKind,
    payload: u64,
    /// Length of the header itself, in bytes.
    len: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Http3FrameKind {
    Data,
    /// HEADERS: a head or trailers.
    Section,
    /// Another type that the library reads, or rejects by its type.
    Other,
    /// A type without meaning here.
    Unknown,
}

impl Http3FrameHeader {
    fn read(bytes: &[u8]) -> Option<Http3FrameHeader> {
        let (kind, kind_len) = integer(bytes)?;
        let (payload, payload_len) = integer(&bytes[kind_len..])?;
        let kind = match kind {
            0x0 => Http3FrameKind::Data,
            0x1 => Http3FrameKind::Section,
            // CANCEL_PUSH to GOAWAY, MAX_PUSH_ID, and four reserved types of HTTP/2 (RFC 9114 §11.2.1).
            0x2..=0x9 | 0xd => Http3FrameKind::Other,
            _ => Http3FrameKind::Unknown,
        };
        Some(Http3FrameHeader { kind, payload, len: kind_len + payload_len })
    }
}

/// Reads a variable-length integer; returns its value and length (RFC 9000 §16).
fn integer(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let len = 1 << (first >> 6);
    let rest = bytes.get(1..len)?;
    let value = rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, len))
}

#[cfg(test)]
mod tests;
