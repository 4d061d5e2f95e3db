//! References in settings: `$env://NAME` and `$env://NAME/member` stand for an environment variable.
//!
//! Variables come in as a closure. A reference that cannot be resolved is an error: as a literal it would be a key that
//! every reader of the settings knows.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use yumen_config::{InvalidSettings, json_text};

/// Returns the value of an environment variable.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

const ENV: &str = "$env://";
const SECRET: &str = "$secret://";
pub(super) const NO_MANAGERS: &str = "secret managers are not supported in this version";

/// The treatment of `$secret://`, for which this version has no manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SecretPolicy {
    /// An error: see the head of this file.
    Refuse,
    /// The reference stays as it is written, as in APISIX while its manager is missing.
    Keep,
}

/// The sources of values.
#[derive(Clone, Copy)]
struct ReferenceRules<'v> {
    variables: &'v Variables,
    secrets: SecretPolicy,
}

/// The resolved references: each as written, with its value.
#[derive(Debug, Default)]
pub(super) struct ResolvedReferences {
    resolved: Vec<(String, String)>,
    /// References to secrets that stay as written, with their paths.
    kept: Vec<(String, String)>,
}

impl ResolvedReferences {
    /// The texts that a template could take for variables.
    pub(super) fn data_values(&self) -> Vec<String> {
        // A value from the environment is data: a template must not read variables into it. In a secret that stays as
        // written, `$secret` is no variable.
        let resolved = self.resolved.iter().map(|(_, value)| value);
        let kept = self.kept.iter().map(|(_, written)| written);
        resolved.chain(kept).filter(|value| value.contains('$')).cloned().collect()
    }

    /// The paths of references to secrets that stay as written.
    pub(super) fn kept_paths(&self) -> Vec<String> {
        self.kept.iter().map(|(path, _)| path.clone()).collect()
    }

    /// The message with references in place of their values, which may be secrets.
    pub(super) fn mask(&self, message: String) -> String {
        // The value may be a secret, and problems are shown to viewers.
        self.resolved
            .iter()
            .fold(message, |message, (written, value)| message.replace(value.as_str(), written))
    }
}

/// Whether a value contains a reference.
pub(super) fn has_one(value: &Value) -> bool {
    match value {
        Value::String(text) => begins(text, ENV).is_some() || begins(text, SECRET).is_some(),
        Value::Array(items) => items.iter().any(has_one),
        Value::Object(members) => members.values().any(has_one),
        _ => false,
    }
}

/// Replaces the references in all texts inside `value`. The message of an error names the path, which callers may drop.
pub(super) fn resolve(
    value: &mut Value,
    variables: &Variables,
    secrets: SecretPolicy,
) -> Result<ResolvedReferences, InvalidSettings> {
    let mut followed = ResolvedReferences::default();
    resolve_at(value, ReferenceRules { variables, secrets }, "", &mut followed)?;
    Ok(followed)
}

fn resolve_at(
    value: &mut Value,
    rules: ReferenceRules<'_>,
    path: &str,
    followed: &mut ResolvedReferences,
) -> Result<(), InvalidSettings> {
    match value {
        Value::String(written)
            if rules.secrets == SecretPolicy::Keep && begins(written, SECRET).is_some() =>
        {
            followed.kept.push((path.to_owned(), written.clone()));
        }
        Value::String(written) => {
            let refuse =
                |message| InvalidSettings::at(path, format!("\"{path}\" cannot be resolved: {message}"));
            if let Cow::Owned(value) = resolve_text(written, rules.variables).map_err(refuse)? {
                let reference = std::mem::replace(written, value.clone());
                // An empty value occurs in every message, so it cannot be masked.
                if !value.is_empty() {
                    followed.resolved.push((reference, value));
                }
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                resolve_at(item, rules, &format!("{path}[{at}]"), followed)?;
            }
        }
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                resolve_at(member, rules, &path, followed)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The value of a text: of the reference, or the text itself. `None` for a reference that cannot be resolved.
pub fn meaning<'t>(text: &'t str, variables: &Variables) -> Option<Cow<'t, str>> {
    resolve_text(text, variables).ok()
}

/// The value of a text: of the reference, or the text itself.
pub(super) fn resolve_text<'t>(text: &'t str, variables: &Variables) -> Result<Cow<'t, str>, String> {
    // An error and not a literal: see the head of this file.
    if begins(text, SECRET).is_some() {
        return Err(format!("{NO_MANAGERS}; use $env:// or write the value"));
    }
    let Some(rest) = begins(text, ENV) else { return Ok(Cow::Borrowed(text)) };
    let (name, member) = rest.split_once('/').unwrap_or((rest, ""));
    let unset = || {
        format!(
            "the environment variable \"{name}\" is not set for this node; set it and start the node again"
        )
    };
    let value = variables(name).ok_or_else(unset)?;
    if member.is_empty() { Ok(Cow::Owned(value)) } else { member_of(name, member, &value).map(Cow::Owned) }
}

/// The rest of the text after `scheme`, which is compared without case.
fn begins<'t>(text: &'t str, scheme: &str) -> Option<&'t str> {
    let (head, rest) = text.split_at_checked(scheme.len())?;
    head.eq_ignore_ascii_case(scheme).then_some(rest)
}

/// A member of a variable that is a JSON object. Errors do not contain the value, which may be a secret.
fn member_of(name: &str, member: &str, value: &str) -> Result<String, String> {
    let value: Value = json_text::from_slice(value.as_bytes()).map_err(|_| {
        format!("the environment variable \"{name}\" holds no JSON to take \"{member}\" from")
    })?;
    match value.get(member) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(Value::Bool(flag)) => Ok(flag.to_string()),
        _ => Err(format!("the environment variable \"{name}\" has no text called \"{member}\"")),
    }
}

#[cfg(test)]
mod tests;
