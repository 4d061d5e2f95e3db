//! Kong files: any text is handled, a refusal has a reason, and the result can be written and parsed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use yumen_config::document;
use yumen_import::{ImportContext, ImportResult, kong};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let context = ImportContext {
        environment: &|name| (name == "DECK_SET").then(|| "value".to_owned()),
        // A guard that does not run takes another way than one that does.
        runs: &|plugin| plugin != "hmac-auth",
    };
    let ImportResult { resources, report } = match kong::import(text, &context) {
        Ok(imported) => imported,
        Err(message) => return assert!(!message.is_empty()),
    };
    for line in report.lines() {
        assert!(!line.object.is_empty() && !line.instead.is_empty());
    }
    let written = document::to_yaml(&resources).expect("resources can be written");
    let (read, problems) = document::parse(&written, &|_| None);
    assert!(problems.is_empty(), "{problems:?}\n{written}");
    assert_eq!(read.len(), resources.len(), "{written}");
});
