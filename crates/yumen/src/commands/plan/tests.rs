use serde_json::json;

use super::status;

#[test]
fn only_new_errors_suppress_the_confirmation() {
    for (level, is_new, needs_confirmation, expected) in [
        ("error", true, json!("much"), 1),
        ("error", false, json!("much"), 2),
        ("warning", true, json!("much"), 2),
        ("error", false, json!(null), 0),
    ] {
        let problems = json!([{ "level": level, "is_new": is_new }]);
        let planned = json!({ "problems": problems, "needs_confirmation": needs_confirmation });
        assert_eq!(status(&planned), expected, "{planned}");
    }
}
