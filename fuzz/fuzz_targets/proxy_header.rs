//! PROXY headers: no panic, no more bytes are consumed than exist, further bytes do not change a complete
//! header, and a parsed header can be encoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use yumen_http::proxy_protocol::{ProxyHeader, ProxyVersion, parse, write};

fuzz_target!(|bytes: &[u8]| {
    let Ok(ProxyHeader::Complete { used, ends }) = parse(bytes) else { return };
    assert!(used <= bytes.len());
    assert_eq!(parse(&bytes[..used]), parse(bytes));
    let Some(ends) = ends else { return };
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let mut header = Vec::new();
        write(&mut header, version, &ends);
        assert_eq!(parse(&header), Ok(ProxyHeader::Complete { used: header.len(), ends: Some(ends) }));
    }
});
