//! HTTP/3 frames: the output is the same in one piece and in parts, and only lacks empty DATA frames and
//! frames of unknown types.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use yumen_http::http3_frames::{Http3StreamEnd, Http3FrameFilter, Http3FrameTooLong};

/// Small, so that inputs often exceed it.
const SECTION_BYTES_MAX: u64 = 40;

#[derive(Debug, PartialEq)]
enum End {
    Told,
    /// Truncated within a DATA frame.
    Cut,
    Refused(Http3FrameTooLong),
}

/// The output, and the end of the stream.
fn handed_on(mut frames: Http3FrameFilter, input: &[u8], piece: usize) -> (Vec<u8>, End) {
    let mut out = Vec::new();
    for piece in input.chunks(piece) {
        let mut input = Bytes::copy_from_slice(piece);
        while !input.is_empty() {
            let left = input.len();
            match frames.pass(&mut input) {
                Ok(passed) => out.extend_from_slice(&passed),
                Err(why) => return (out, End::Refused(why)),
            }
            assert!(input.len() < left, "it takes something each time");
        }
    }
    match frames.end() {
        Http3StreamEnd::Clean(rest) => out.extend_from_slice(&rest),
        Http3StreamEnd::Truncated => return (out, End::Cut),
    }
    (out, End::Told)
}

fn check(frames: fn() -> Http3FrameFilter, input: &[u8]) {
    let whole = handed_on(frames(), input, input.len().max(1));
    assert_eq!(whole, handed_on(frames(), input, 1));
    assert_eq!(whole, handed_on(frames(), input, 7));
    // Filtering the output again changes nothing, and the output is a subsequence of the input.
    let again = handed_on(frames(), &whole.0, whole.0.len().max(1));
    assert_eq!(whole.0, again.0);
    assert_eq!(if let End::Refused(_) = whole.1 { End::Told } else { whole.1 }, again.1);
    let mut rest = input.iter();
    assert!(whole.0.iter().all(|byte| rest.any(|one| one == byte)));
}

fuzz_target!(|input: &[u8]| {
    check(|| Http3FrameFilter::of_request(SECTION_BYTES_MAX), input);
    check(Http3FrameFilter::one_way, input);
});
