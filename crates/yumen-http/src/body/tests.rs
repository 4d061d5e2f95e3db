//! Chunked bodies split at every position: data, trailers and errors do not depend on the split.

use proptest::prelude::*;

use super::{BodyError, ChunkDecodeStep, ChunkSizeLine, ChunkedDecoder};

#[derive(Debug, PartialEq)]
struct Read {
    data: Vec<u8>,
    trailers: Vec<u8>,
    used: usize,
    is_done: bool,
}

/// Decodes chunks of input one after another, retaining unread bytes as a connection does.
fn decode(pieces: &[&[u8]]) -> Result<Read, BodyError> {
    let mut chunked = ChunkedDecoder::default();
    let (mut data, mut used) = (Vec::new(), 0);
    let mut pending: Vec<u8> = Vec::new();
    for piece in pieces {
        pending.extend_from_slice(piece);
        loop {
            match chunked.step(&pending)? {
                ChunkDecodeStep::Data(taken) => {
                    data.extend(pending.drain(..taken));
                    used += taken;
                }
                ChunkDecodeStep::Framing(taken) => {
                    pending.drain(..taken);
                    used += taken;
                }
                ChunkDecodeStep::NeedMore => {
                    assert!(pending.is_empty());
                    break;
                }
                ChunkDecodeStep::Done => break,
            }
        }
    }
    Ok(Read { data, trailers: chunked.trailers().to_vec(), used, is_done: chunked.is_done() })
}

fn at_every_split(input: &[u8]) -> Result<Read, BodyError> {
    let whole = decode(&[input]);
    for split in 0..=input.len() {
        assert_eq!(decode(&[&input[..split], &input[split..]]), whole, "split at {split}");
    }
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(decode(&bytes), whole, "byte by byte");
    whole
}

fn check(input: &str, data: &str, trailers: &str, rest: &str) {
    let read = at_every_split(input.as_bytes()).unwrap_or_else(|error| panic!("{input:?}: {error}"));
    assert_eq!(String::from_utf8_lossy(&read.data), data, "{input:?}");
    assert_eq!(String::from_utf8_lossy(&read.trailers), trailers, "{input:?}");
    assert_eq!(&input[read.used..], rest, "{input:?}");
    assert!(read.is_done, "{input:?}");
}

#[test]
fn bodies_end_where_their_chunks_say() {
    check("0\r\n\r\n", "", "", "");
    check("5\r\nhello\r\n0\r\n\r\n", "hello", "", "");
    check("1\r\na\r\nA\r\n0123456789\r\n000\r\n\r\nGET /", "a0123456789", "", "GET /");
    check("4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n", "", "");
    check("f\r\n0\r\n\r\n0123456789\r\n0\r\n\r\n", "0\r\n\r\n0123456789", "", "");
}

#[test]
fn extensions_are_skipped_and_trailers_kept() {
    check("1;a=b;c=\"d e\"\r\nx\r\n0;last\r\n\r\n", "x", "", "");
    check("1 \r\nx\r\n0\t;a\r\n\r\n", "x", "", "");
    check("0\r\nA: 1\r\nB:\r\n\r\nrest", "", "A: 1\r\nB:\r\n", "rest");
}

fn check_refused(input: &str, expected: BodyError) {
    assert_eq!(at_every_split(input.as_bytes()), Err(expected), "{input:?}");
}

#[test]
fn sizes_that_could_be_read_two_ways_are_refused() {
    for size in ["\r\n", "+5\r\n", "-1\r\n", "0x5\r\n", " 5\r\n", "5,5\r\n", "g\r\n", "5\n", "5\r5", ";a\r\n"]
    {
        check_refused(size, BodyError::Size);
    }
    for size in
        ["5;a\nhello", "5;a\r\rhello", "5;\0\r\n", "5;\x7f\r\n", "5 5\r\nhello", "5 x\r\nhello", "5\t\n"]
    {
        check_refused(size, BodyError::Size);
    }
    check_refused("0000000000000001\r\n", BodyError::TooLong);
    check_refused("ffffffffffffffff\r\n", BodyError::TooLong);
    let read = at_every_split(b"fffffffffffffff\r\nabc").unwrap();
    assert_eq!((read.data, read.is_done), (b"abc".to_vec(), false));
}

#[test]
fn chunks_that_are_longer_or_shorter_than_their_size_are_refused() {
    for chunk in ["3\r\nabcd\r\n", "3\r\nabc\n", "3\r\nabc0\r\n", "3\r\nab\r\n0\r\n\r\n", "3\r\nabc\rx"] {
        check_refused(chunk, BodyError::End);
    }
}

#[test]
fn trailers_are_field_lines() {
    for trailer in
        ["nocolon", ": x", " a: b", "a : b", "a: b\nc: d", "a: \0", "a: b\rc", "\x0b: x", "a: b\x7f"]
    {
        check_refused(&format!("0\r\n{trailer}\r\n\r\n"), BodyError::Trailer);
    }
    check_refused("0\r\n\n", BodyError::Trailer);
    check_refused("0\r\n\r\r", BodyError::Trailer);
}

#[test]
fn lines_are_bounded() {
    let extension = |len| format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(len));
    assert!(decode(&[extension(4096).as_bytes()]).is_ok());
    assert_eq!(decode(&[extension(4097).as_bytes()]), Err(BodyError::TooLong));
    let trailers = "a: 1234567\r\n".repeat(400);
    let input = format!("0\r\n{trailers}\r\n");
    assert_eq!(decode(&[input.as_bytes()]), Err(BodyError::TooLong));
}

#[test]
fn extensions_are_bounded_over_the_whole_body() {
    let body = |chunks: usize, len: usize| {
        format!("{}0\r\n\r\n", format!("1;{}\r\nx\r\n", "a".repeat(len)).repeat(chunks))
    };
    assert!(decode(&[body(16, 4095).as_bytes()]).is_ok());
    assert_eq!(decode(&[body(17, 4095).as_bytes()]), Err(BodyError::TooLong));
    let spaced = format!("{}0\r\n\r\n", "1 \r\nx\r\n".repeat(70_000));
    assert_eq!(decode(&[spaced.as_bytes()]), Err(BodyError::TooLong));
    assert!(decode(&[body(70_000, 0).replace(';', "").as_bytes()]).is_ok());
}

#[test]
fn a_body_cut_off_is_not_done() {
    let input = b"5\r\nhello\r\n0\r\nA: b\r\n\r\n";
    for cut in 0..input.len() {
        assert!(!decode(&[&input[..cut]]).unwrap().is_done, "cut at {cut}");
    }
}

#[test]
fn encoded_size_lines_are_decoded() {
    for (size, line) in [(0, "0\r\n"), (9, "9\r\n"), (255, "ff\r\n"), (4096, "1000\r\n")] {
        assert_eq!(ChunkSizeLine::new(size).as_bytes(), line.as_bytes());
    }
    assert_eq!(ChunkSizeLine::new(usize::MAX).as_bytes(), b"ffffffffffffffff\r\n");
}

proptest! {
    #[test]
    fn encoded_bodies_are_decoded(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6)) {
        let mut encoded = Vec::new();
        for chunk in &chunks {
            encoded.extend_from_slice(ChunkSizeLine::new(chunk.len()).as_bytes());
            encoded.extend_from_slice(chunk);
            encoded.extend_from_slice(b"\r\n");
        }
        encoded.extend_from_slice(b"0\r\n\r\n");
        let read = at_every_split(&encoded).unwrap();
        prop_assert!(read.is_done);
        prop_assert_eq!(read.data, chunks.concat());
        prop_assert_eq!(read.used, encoded.len());
    }

    #[test]
    fn any_bytes_have_one_verdict(input in "[0-9a-f]{0,2}[;\r\n \\x00-\\x7f]{0,24}") {
        let _ = at_every_split(input.as_bytes());
    }
}

#[test]
fn broken_body_stays_broken() {
    let mut chunked = ChunkedDecoder::default();
    assert_eq!(chunked.step(b"1\r\na\r\n"), Ok(ChunkDecodeStep::Framing(3)));
    assert_eq!(chunked.step(b"a\r\n"), Ok(ChunkDecodeStep::Data(1)));
    assert_eq!(chunked.step(b"\r\n5z"), Err(BodyError::Size));
    // From the position of the error, the rest would parse as a chunk of five bytes.
    assert_eq!(chunked.step(b"\r\n5z"), Err(BodyError::Size));
}
