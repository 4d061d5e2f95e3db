//! JSON Schema as APISIX tools expect it: derived from Rust types, validated with APISIX's messages.
//!
//! Independent of resources and plugins. The messages are a contract: tools and tests compare them literally.

mod compound;
mod derive;
mod evaluate;
mod faults;
mod object;
mod patterns;
mod reference;
mod remedy;
mod scalar;
#[cfg(test)]
mod tests;
mod unknown;

use schemars::JsonSchema;
use serde_json::Value;

pub use faults::faults;
pub(crate) use remedy::IN_QUOTES;
pub use unknown::{UnknownMember, notices_unknown_members, unknown_members};

/// Why settings were refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSettings {
    /// Dotted path of the innermost fault, such as `nodes[0].port`; empty for the whole value.
    pub path: String,
    /// The value found and the values allowed, from the outermost object inwards.
    pub message: String,
    /// The rule that the value breaks, for code that adds a hint.
    pub violation: RuleViolation,
    /// Remedy, such as the list of allowed values; the message stays that of APISIX.
    pub hint: Option<String>,
}

/// The rule that refused settings break.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RuleViolation {
    /// The schema requires a boolean and the value is a string, such as `yes`, `on` or `"true"`.
    TextForBoolean,
    /// Any other rule.
    #[default]
    Other,
}

impl InvalidSettings {
    /// Refuses the value at `path`.
    pub fn at(path: impl Into<String>, message: impl Into<String>) -> InvalidSettings {
        InvalidSettings {
            path: path.into(),
            message: message.into(),
            violation: RuleViolation::Other,
            hint: None,
        }
    }

    /// Refuses the whole value.
    pub fn new(message: impl Into<String>) -> InvalidSettings {
        InvalidSettings::at("", message)
    }

    /// The same fault with a remedy.
    pub fn with_hint(self, hint: Option<String>) -> InvalidSettings {
        InvalidSettings { hint, ..self }
    }

    /// The same fault with another message.
    pub fn map_message(self, message: impl FnOnce(String) -> String) -> InvalidSettings {
        InvalidSettings { message: message(self.message), ..self }
    }

    /// The same fault with this remedy.
    pub fn hint(self, remedy: impl Into<String>) -> InvalidSettings {
        InvalidSettings { hint: Some(remedy.into()), ..self }
    }

    /// The same fault, seen from the object that contains this value at `path`.
    pub fn under(mut self, path: &str) -> InvalidSettings {
        self.path = match self.path.as_str() {
            "" => path.to_owned(),
            inner if inner.starts_with('[') => format!("{path}{inner}"),
            inner => format!("{path}.{inner}"),
        };
        self
    }

    /// An error of typed decoding. The schema refuses most values before serde reads them.
    pub fn from_serde(error: serde_json::Error) -> InvalidSettings {
        InvalidSettings::new(error.to_string())
    }
}

/// The schema of `T`: JSON Schema draft-07 without references. An `Option` is an optional property.
pub fn of<T: JsonSchema>() -> Value {
    let mut schema = generated::<T>();
    derive::simplify(&mut schema);
    schema
}

/// As [`of`], and unsigned integers of up to 32 bits have the bounds of their types, so that the refusal of a larger
/// number names its path.
pub fn of_bounded<T: JsonSchema>() -> Value {
    let mut schema = generated::<T>();
    // Before `simplify`, which removes the formats that the bounds derive from.
    derive::bound_integers(&mut schema);
    derive::simplify(&mut schema);
    schema
}

fn generated<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft07().with(|settings| {
        // As in APISIX's schemas, which have no references, so that its tools need not resolve any.
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Validates `instance` and fills in defaults.
///
/// The function also normalizes values for typed decoding: `2.0` becomes `2` for an integer, and an empty object
/// becomes `[]` for an array, since both are the same empty table to the tools of APISIX. Nesting beyond 128 levels is
/// refused.
pub fn validate(schema: &Value, instance: &mut Value) -> Result<(), InvalidSettings> {
    // Schemas of this project have no references, so evaluation needs no budget.
    evaluate::SchemaEvaluator::new(None).check(schema, instance)
}

/// As [`validate`], by a schema from a user, whose `$ref` may lead to other parts of it.
///
/// A value whose evaluation takes more than a million steps is refused: a schema that refers to itself can require more.
pub fn validate_document(schema: &Value, instance: &mut Value) -> Result<(), InvalidSettings> {
    let references = reference::SchemaReferences::new(schema);
    evaluate::SchemaEvaluator::new(Some(&references)).check(schema, instance)?;
    // A refusal within `not` or a tried branch does not fail the whole, so the mark decides.
    match references.is_aborted() {
        true => Err(InvalidSettings::new(
            "the value is nested too deeply or takes too many steps to be evaluated",
        )),
        false => Ok(()),
    }
}

/// Whether a `$ref` resolves to a part of the schema.
pub fn refers_within(schema: &Value, reference: &Value) -> bool {
    reference::resolve(schema, reference).is_some_and(|part| part.is_object() || part.is_boolean())
}
