//! Frames of HTTP/3: whole, in pieces and byte by byte hand on the same, and what is missing of it is frames of
//! data that hold none, and those of unknown types.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use yumen_http::http3_frames::{Http3StreamEnd, Http3FrameFilter, Http3FrameTooLong};

/// Short, so that what comes is often longer.
const SECTION_BYTES_MAX: u64 = 40;

#[derive(Debug, PartialEq)]
enum End {
    Told,
    /// Within data.
    Cut,
    Refused(Http3FrameTooLong),
}

/// What is handed on, and how the stream ended.
fn handed_on(mut frames: Http3FrameFilter, came: &[u8], piece: usize) -> (Vec<u8>, End) {
    let mut out = Vec::new();
    for piece in came.chunks(piece) {
        let mut came = Bytes::copy_from_slice(piece);
        while !came.is_empty() {
            let left = came.len();
            match frames.pass(&mut came) {
                Ok(passed) => out.extend_from_slice(&passed),
                Err(why) => return (out, End::Refused(why)),
            }
            assert!(came.len() < left, "it takes something each time");
        }
    }
    match frames.end() {
        Http3StreamEnd::Clean(rest) => out.extend_from_slice(&rest),
        Http3StreamEnd::Truncated => return (out, End::Cut),
    }
    (out, End::Told)
}

fn check(frames: fn() -> Http3FrameFilter, came: &[u8]) {
    let whole = handed_on(frames(), came, came.len().max(1));
    assert_eq!(whole, handed_on(frames(), came, 1));
    assert_eq!(whole, handed_on(frames(), came, 7));
    // What is handed on has nothing to be taken out or refused, and every byte of it came, in this order.
    let again = handed_on(frames(), &whole.0, whole.0.len().max(1));
    assert_eq!(whole.0, again.0);
    assert_eq!(if let End::Refused(_) = whole.1 { End::Told } else { whole.1 }, again.1);
    let mut rest = came.iter();
    assert!(whole.0.iter().all(|byte| rest.any(|one| one == byte)));
}

fuzz_target!(|came: &[u8]| {
    check(|| Http3FrameFilter::of_request(SECTION_BYTES_MAX), came);
    check(Http3FrameFilter::one_way, came);
});
