//! Where a body ends: how that is told on the side it is read from, and on the side it is written to.

use yumen_http::{BodyError, Chunked, Decoded, Framing};

use crate::buffer::Inbox;

/// How the rest of a body is told from what follows it.
pub(crate) enum Rest {
    Done,
    Length(u64),
    Chunked(Box<Chunked>),
    /// Up to the end of the connection, or of the stream of one.
    UntilClose,
    /// A stream has ended, with these trailers.
    Trailers(Vec<u8>),
}

/// How a sink is told where the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It knows, or the end of the connection says so.
    Known,
    /// By the last chunk.
    Chunk,
    /// By the end of its stream.
    Stream,
}

impl From<Framing> for Rest {
    fn from(framing: Framing) -> Rest {
        match framing {
            Framing::None | Framing::Length(0) => Rest::Done,
            Framing::Length(length) => Rest::Length(length),
            Framing::Chunked => Rest::Chunked(Box::default()),
            Framing::Close => Rest::UntilClose,
        }
    }
}

/// The data at the front of an inbox.
pub(crate) struct Piece {
    /// Decoded data, contiguous at the front of the inbox.
    pub(crate) data: usize,
    /// Framing bytes behind the data, already decoded.
    pub(crate) skip: usize,
}

impl Rest {
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Rest::Done | Rest::Trailers(_) => true,
            Rest::Chunked(chunked) => chunked.is_done(),
            Rest::Length(_) | Rest::UntilClose => false,
        }
    }

    /// Decodes all that is waiting. Data of several chunks is moved together, so that it leaves in one
    /// write.
    pub(crate) fn decode(&mut self, inbox: &mut Inbox) -> Result<Piece, BodyError> {
        match self {
            Rest::Done | Rest::Trailers(_) => Ok(Piece { data: 0, skip: 0 }),
            Rest::UntilClose => Ok(Piece { data: inbox.len(), skip: 0 }),
            Rest::Length(left) => {
                let data = (*left).min(inbox.len() as u64);
                *left -= data;
                if *left == 0 {
                    *self = Rest::Done;
                }
                Ok(Piece { data: data as usize, skip: 0 })
            }
            Rest::Chunked(chunked) => decode_chunks(chunked, inbox),
        }
    }

    pub(crate) fn trailers(&self) -> &[u8] {
        match self {
            Rest::Chunked(chunked) => chunked.trailers(),
            Rest::Trailers(trailers) => trailers,
            _ => &[],
        }
    }
}

fn decode_chunks(chunked: &mut Chunked, inbox: &mut Inbox) -> Result<Piece, BodyError> {
    let mut data = 0;
    let mut at = 0;
    loop {
        let decoded = match chunked.step(&inbox.bytes()[at..]) {
            // What came before goes on its way first. What is broken stays where it is and is found again.
            Err(_) if data > 0 => Decoded::NeedMore,
            decoded => decoded?,
        };
        match decoded {
            Decoded::Framing(count) if data == 0 => {
                inbox.consume(at + count);
                at = 0;
            }
            Decoded::Framing(count) => at += count,
            Decoded::Data(count) => {
                if at != data {
                    inbox.bytes_mut().copy_within(at..at + count, data);
                }
                data += count;
                at += count;
            }
            Decoded::NeedMore | Decoded::Done => return Ok(Piece { data, skip: at - data }),
        }
    }
}
