//! Chunked bodies: data, trailers and verdict are the same in one piece and byte by byte.

#![no_main]

use libfuzzer_sys::fuzz_target;
use yumen_http::{BodyError, ChunkedDecoder, ChunkDecodeStep};

/// Data, trailers, consumed bytes, and whether the body is complete.
type Read = Result<(Vec<u8>, Vec<u8>, usize, bool), BodyError>;

fn decode(input: &[u8], piece: usize) -> Read {
    let mut chunked = ChunkedDecoder::default();
    let mut data = Vec::new();
    let mut used = 0;
    let mut received = 0;
    loop {
        match chunked.step(&input[used..received])? {
            ChunkDecodeStep::Data(taken) => {
                data.extend_from_slice(&input[used..used + taken]);
                used += taken;
            }
            ChunkDecodeStep::Framing(taken) => used += taken,
            ChunkDecodeStep::NeedMore if received == input.len() => break,
            ChunkDecodeStep::NeedMore => received = (received + piece).min(input.len()),
            ChunkDecodeStep::Done => break,
        }
    }
    let is_done = chunked.is_done();
    Ok((data, chunked.trailers().to_vec(), used, is_done))
}

fuzz_target!(|input: &[u8]| {
    let whole = decode(input, input.len().max(1));
    assert_eq!(whole, decode(input, 1));
    assert_eq!(whole, decode(input, 7));
});
