//! Messages of a SCRAM server: total, and none proves a password that the server does not know.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| yumen_outbound::fuzz::scram_message(data));
