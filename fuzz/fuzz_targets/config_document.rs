//! Configuration documents: any text is handled, every problem names an object, and serialized resources can
//! be parsed again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use yumen_config::document;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let lookup = |name: &str| (name == "SET").then(|| "value".to_owned());
    let (resources, problems) = document::parse(text, &lookup);
    for problem in &problems {
        assert!(!problem.object.is_empty());
        assert!(!problem.message.is_empty());
    }
    let Ok(written) = document::to_yaml(&resources) else { return };
    let (again, _) = document::parse_literally(&written);
    assert_eq!(again.len(), resources.len(), "{written}");
});
