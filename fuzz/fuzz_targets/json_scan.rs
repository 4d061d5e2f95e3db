//! Scans of JSON: the same verdict whole and token by token, and no document refused that serde_json reads.

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
    // Numbers beyond all floats and unpaired surrogates pass the scan.
    if serde_json::from_slice::<serde_json::Value>(data).is_ok() {
        assert_eq!(whole, Ok(()));
    }
});
