//! References in settings: `$env://NAME` and `$env://NAME/member` stand for an environment variable,
//! `$secret://MANAGER/ID/KEY` for a secret.
//!
//! Variables come in as a closure, secrets from the table of the compiler. A reference that cannot be resolved is an
//! error: as a literal it would be a key that every reader of the settings knows.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use yumen_config::masking::SEARCHED_BYTES_MIN;
use yumen_config::resource::is_within;
use yumen_config::{InvalidSettings, json_text};
use yumen_plugin::FetchedCells;

use super::secret_table::{SecretTable, SecretValue};

/// Returns the value of an environment variable.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The value of all variables in [`awaited_variables`]. No variable of a process has a NUL.
const AWAITED_VARIABLE: &str = "\0";

/// Variables whose values are not known: references to them stay as written.
pub(super) fn awaited_variables() -> Variables {
    Arc::new(|_| Some(AWAITED_VARIABLE.to_owned()))
}

const ENV: &str = "$env://";
const SECRET: &str = "$secret://";

/// The sources of values.
#[derive(Clone, Copy)]
pub(crate) struct ReferenceValues<'v> {
    variables: &'v Variables,
    /// Absent for the validation of single objects, which knows no managers.
    secrets: Option<(&'v SecretTable, &'v FetchedCells)>,
    place: ReferenceSite<'v>,
}

/// The place of the resolved texts in their object.
#[derive(Clone, Copy)]
enum ReferenceSite<'v> {
    /// Uses of secrets are not noted.
    Unnoted,
    Object,
    /// The settings of this plugin.
    Plugin(&'v str),
}

impl<'v> ReferenceValues<'v> {
    /// The sources of a compiler.
    pub(super) fn new(
        variables: &'v Variables,
        secrets: &'v SecretTable,
        cells: &'v FetchedCells,
    ) -> ReferenceValues<'v> {
        ReferenceValues { variables, secrets: Some((secrets, cells)), place: ReferenceSite::Object }
    }

    /// The sources for a single object: references to secrets stay as written.
    pub(super) fn of_one(variables: &'v Variables) -> ReferenceValues<'v> {
        ReferenceValues { variables, secrets: None, place: ReferenceSite::Unnoted }
    }

    /// The same sources, for a look that notes no use.
    pub(super) fn unnoted(self) -> ReferenceValues<'v> {
        ReferenceValues { place: ReferenceSite::Unnoted, ..self }
    }

    /// The same sources for the settings of a plugin.
    pub(super) fn of_plugin(self, plugin: &'v str) -> ReferenceValues<'v> {
        match self.place {
            ReferenceSite::Unnoted => self,
            _ => ReferenceValues { place: ReferenceSite::Plugin(plugin), ..self },
        }
    }

    fn secret(&self, reference: &str, path: &str) -> Result<SecretValue, String> {
        let Some((secrets, cells)) = self.secrets else { return Ok(SecretValue::Awaited) };
        let path = match self.place {
            ReferenceSite::Unnoted => None,
            ReferenceSite::Object => Some(path.to_owned()),
            ReferenceSite::Plugin(plugin) => Some(format!("plugins.{plugin}.{path}")),
        };
        secrets.value(cells, reference, path)
    }
}

/// The meaning of a text.
pub(super) enum ResolvedText<'t> {
    /// The text itself.
    Literal(&'t str),
    /// The value of a reference.
    Value(String),
    /// A reference without a value, in a trial.
    Awaited,
}

/// A reference with its value.
struct ResolvedReference {
    path: String,
    written: String,
    value: String,
}

/// The resolved references of an object or of the settings of a plugin.
#[derive(Default)]
pub(super) struct ResolvedReferences {
    resolved: Vec<ResolvedReference>,
    /// References to secrets that stay as written in a trial, with their paths.
    awaited: Vec<(String, String)>,
}

impl ResolvedReferences {
    /// The texts that a template could take for variables.
    pub(super) fn data_values(&self) -> Vec<String> {
        // A value is data: a template must not read variables into it. In a secret that stays as written, `$secret` is no
        // variable.
        let resolved = self.resolved.iter().map(|one| &one.value);
        let awaited = self.awaited.iter().map(|(_, written)| written);
        resolved.chain(awaited).filter(|value| value.contains('$')).cloned().collect()
    }

    /// The paths of references to secrets that stay as written.
    pub(super) fn awaited_paths(&self) -> impl Iterator<Item = &str> {
        self.awaited.iter().map(|(path, _)| &**path)
    }

    /// Whether an error at `path` may end when the value of a secret arrives.
    pub(super) fn may_heal(&self, path: &str) -> bool {
        self.awaited_paths().any(|awaited| concerns(path, awaited))
    }

    /// The message of an error at `path` with references in place of their values, which may be secrets: problems are
    /// shown to viewers.
    pub(super) fn mask(&self, path: &str, message: String) -> String {
        let (short, mut long): (Vec<_>, Vec<_>) =
            self.resolved.iter().partition(|one| one.value.len() < SEARCHED_BYTES_MIN);
        // A short value occurs in messages by chance, and replacements would show where. Only one that stands at the place
        // of the error can be its subject; the whole message is left out then.
        let is_shown =
            |one: &&&ResolvedReference| concerns(path, &one.path) && has_word(&message, &one.value);
        if let Some(one) = short.iter().find(is_shown) {
            return format!("the value of {} is refused", one.written);
        }
        // The longest first: a value may contain another one.
        long.sort_by_key(|one| std::cmp::Reverse(one.value.len()));
        long.into_iter().fold(message, |message, one| message.replace(&one.value, &one.written))
    }
}

/// Whether an error at `path` may be about the text at `place`.
fn concerns(path: &str, place: &str) -> bool {
    path.is_empty() || is_within(path, place) || is_within(place, path)
}

/// Whether `value` stands in the message outside of other words.
fn has_word(message: &str, value: &str) -> bool {
    message.match_indices(value).any(|(at, _)| {
        let (before, after) = (&message[..at], &message[at + value.len()..]);
        !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric)
    })
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
    values: &ReferenceValues<'_>,
) -> Result<ResolvedReferences, InvalidSettings> {
    let mut followed = ResolvedReferences::default();
    let mut first_error = None;
    resolve_at(value, values, "", &mut followed, &mut first_error);
    first_error.map_or(Ok(followed), Err)
}

/// Goes on after an error, so that all secrets of an object are fetched at once.
fn resolve_at(
    value: &mut Value,
    values: &ReferenceValues<'_>,
    path: &str,
    followed: &mut ResolvedReferences,
    first_error: &mut Option<InvalidSettings>,
) {
    match value {
        Value::String(written) => match resolve_text(written, values, path) {
            Ok(ResolvedText::Literal(_)) => {}
            Ok(ResolvedText::Awaited) => followed.awaited.push((path.to_owned(), written.clone())),
            Ok(ResolvedText::Value(value)) => {
                let reference = std::mem::replace(written, value.clone());
                // An empty value occurs in every message, so it cannot be masked.
                if !value.is_empty() {
                    followed.resolved.push(ResolvedReference {
                        path: path.to_owned(),
                        written: reference,
                        value,
                    });
                }
            }
            Err(message) => {
                let refused =
                    || InvalidSettings::at(path, format!("\"{path}\" cannot be resolved: {message}"));
                first_error.get_or_insert_with(refused);
            }
        },
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                resolve_at(item, values, &format!("{path}[{at}]"), followed, first_error);
            }
        }
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                resolve_at(member, values, &path, followed, first_error);
            }
        }
        _ => {}
    }
}

/// The value of a text: of the reference, or the text itself. `None` for a reference to a secret, and for one that cannot
/// be resolved.
pub fn meaning<'t>(text: &'t str, variables: &Variables) -> Option<Cow<'t, str>> {
    match resolve_text(text, &ReferenceValues::of_one(variables), "") {
        Ok(ResolvedText::Literal(text)) => Some(Cow::Borrowed(text)),
        Ok(ResolvedText::Value(value)) => Some(Cow::Owned(value)),
        Ok(ResolvedText::Awaited) | Err(_) => None,
    }
}

/// The meaning of the text at `path`.
pub(super) fn resolve_text<'t>(
    text: &'t str,
    values: &ReferenceValues<'_>,
    path: &str,
) -> Result<ResolvedText<'t>, String> {
    // An error and not a literal: see the head of this file.
    if let Some(reference) = begins(text, SECRET) {
        return match values.secret(reference, path) {
            Ok(SecretValue::Text(value)) => Ok(ResolvedText::Value(value)),
            Ok(SecretValue::Awaited) => Ok(ResolvedText::Awaited),
            Err(message) => Err(format!("{text}: {message}")),
        };
    }
    let Some(rest) = begins(text, ENV) else { return Ok(ResolvedText::Literal(text)) };
    let (name, member) = rest.split_once('/').unwrap_or((rest, ""));
    let unset = || {
        format!(
            "the environment variable \"{name}\" is not set for this node; set it and start the node again"
        )
    };
    let value = (values.variables)(name).ok_or_else(unset)?;
    match member.is_empty() {
        _ if value == AWAITED_VARIABLE => Ok(ResolvedText::Awaited),
        true => Ok(ResolvedText::Value(value)),
        false => member_of(name, member, &value).map(ResolvedText::Value),
    }
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
