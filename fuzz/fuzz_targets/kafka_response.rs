//! Responses of a Kafka broker: total, and bounded by their bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| yumen_outbound::fuzz::kafka_response(data));
