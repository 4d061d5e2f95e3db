//! Fields with trace context: a context is written as it was read, and the state stays within its limits.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| yumen_plugins::fuzz::trace_context(data));
