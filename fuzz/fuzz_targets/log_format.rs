//! Forms of log entries and requests: each entry is one JSON object on one line.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| yumen_plugins::fuzz::log_format(data));
