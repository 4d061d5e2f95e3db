//! Kong's tags as labels.

use serde_json::{Map, Value, json};

use super::entity::KongEntity;
use crate::report::ImportReport;

/// Converts tags to labels with the tag as the name and a constant value.
pub(super) fn labels(entity: &mut KongEntity, report: &mut ImportReport) -> Option<Value> {
    let tags = entity.texts("tags", report);
    let labels: Map<String, Value> = tags.into_iter().map(|tag| (tag, json!("true"))).collect();
    (!labels.is_empty()).then_some(Value::Object(labels))
}

/// Takes the tags of an object whose resource has no labels.
pub(super) fn no_labels(entity: &mut KongEntity, report: &mut ImportReport) {
    entity.skip("tags", &Value::Null, "there are no labels here", report);
}
