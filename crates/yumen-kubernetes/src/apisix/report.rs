//! Status of objects, and problems that no condition shows.

use serde_json::Map;
use yumen_base::problem::Problem;

use crate::engine::UnitOutput;
use crate::model::ObjectKey;
use crate::resources::{ResourceName, SpecDefect};
use crate::status::{ConditionDraft, ConditionValue, StatusDraft, StatusEntry, StatusPlace};

/// Adds the condition `Accepted` of an object. `needs`: its resources.
pub(super) fn add_status(
    output: &mut UnitOutput,
    key: &ObjectKey,
    generation: i64,
    defects: &[SpecDefect],
    needs: Vec<ResourceName>,
) {
    let condition = match message_of(defects) {
        Some(message) => ConditionDraft::fixed("Accepted", false, "InvalidSpec", message),
        None => ConditionDraft::depending("Accepted", ConditionValue::UnlessRefused, "Accepted", needs),
    };
    put_status(output, key, generation, condition);
}

pub(super) fn put_status(
    output: &mut UnitOutput,
    key: &ObjectKey,
    generation: i64,
    condition: ConditionDraft,
) {
    let entry = StatusEntry { place: StatusPlace::Root, conditions: vec![condition], fields: Map::new() };
    let draft = StatusDraft { generation, entries: vec![entry], fields: Map::new() };
    output.statuses.insert(key.clone(), draft);
}

/// The defects in one text; `None` without any.
pub(super) fn message_of(defects: &[SpecDefect]) -> Option<String> {
    let messages: Vec<String> =
        defects.iter().map(|defect| format!("{}: {}", defect.path, defect.message)).collect();
    (!messages.is_empty()).then(|| messages.join("; "))
}

pub(super) fn warn_without_effect(output: &mut UnitOutput, key: &ObjectKey, path: &str) {
    warn(output, key, path, "is not supported and has no effect");
}

pub(super) fn warn(output: &mut UnitOutput, key: &ObjectKey, path: &str, message: impl Into<String>) {
    output.problems.push(Problem::warning(key.to_string(), path.to_owned(), message.into()));
}
