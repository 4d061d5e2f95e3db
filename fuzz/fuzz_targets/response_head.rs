//! Response heads: no panic, and the forwarded head parses to the same response.

#![no_main]

use libfuzzer_sys::fuzz_target;
use yumen_http::{Framing, HeadLimits, Method, ParsedHead, ResponseHead, encode, parse};

fuzz_target!(|data: &[u8]| {
    let limits = HeadLimits { head_bytes_max: 4096, target_bytes_max: 1024, fields_max: 32, ..HeadLimits::default() };
    let mut head = ResponseHead::default();
    let Ok(ParsedHead::Head(end)) = parse::response(data, 0, &limits, Method::Get, &mut head) else { return };
    assert!(end <= data.len());
    let mut sent = Vec::new();
    encode::status_line(&mut sent, head.status, head.reason());
    encode::response_fields(&mut sent, &head, |_| false);
    if head.framing == Framing::Chunked {
        encode::framing(&mut sent, head.framing);
    }
    sent.extend_from_slice(b"\r\n");
    let roomy = HeadLimits { head_bytes_max: 1 << 20, target_bytes_max: 1 << 20, fields_max: 64, ..HeadLimits::default() };
    let mut again = ResponseHead::default();
    let result = parse::response(&sent, 0, &roomy, Method::Get, &mut again);
    assert_eq!(result, Ok(ParsedHead::Head(sent.len())), "{}", sent.escape_ascii());
    assert_eq!((again.status, again.framing), (head.status, head.framing));
});
