//! Key sets of identity providers: total, and no set verifies a forged token.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| yumen_plugins::fuzz::key_set(data));
