//! Signed and encrypted tokens: total, and none is valid.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| yumen_plugins::fuzz::jose_token(data));
