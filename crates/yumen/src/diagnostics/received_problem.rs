//! Problems in responses of a gateway.

use serde_json::Value;
use yumen_base::{FilePlace, LineSpan, Problem, ProblemLevel};

/// Reads a problem as a gateway serializes it; absent members are empty.
pub(crate) fn problem_from_json(value: &Value) -> Problem {
    let text = |name: &str| value[name].as_str().unwrap_or_default();
    // The errors of a refused import have a member `error`.
    let message = value["message"].as_str().unwrap_or_else(|| text("error"));
    let level = match text("level") {
        "warning" => ProblemLevel::Warning,
        _ => ProblemLevel::Error,
    };
    let hint = value["hint"].as_str().filter(|hint| !hint.is_empty()).map(str::to_owned);
    let allowed = value["allowed"].as_str().map(str::to_owned);
    let place = place_from_json(&value["place"]);
    Problem { level, hint, allowed, place, ..Problem::error(text("object"), text("path"), message) }
}

fn place_from_json(value: &Value) -> Option<FilePlace> {
    let number = |name: &str| u32::try_from(value[name].as_u64()?).ok();
    let span =
        LineSpan { line: number("line")?, column: number("column")?, width: number("width").unwrap_or(1) };
    Some(FilePlace { file: value["file"].as_str()?.into(), span })
}
