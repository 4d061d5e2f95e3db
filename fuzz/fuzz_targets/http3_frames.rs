//! Frames of HTTP/3: whole, in pieces and byte by byte hand on the same, and what is missing of it is frames of
//! data that hold none.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use yumen_http::http3_frames::{Ended, Frames};

/// What is handed on, and whether the stream was cut within data.
fn handed_on(came: &[u8], piece: usize) -> (Vec<u8>, bool) {
    let mut frames = Frames::default();
    let mut out = Vec::new();
    for piece in came.chunks(piece) {
        let mut came = Bytes::copy_from_slice(piece);
        while !came.is_empty() {
            let left = came.len();
            out.extend_from_slice(&frames.pass(&mut came));
            assert!(came.len() < left, "it takes something each time");
        }
    }
    match frames.end() {
        Ended::Told(rest) => out.extend_from_slice(&rest),
        Ended::Cut => return (out, true),
    }
    (out, false)
}

fuzz_target!(|came: &[u8]| {
    let whole = handed_on(came, came.len().max(1));
    assert_eq!(whole, handed_on(came, 1));
    assert_eq!(whole, handed_on(came, 7));
    // What is handed on has nothing to be taken out, and every byte of it came, in this order.
    assert_eq!(whole, handed_on(&whole.0, whole.0.len().max(1)));
    let mut rest = came.iter();
    assert!(whole.0.iter().all(|byte| rest.any(|one| one == byte)));
});
