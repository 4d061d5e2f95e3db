use serde_json::json;

use super::{brings_errors, status};
use crate::diagnostics::ExitStatus;

#[test]
fn only_new_errors_hide_a_required_confirmation() {
    for (level, is_new, needs_confirmation, expected) in [
        ("error", true, true, ExitStatus::Problems),
        ("error", false, true, ExitStatus::Unconfirmed),
        ("warning", true, true, ExitStatus::Unconfirmed),
        ("error", false, false, ExitStatus::Done),
    ] {
        let planned = json!({ "problems": [{ "level": level, "is_new": is_new }] });
        assert_eq!(status(brings_errors(&planned), needs_confirmation), expected, "{planned}");
    }
}
