//! Where the frames of a stream of HTTP/3 begin and end (RFC 9114 §7.1), for what the library takes amiss of them.
//!
//! The library keeps a frame until all of it has come, unless it is one of data, and has no bound for that: here
//! is one. Pure: bytes in, bytes out. Reads types and lengths, and no payload.

use bytes::{Buf, Bytes, BytesMut};

/// Two integers of at most eight bytes each.
const HEADER_BYTES_MAX: usize = 16;
/// What a frame may hold that is neither data nor a field section. The longest holds settings, of which a handful
/// is known.
const FRAME_BYTES_MAX: u64 = 1024;

/// The type of a stream that carries a connection's settings (RFC 9114 §6.2.1).
const CONTROL: u64 = 0x0;

/// The frames of a stream as they come by.
///
/// Takes frames out that the library must not meet: those of data that hold none, which it takes for the end of the
/// body, and those of unknown types, which mean nothing (RFC 9114 §9). Known ones but data are handed on whole.
pub struct Frames {
    place: Place,
    /// The head has come, and then the trailers.
    sections: usize,
    /// The longest of those as it is encoded; `None` where there are none.
    section_bytes_max: Option<u64>,
}

enum Place {
    /// Within the type of a stream that only the client sends on.
    Type(Held),
    /// Before a frame, or within its header of which so many bytes were held back.
    Header(Held),
    /// Within a frame of data of which so much is still to come.
    Data { left: u64 },
    /// Within another frame that is handed on, and held back until it is whole.
    Gathering { frame: BytesMut, left: u64 },
    /// Within a frame that is taken out. Its header is kept: where the frame never ends, that tells the library.
    Ignoring { header: Held, left: u64 },
    /// In a stream whose bytes are no frames.
    Unframed,
    /// At a frame that is too long.
    Refused(TooLong),
}

#[derive(Clone, Copy, Default)]
struct Held {
    bytes: [u8; HEADER_BYTES_MAX],
    len: usize,
}

/// A frame is longer than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooLong {
    /// A head or trailers.
    #[error("a head or trailers of HTTP/3 are longer than allowed")]
    Section,
    /// Another: what follows concerns all of the connection.
    #[error("a frame of HTTP/3 is longer than allowed")]
    Frame,
}

/// How a stream ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// With these bytes of a frame that did not come whole, or with none.
    Told(Bytes),
    /// Within a frame of data.
    Cut,
}

impl Frames {
    /// Of a request, whose head and trailers may be so long, as they are encoded.
    pub fn of_request(section_bytes_max: u64) -> Frames {
        let place = Place::Header(Held::default());
        Frames { place, sections: 0, section_bytes_max: Some(section_bytes_max) }
    }

    /// Of a stream that only the client sends on. What it carries, its first bytes tell.
    pub fn one_way() -> Frames {
        Frames { place: Place::Type(Held::default()), sections: 0, section_bytes_max: None }
    }

    /// Takes from what came as much as can be handed on, which may be nothing though something is left.
    ///
    /// Fails at a frame that is too long, and then always.
    pub fn pass(&mut self, came: &mut Bytes) -> Result<Bytes, TooLong> {
        let mut at = 0;
        while at < came.len() {
            match &mut self.place {
                Place::Unframed => at = came.len(),
                Place::Type(held) => {
                    held.push(came[at]);
                    at += 1;
                    self.place = held.stream();
                }
                Place::Data { left } => {
                    at += take(left, came.len() - at);
                    if *left == 0 {
                        self.place = Place::default();
                    }
                }
                Place::Header(Held { len: 0, .. }) => match Header::read(&came[at..]) {
                    Some(header) if self.goes_on(&header, came.len() - at) => {
                        at += self.enter_going_on(&header)
                    }
                    // What stands before it goes first.
                    _ if at > 0 => break,
                    Some(header) => {
                        let held = Held::of(&came.split_to(header.len));
                        self.enter(&header, held)?;
                    }
                    None => self.place = Place::Header(Held::of(&came.split_to(came.len()))),
                },
                Place::Header(held) => {
                    held.push(came.get_u8());
                    let held = *held;
                    let Some(header) = Header::read(held.bytes()) else { continue };
                    if self.enter(&header, held)? {
                        return Ok(Bytes::copy_from_slice(held.bytes()));
                    }
                }
                Place::Gathering { frame, left } => {
                    let piece = take(left, came.len());
                    frame.extend_from_slice(&came.split_to(piece));
                    if *left == 0 {
                        let whole = std::mem::take(frame).freeze();
                        self.place = Place::default();
                        return Ok(whole);
                    }
                }
                Place::Ignoring { left, .. } => {
                    came.advance(take(left, came.len()));
                    if *left == 0 {
                        self.place = Place::default();
                    }
                }
                Place::Refused(why) => return Err(*why),
            }
        }
        Ok(came.split_to(at))
    }

    /// How the stream ended whose last bytes have come by. A cut stays one, however often it is asked for.
    pub fn end(&mut self) -> Ended {
        let rest = match &mut self.place {
            Place::Data { .. } => return Ended::Cut,
            // The library waits for the rest, and says itself what is wrong.
            Place::Gathering { frame, .. } => std::mem::take(frame).freeze(),
            Place::Header(held) | Place::Ignoring { header: held, .. } => {
                Bytes::copy_from_slice(held.bytes())
            }
            Place::Type(_) | Place::Unframed | Place::Refused(_) => return Ended::Told(Bytes::new()),
        };
        self.place = Place::default();
        Ended::Told(rest)
    }

    /// Whether a frame is handed on with what stands before it; `came` is how much there is of both.
    fn goes_on(&self, header: &Header, came: usize) -> bool {
        let is_whole = header.payload <= (came - header.len) as u64;
        match header.kind {
            Kind::Data => !self.drops(header),
            Kind::Section | Kind::Other => is_whole && self.judge(header).is_ok(),
            Kind::Unknown => false,
        }
    }

    /// Enters such a frame, and gives how much of it needs no further look.
    fn enter_going_on(&mut self, header: &Header) -> usize {
        self.sections += usize::from(header.kind == Kind::Section);
        if header.kind == Kind::Data {
            self.place = Place::of_data(header);
            return header.len;
        }
        header.len + usize::try_from(header.payload).unwrap_or(usize::MAX)
    }

    /// Enters a frame whose header was taken. Whether that is handed on now.
    fn enter(&mut self, header: &Header, held: Held) -> Result<bool, TooLong> {
        if let Err(why) = self.judge(header) {
            self.place = Place::Refused(why);
            return Err(why);
        }
        let is_whole = header.payload == 0;
        let is_handed_on = match header.kind {
            Kind::Data => !self.drops(header),
            Kind::Section | Kind::Other => is_whole,
            Kind::Unknown => false,
        };
        self.sections += usize::from(header.kind == Kind::Section);
        let left = header.payload;
        self.place = match header.kind {
            _ if is_whole => Place::default(),
            Kind::Data => Place::of_data(header),
            Kind::Section | Kind::Other => Place::Gathering { frame: held.bytes().into(), left },
            Kind::Unknown => Place::Ignoring { header: held, left },
        };
        Ok(is_handed_on)
    }

    /// Data has its place between the head and the trailers; anywhere else the library refuses it.
    fn drops(&self, header: &Header) -> bool {
        header.kind == Kind::Data && header.payload == 0 && self.sections == 1
    }

    fn judge(&self, header: &Header) -> Result<(), TooLong> {
        let (bytes_max, why) = match (header.kind, self.section_bytes_max) {
            (Kind::Data | Kind::Unknown, _) => return Ok(()),
            (Kind::Section, Some(bytes_max)) => (bytes_max, TooLong::Section),
            (Kind::Section | Kind::Other, _) => (FRAME_BYTES_MAX, TooLong::Frame),
        };
        if header.payload > bytes_max { Err(why) } else { Ok(()) }
    }
}

impl Default for Place {
    fn default() -> Place {
        Place::Header(Held::default())
    }
}

impl Place {
    fn of_data(header: &Header) -> Place {
        match header.payload {
            0 => Place::default(),
            left => Place::Data { left },
        }
    }
}

impl Held {
    /// Of no more bytes than a header has.
    fn of(bytes: &[u8]) -> Held {
        let mut held = Held { len: bytes.len(), ..Held::default() };
        held.bytes[..bytes.len()].copy_from_slice(bytes);
        held
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Where a stream is that began with these bytes.
    fn stream(self) -> Place {
        match integer(self.bytes()) {
            None => Place::Type(self),
            Some((CONTROL, _)) => Place::default(),
            Some(_) => Place::Unframed,
        }
    }
}

/// Takes from what is left as much as has come.
fn take(left: &mut u64, came: usize) -> usize {
    let taken = came.min(usize::try_from(*left).unwrap_or(usize::MAX));
    *left -= taken as u64;
    taken
}

struct Header {
    kind: Kind,
    payload: u64,
    /// Its own length.
    len: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Data,
    /// A head or trailers.
    Section,
    /// Another that the library reads, or refuses for what it is.
    Other,
    /// One that has no meaning here.
    Unknown,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Header> {
        let (kind, kind_len) = integer(bytes)?;
        let (payload, payload_len) = integer(&bytes[kind_len..])?;
        let kind = match kind {
            0x0 => Kind::Data,
            0x1 => Kind::Section,
            // CANCEL_PUSH to GOAWAY, MAX_PUSH_ID, and four of HTTP/2 (RFC 9114 §11.2.1).
            0x2..=0x9 | 0xd => Kind::Other,
            _ => Kind::Unknown,
        };
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
