//! The bytes of a frame, in both encodings and from both sources of data.

use super::*;

fn text(frame: &BodyFrame, inbox: &Inbox) -> String {
    let slices = frame.slices(inbox);
    slices.iter().map(|slice| str::from_utf8(slice).unwrap()).collect()
}

/// Checks the bytes of a frame behind `prefix`, and that writing them consumes `framed` with its framing.
fn check(encoding: BodyEncoding, prefix: &str, framed: &str, rest: BodyRest, expected: &str) {
    let (buffers, skipped) = (Buffers::default(), "\r\n");
    let mut inbox = Inbox::default();
    let received = [framed, skipped, "next"].concat();
    inbox.room(&buffers)[..received.len()].copy_from_slice(received.as_bytes());
    inbox.filled(received.len());
    let mut frame = BodyFrame::new(encoding, prefix.into());
    let slice = BodySlice { data: framed.len(), skip: skipped.len() };
    frame.put_received(&mut inbox, slice, rest);
    assert_eq!(text(&frame, &inbox), expected);
    // Two writes, split within the frame.
    let first = frame.advance(&mut inbox, expected.len() / 2);
    assert_eq!(frame.is_flushed(), expected.is_empty());
    frame.advance(&mut inbox, expected.len() - first);
    assert!(frame.is_flushed());
    assert_eq!(inbox.bytes(), b"next");
    frame.put_data(framed.as_bytes(), rest);
    let without_prefix = expected.strip_prefix(prefix).unwrap();
    assert_eq!(text(&frame, &inbox), without_prefix);
}

#[test]
fn a_frame_has_the_framing_of_its_encoding() {
    for prefix in ["", "HTTP/1.1 200 OK\r\n\r\n"] {
        for (framed, rest, chunked) in [
            ("", BodyRest::Data, ""),
            ("", BodyRest::Trailers, "0\r\n"),
            ("", BodyRest::Nothing, "0\r\n\r\n"),
            ("data", BodyRest::Data, "4\r\ndata\r\n"),
            ("data", BodyRest::Trailers, "4\r\ndata\r\n0\r\n"),
            ("data", BodyRest::Nothing, "4\r\ndata\r\n0\r\n\r\n"),
        ] {
            check(BodyEncoding::Chunk, prefix, framed, rest, &[prefix, chunked].concat());
            check(BodyEncoding::Known, prefix, framed, rest, &[prefix, framed].concat());
        }
    }
}

#[test]
fn long_data_stays_in_the_inbox() {
    let data = "x".repeat(JOINED_BYTES_MAX + 1);
    let expected = format!("head{data}");
    check(BodyEncoding::Known, "head", &data, BodyRest::Nothing, &expected);
}
