use yumen_http::Fields;

use super::b3::B3Context;
use super::sw8::Sw8Context;
use super::w3c::{self, TraceParent};
use super::{SpanId, hex_id};

/// Well-formed values, from which the test makes malformed ones.
const VALUES: [&str; 6] = [
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-the-future",
    "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
    "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90",
    "64fe8b2a57d3eff7-e457b5a2e4d86bd1-d",
    "1-MQ==-Mi4zPjQ=-3-c2VydmljZQ==-aW5zdGFuY2U=-L2FwcA==-MTI3LjAuMC4xOjgwODA=",
];

/// No bytes of a client panic a parser, and a value that is taken is written back as it was read.
fn check(bytes: &[u8]) {
    if let Some(parent) = TraceParent::parse(bytes) {
        assert_eq!(TraceParent::parse(&parent.text()), Some(parent));
    }
    if let Ok(B3Context { ids: Some(ids), .. }) = B3Context::parse(bytes) {
        ids.trace_id.with_text(|text| assert!(text.len() == 16 || text.len() == 32));
    }
    if let Some(context) = Sw8Context::parse(bytes) {
        assert_eq!(Sw8Context::parse(context.text().as_bytes()), Some(context));
    }
    if let Some(id) = hex_id::parse::<8>(bytes) {
        let id: SpanId = id;
        assert!(hex_id::span_text(id).eq_ignore_ascii_case(bytes));
    }
    let mut fields = Fields::default();
    fields.add("tracestate", bytes);
    w3c::settle_state(&mut fields, true);
    if let Some(state) = w3c::state(&fields) {
        assert!(state.len() <= bytes.len() && state.len() <= 512, "{bytes:?}");
    }
}

#[test]
fn no_bytes_panic_a_parser() {
    let mut state = 7u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for _ in 0..20_000 {
        let mut bytes = VALUES[random(VALUES.len())].as_bytes().to_vec();
        check(&bytes);
        for _ in 0..=random(3) {
            let at = random(bytes.len());
            match random(4) {
                0 => bytes[at] = random(256) as u8,
                1 => bytes.truncate(at + 1),
                2 => bytes.insert(at, b"-=,0af \xff"[random(8)]),
                _ => bytes.extend_from_within(at..),
            }
        }
        check(&bytes);
    }
    check(b"");
}
