//! Where a body ends: how that is told on the side it is read from, and on the side it is written to.

use yumen_http::{BodyError, ChunkDecodeStep, ChunkedDecoder, Framing};

use crate::buffer::Inbox;

/// How the rest of a body is told from what follows it.
pub(crate) enum BodyDecoder {
    Done,
    Length(u64),
    Chunked(Box<ChunkedDecoder>),
    /// Up to the end of the connection, or of the stream of one.
    UntilClose,
    /// A stream has ended, with these trailers.
    Trailers(Vec<u8>),
}

/// How a sink is told where the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyEncoding {
    /// It knows, or the end of the connection says so.
    Known,
    /// By the last chunk.
    Chunk,
    /// By the end of its stream.
    Stream,
}

impl From<Framing> for BodyDecoder {
    fn from(framing: Framing) -> BodyDecoder {
        match framing {
            Framing::None | Framing::Length(0) => BodyDecoder::Done,
            Framing::Length(length) => BodyDecoder::Length(length),
            Framing::Chunked => BodyDecoder::Chunked(Box::default()),
            Framing::Close => BodyDecoder::UntilClose,
        }
    }
}

/// The data at the front of an inbox.
pub(crate) struct BodySlice {
    /// Decoded data, contiguous at the front of the inbox.
    pub(crate) data: usize,
    /// Framing bytes behind the data, already decoded.
    pub(crate) skip: usize,
}

impl BodyDecoder {
    pub(crate) fn is_done(&self) -> bool {
        match self {
            BodyDecoder::Done | BodyDecoder::Trailers(_) => true,
            BodyDecoder::Chunked(chunked) => chunked.is_done(),
            BodyDecoder::Length(_) | BodyDecoder::UntilClose => false,
        }
    }

    /// Decodes all that is waiting. Data of several chunks is moved together, so that it leaves in one
    /// write.
    pub(crate) fn decode(&mut self, inbox: &mut Inbox) -> Result<BodySlice, BodyError> {
        match self {
            BodyDecoder::Done | BodyDecoder::Trailers(_) => Ok(BodySlice { data: 0, skip: 0 }),
            BodyDecoder::UntilClose => Ok(BodySlice { data: inbox.len(), skip: 0 }),
            BodyDecoder::Length(left) => {
                let data = (*left).min(inbox.len() as u64);
                *left -= data;
                if *left == 0 {
                    *self = BodyDecoder::Done;
                }
                Ok(BodySlice { data: data as usize, skip: 0 })
            }
            BodyDecoder::Chunked(chunked) => decode_chunks(chunked, inbox),
        }
    }

    pub(crate) fn trailers(&self) -> &[u8] {
        match self {
            BodyDecoder::Chunked(chunked) => chunked.trailers(),
            BodyDecoder::Trailers(trailers) => trailers,
            _ => &[],
        }
    }
}

fn decode_chunks(chunked: &mut ChunkedDecoder, inbox: &mut Inbox) -> Result<BodySlice, BodyError> {
    let mut data = 0;
    let mut at = 0;
    loop {
        let decoded = match chunked.step(&inbox.bytes()[at..]) {
            // What came before goes on its way first. What is broken stays where it is and is found again.
            Err(_) if data > 0 => ChunkDecodeStep::NeedMore,
            decoded => decoded?,
        };
        match decoded {
            ChunkDecodeStep::Framing(count) if data == 0 => {
                inbox.consume(at + count);
                at = 0;
            }
            ChunkDecodeStep::Framing(count) => at += count,
            ChunkDecodeStep::Data(count) => {
                if at != data {
                    inbox.bytes_mut().copy_within(at..at + count, data);
                }
                data += count;
                at += count;
            }
            ChunkDecodeStep::NeedMore | ChunkDecodeStep::Done => {
                return Ok(BodySlice { data, skip: at - data });
            }
        }
    }
}
