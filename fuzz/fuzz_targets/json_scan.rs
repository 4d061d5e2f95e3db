//! JSON scans: the verdict is the same at once and token by token, and every document that serde_json accepts
//! passes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use yumen_plugin::JsonScan;
use yumen_plugin::json_scan::ScanProgress;

fuzz_target!(|data: &[u8]| {
    let whole = JsonScan::new(0, usize::MAX).whole(data);
    let mut scan = JsonScan::new(0, usize::MAX);
    let stepwise = loop {
        match scan.advance(data, 1) {
            Ok(ScanProgress::More) => {}
            Ok(ScanProgress::Done) => break scan.ends(data),
            Err(fault) => break Err(fault),
        }
    };
    assert_eq!(whole, stepwise);
    // Numbers out of range and unpaired surrogates pass the scan.
    if serde_json::from_slice::<serde_json::Value>(data).is_ok() {
        assert_eq!(whole, Ok(()));
    }
});
