//! Body framing: the decoder on the reading side and the encoding on the writing side (RFC 9112 §6.3).

use yumen_http::{BodyError, ChunkDecodeStep, ChunkedDecoder, Framing};

use crate::runtime::buffer::Inbox;

/// Decoder state of the rest of a body.
pub(crate) enum BodyDecoder {
    Done,
    Length(u64),
    Chunked(Box<ChunkedDecoder>),
    /// Up to the end of the connection or stream.
    UntilClose,
    /// A stream has ended with these trailers.
    Trailers(Vec<u8>),
}

/// Signal by which a sink recognizes the end of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyEncoding {
    /// `Content-Length` in the head, or the close of the connection.
    Known,
    /// The last chunk.
    Chunk,
    /// The end of the stream.
    Stream,
}

/// State of the writing side of an HTTP/2 or HTTP/3 stream, behind its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamWriteState {
    Open,
    /// The next write that is complete ends the stream, so that its last DATA frame carries the end.
    LastWrite,
    /// The stream was ended or reset.
    Finished,
}

impl StreamWriteState {
    /// Announces that the next write is the last one.
    pub(crate) fn expect_end(&mut self) {
        if *self == StreamWriteState::Open {
            *self = StreamWriteState::LastWrite;
        }
    }
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

/// Result of one decoding step.
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

    /// Decodes all buffered bytes. The data of several chunks is moved together, so that one write sends it.
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
            // Data ahead of a malformed chunk is delivered first. The error stays in the inbox, and the next
            // call returns it.
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
