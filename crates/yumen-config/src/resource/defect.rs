//! What a document found wrong with a resource before anybody looked at its settings.
//!
//! It travels in the text, since stores keep texts and nothing beside them: so nobody decodes what is broken.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::schema::InvalidSettings;

/// The member it travels in, which no kind has.
const MEMBER: &str = "$broken";

/// Why a resource is broken whatever else its text says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceDefect {
    /// Dotted path inside the resource, empty for the whole of it.
    pub path: String,
    /// What was found and what is allowed.
    pub message: String,
    /// What to do about it, where that is known.
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

    /// Whether it lies at `path` or below.
    pub fn is_within(&self, path: &str) -> bool {
        is_within(&self.path, path)
    }
}

/// Whether a dotted path is another one or lies below it.
pub fn is_within(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|below| below.is_empty() || below.starts_with(['.', '[']))
}

/// Has a resource be broken; with no defects it is not.
pub(crate) fn mark(members: &mut Map<String, Value>, defects: &[ResourceDefect]) {
    match defects.is_empty() {
        // Who wrote it here has read it in an export: what was wrong there is looked for anew.
        true => drop(members.shift_remove(MEMBER)),
        false => {
            let written = defects.iter().map(|one| serde_json::json!(one));
            members.insert(MEMBER.to_owned(), written.collect());
        }
    }
}

/// Takes the defects off a resource, which leaves its text as it was written.
pub fn take_defects(value: &mut Value) -> Vec<ResourceDefect> {
    let member = value.as_object_mut().and_then(|members| members.shift_remove(MEMBER));
    member.map(parse_defects).unwrap_or_default()
}

/// The defects of a resource, of which most have none.
pub fn defects(json: &str) -> Vec<ResourceDefect> {
    match json.contains(MEMBER) {
        true => serde_json::from_str(json).map(|mut value| take_defects(&mut value)).unwrap_or_default(),
        false => Vec::new(),
    }
}

/// Refuses a resource that has defects.
pub(super) fn refuse(value: &Value) -> Result<(), InvalidSettings> {
    let Some(member) = value.as_object().and_then(|members| members.get(MEMBER)) else { return Ok(()) };
    let first = parse_defects(member.clone()).swap_remove(0);
    Err(InvalidSettings::at(first.path, first.message))
}

/// Never empty: who writes the member themselves means something by it that nobody knows.
fn parse_defects(member: Value) -> Vec<ResourceDefect> {
    match serde_json::from_value::<Vec<ResourceDefect>>(member) {
        Ok(defects) if !defects.is_empty() => defects,
        _ => vec![ResourceDefect::new(MEMBER, "no property is called so: the name is the gateway's own")],
    }
}
