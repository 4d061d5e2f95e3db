//! Warnings about unknown variables. A condition on one never holds, and a template leaves it empty.
//!
//! Knows no plugin: parsing records the unknown names, and a search through the text then finds their paths.

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::suggestion;
use yumen_plugin::vars::{FixedVar, unknown_names};

use super::names::ObjectName;
use super::{Compiler, StageResult};

/// Descriptive members and ids, which never name a variable.
const NEVER_READ: &[&str] = &["name", "desc", "labels", "id"];

impl Compiler {
    /// [`Compiler::stage`] with a warning for every use of an unknown variable.
    pub(super) fn stage_with_names(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let (staged, names) = unknown_names(|| self.stage(name, json));
        let mut warnings = staged?;
        if !names.is_empty()
            && let Ok(Value::Object(mut written)) = serde_json::from_str(json)
        {
            written.retain(|member, _| !NEVER_READ.contains(&member.as_str()));
            let written = Value::Object(written);
            for unknown in &names {
                let mut paths = Vec::new();
                find_uses(&written, String::new(), unknown, &mut paths);
                warnings.extend(paths.into_iter().map(|path| warning(name, path, unknown)));
            }
        }
        Ok(warnings)
    }
}

fn warning(object: &ObjectName, path: String, unknown: &str) -> Problem {
    let message = format!("unknown variable ${unknown}: it never has a value");
    let problem = Problem::warning(object.to_string(), path, message);
    let hint = suggestion(unknown.trim_start_matches('$'), FixedVar::NAMES.iter().copied());
    Problem { hint, ..problem }
}

/// Collects the paths of the texts that name a variable.
fn find_uses(value: &Value, path: String, unknown: &str, paths: &mut Vec<String>) {
    match value {
        Value::String(text) if text == unknown || is_template_of(text, unknown) => paths.push(path),
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                // In a condition only the first item names the variable; an equal text after it is a value.
                if i == 0 || item.as_str() != Some(unknown) {
                    find_uses(item, format!("{path}[{i}]"), unknown, paths);
                }
            }
        }
        Value::Object(members) => {
            for (member, item) in members {
                let dot = if path.is_empty() { "" } else { "." };
                find_uses(item, format!("{path}{dot}{member}"), unknown, paths);
            }
        }
        _ => {}
    }
}

/// Whether `text` is a template with this variable: `$name` or `${name}`.
fn is_template_of(text: &str, unknown: &str) -> bool {
    text.match_indices(unknown).any(|(at, _)| {
        let before = text[..at].trim_end_matches([' ', '{']);
        let after = text[at + unknown.len()..].chars().next();
        before.ends_with('$') && !after.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests;
