//! Request heads: no panic, the verdict does not depend on the segmentation, and the forwarded head parses to
//! the same request.

#![no_main]

use libfuzzer_sys::fuzz_target;
use yumen_http::{HeadLimits, KnownField, ParsedHead, RequestHead, encode, parse};

fuzz_target!(|data: &[u8]| {
    let limits = HeadLimits { head_bytes_max: 4096, target_bytes_max: 1024, fields_max: 32, ..HeadLimits::default() };
    let mut head = RequestHead::default();
    let whole = parse::request(data, 0, &limits, &mut head);
    let mut line = RequestHead::default();
    parse::refused_request(data, &limits, &mut line);
    let Ok(ParsedHead::Head(end)) = whole else { return };
    assert_eq!((line.method_name(), line.target()), (head.method_name(), head.target()));
    assert!(end <= data.len());
    for cut in (0..end).take(300) {
        let mut part = RequestHead::default();
        assert_ne!(parse::request(&data[..cut], 0, &limits, &mut part), Ok(ParsedHead::Head(cut)));
        let mut resumed = RequestHead::default();
        assert_eq!(parse::request(data, cut, &limits, &mut resumed), whole);
    }
    let mut sent = Vec::new();
    encode::request_line(&mut sent, &head);
    if !head.fields.has("host") {
        sent.extend_from_slice(b"Host: \r\n");
    }
    encode::request_fields(&mut sent, &head, |field| field.known() == KnownField::ContentLength);
    encode::framing(&mut sent, head.framing);
    sent.extend_from_slice(b"\r\n");
    let roomy = HeadLimits { head_bytes_max: 1 << 20, target_bytes_max: 1 << 20, fields_max: 64, ..HeadLimits::default() };
    let mut again = RequestHead::default();
    let result = parse::request(&sent, 0, &roomy, &mut again);
    assert_eq!(result, Ok(ParsedHead::Head(sent.len())), "{}", sent.escape_ascii());
    assert_eq!(again.method(), head.method());
    assert_eq!(again.path(), head.path());
    assert_eq!(again.query(), head.query());
    assert_eq!(again.framing, head.framing);
});
