//! Where the frames of a request stream of HTTP/3 begin and end (RFC 9114 §7.1), for what the library takes
//! amiss of them.
//!
//! Pure: bytes in, bytes out. Reads types and lengths, and no payload.

use bytes::{Buf, Bytes};

/// Two integers of at most eight bytes each.
const HEADER_BYTES_MAX: usize = 16;

const DATA: u64 = 0x0;
const HEADERS: u64 = 0x1;

/// The frames of a stream as they come by.
///
/// Takes frames of data out that hold none: the library takes them for the end of the body.
#[derive(Default)]
pub struct Frames {
    place: Place,
    /// The head has come, and then the trailers.
    sections: usize,
}

enum Place {
    /// Before a frame, or within its header of which so many bytes were held back.
    Header { held: [u8; HEADER_BYTES_MAX], len: usize },
    /// Within a frame of which so much is still to come.
    Payload { is_data: bool, left: u64 },
}

impl Default for Place {
    fn default() -> Place {
        Place::Header { held: [0; HEADER_BYTES_MAX], len: 0 }
    }
}

/// How a stream ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// With these bytes of a header that did not come whole, or with none.
    Told(Bytes),
    /// Within a frame of data.
    Cut,
}

impl Frames {
    /// Takes from what came as much as can be handed on, which may be nothing though something is left.
    pub fn pass(&mut self, came: &mut Bytes) -> Bytes {
        let mut at = 0;
        while at < came.len() {
            match &mut self.place {
                Place::Payload { left, .. } => {
                    let taken = (came.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= taken as u64;
                    at += taken;
                    if *left == 0 {
                        self.place = Place::default();
                    }
                }
                Place::Header { len: 0, .. } => match Header::read(&came[at..]) {
                    Some(header) if !self.drops(&header) => {
                        at += header.len;
                        self.enter(&header);
                    }
                    // What stands before it goes first.
                    _ if at > 0 => break,
                    Some(header) => came.advance(header.len),
                    None => self.hold(came),
                },
                Place::Header { held, len } => {
                    held[*len] = came.get_u8();
                    *len += 1;
                    let header = Header::read(&held[..*len]);
                    let Some(header) = header else { continue };
                    let bytes = Bytes::copy_from_slice(&held[..*len]);
                    let drops = self.drops(&header);
                    self.enter(&header);
                    if !drops {
                        return bytes;
                    }
                }
            }
        }
        came.split_to(at)
    }

    /// How the stream ended whose last bytes have come by. A cut stays one, however often it is asked for.
    pub fn end(&mut self) -> Ended {
        match &self.place {
            Place::Payload { is_data: true, .. } => Ended::Cut,
            // It has been waiting for the rest, and says itself what is wrong.
            Place::Payload { is_data: false, .. } => Ended::Told(Bytes::new()),
            Place::Header { held, len } => {
                let rest = Bytes::copy_from_slice(&held[..*len]);
                self.place = Place::default();
                Ended::Told(rest)
            }
        }
    }

    /// Data has its place between the head and the trailers; anywhere else the library refuses it.
    fn drops(&self, header: &Header) -> bool {
        header.kind == DATA && header.payload == 0 && self.sections == 1
    }

    fn enter(&mut self, header: &Header) {
        self.sections += usize::from(header.kind == HEADERS);
        self.place = match header.payload {
            0 => Place::default(),
            left => Place::Payload { is_data: header.kind == DATA, left },
        };
    }

    /// Holds back a header that is not whole.
    fn hold(&mut self, came: &mut Bytes) {
        let mut held = [0; HEADER_BYTES_MAX];
        let len = came.len();
        came.split_to(len).copy_to_slice(&mut held[..len]);
        self.place = Place::Header { held, len };
    }
}

struct Header {
    kind: u64,
    payload: u64,
    /// Its own length.
    len: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Header> {
        let (kind, kind_len) = integer(bytes)?;
        let (payload, payload_len) = integer(&bytes[kind_len..])?;
        Some(Header { kind, payload, len: kind_len + payload_len })
    }
}

/// An integer of variable length, and how long it is (RFC 9000 §16).
fn integer(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let len = 1 << (first >> 6);
    let rest = bytes.get(1..len)?;
    let value = rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, len))
}

#[cfg(test)]
mod tests;
