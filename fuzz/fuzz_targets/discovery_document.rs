//! Discovery documents of identity providers: total; browsers are sent to web URLs only.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| yumen_plugins::fuzz::discovery_document(data));
