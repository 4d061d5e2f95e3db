//! Messages of an LDAP server: total, and a part of a message is none.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| yumen_outbound::fuzz::ldap_message(data));
