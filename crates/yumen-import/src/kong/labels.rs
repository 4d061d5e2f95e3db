//! Tags, which are labels here.

use serde_json::{Map, Value, json};

use super::entity::KongEntity;
use crate::report::ImportReport;

/// Tags as labels: the tag is the name, the value says nothing.
pub(super) fn labels(entity: &mut KongEntity, report: &mut ImportReport) -> Option<Value> {
    let tags = entity.texts("tags", report);
    let labels: Map<String, Value> = tags.into_iter().map(|tag| (tag, json!("true"))).collect();
    (!labels.is_empty()).then_some(Value::Object(labels))
}

/// Takes tags off what has no labels here.
pub(super) fn no_labels(entity: &mut KongEntity, report: &mut ImportReport) {
    entity.skip("tags", &Value::Null, "there are no labels here", report);
}
