//! Compressed heads of HTTP/3: nothing panics, what is left is the rest, and no second line names a protocol.
#![no_main]

use libfuzzer_sys::fuzz_target;
use yumen_http::field_section::take_protocol;

fuzz_target!(|bytes: &[u8]| {
    if let Some((left, _)) = take_protocol(bytes) {
        assert!(left.len() < bytes.len());
        let same = bytes.iter().zip(&left).take_while(|(one, other)| one == other).count();
        assert!(bytes.ends_with(&left[same..]));
        assert_eq!(take_protocol(&left), None);
    }
});
