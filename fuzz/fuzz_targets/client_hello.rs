//! The first message of TLS clients: no panic, and further bytes do not change a decision.
#![no_main]

use libfuzzer_sys::fuzz_target;
use yumen_http::client_hello::{ClientHelloPeek, parse};

fuzz_target!(|bytes: &[u8]| {
    let whole = parse(bytes);
    if let Ok(ClientHelloPeek::Complete(Some(name))) = &whole {
        assert!(!name.is_empty() && name.len() <= 253);
        assert_eq!(**name, name.to_ascii_lowercase());
    }
    for cut in 0..bytes.len().min(600) {
        match parse(&bytes[..cut]) {
            Ok(ClientHelloPeek::Partial) => {}
            decided => assert_eq!(decided, whole, "decided after {cut} bytes"),
        }
    }
});
