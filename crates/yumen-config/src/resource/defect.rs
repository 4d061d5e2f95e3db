//! Defects that a document reader finds in a resource before its settings are validated.
//!
//! Defects travel in the text of the resource, because stores keep texts only. A marked resource fails to
//! decode.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::schema::InvalidSettings;

/// The member that carries the defects; no kind has a property of this name.
const MEMBER: &str = "$broken";

/// A reason why a resource is broken, whatever the rest of its text is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceDefect {
    /// Dotted path inside the resource; empty for the whole resource.
    pub path: String,
    /// The finding and the allowed values.
    pub message: String,
    /// Remedy, if one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl ResourceDefect {
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> ResourceDefect {
        ResourceDefect { path: path.into(), message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> ResourceDefect {
        self.hint = Some(hint.into());
        self
    }

    /// Whether the defect is at `path` or below it.
    pub fn is_within(&self, path: &str) -> bool {
        is_within(&self.path, path)
    }
}

/// Whether `path` equals `other` or is below it.
pub fn is_within(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|below| below.is_empty() || below.starts_with(['.', '[']))
}

/// Marks a resource as broken; without defects, removes the mark.
pub fn mark(members: &mut Map<String, Value>, defects: &[ResourceDefect]) {
    match defects.is_empty() {
        // The mark in a document comes from an export. The reader has checked the item itself, so the old
        // mark is void.
        true => drop(members.shift_remove(MEMBER)),
        false => {
            let written = defects.iter().map(|one| serde_json::json!(one));
            members.insert(MEMBER.to_owned(), written.collect());
        }
    }
}

/// Removes the defects from a resource, which restores its text as the user wrote it.
pub fn take_defects(value: &mut Value) -> Vec<ResourceDefect> {
    let member = value.as_object_mut().and_then(|members| members.shift_remove(MEMBER));
    member.map(parse_defects).unwrap_or_default()
}

/// The defects of a resource. Most have none, so only texts that contain the member are parsed.
pub fn defects(json: &str) -> Vec<ResourceDefect> {
    match json.contains(MEMBER) {
        true => serde_json::from_str(json).map(|mut value| take_defects(&mut value)).unwrap_or_default(),
        false => Vec::new(),
    }
}

/// Refuses a resource with defects.
pub(super) fn refuse(value: &Value) -> Result<(), InvalidSettings> {
    let Some(member) = value.as_object().and_then(|members| members.get(MEMBER)) else { return Ok(()) };
    let first = parse_defects(member.clone()).swap_remove(0);
    Err(InvalidSettings::at(first.path, first.message))
}

/// Never empty: a member without readable defects, which only a user can have written, is a defect too.
fn parse_defects(member: Value) -> Vec<ResourceDefect> {
    match serde_json::from_value::<Vec<ResourceDefect>>(member) {
        Ok(defects) if !defects.is_empty() => defects,
        _ => vec![ResourceDefect::new(MEMBER, "no property is called so: the name is the gateway's own")],
    }
}
