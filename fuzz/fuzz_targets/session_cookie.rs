//! Session cookies: total; only sealed values open, unchanged.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| yumen_plugins::fuzz::session_cookie(data));
