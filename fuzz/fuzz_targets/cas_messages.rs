//! XML messages of a CAS server: total and bounded.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| yumen_plugins::fuzz::cas_messages(data));
