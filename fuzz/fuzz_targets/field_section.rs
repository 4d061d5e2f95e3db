//! HTTP/3 field sections: no panic, the rest is a suffix of the input, and the protocol occurs at most once.
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
