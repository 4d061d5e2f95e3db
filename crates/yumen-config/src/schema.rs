//! JSON Schema as the APISIX tools know it: derived from Rust types, checked with their messages.
//!
//! Knows nothing of any particular resource or plugin. The messages are a contract: tools and tests
//! read them literally.

mod compound;
mod derive;
mod evaluate;
mod faults;
mod object;
mod patterns;
mod reference;
mod scalar;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde_json::Value;

pub use faults::faults;

/// Settings that were refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSettings {
    /// Dotted path of the innermost fault, such as `nodes[0].port`; empty for the whole.
    pub path: String,
    /// What was found and what is allowed, told from the outermost object inwards.
    pub message: String,
}

impl InvalidSettings {
    /// Refuses what stands at `path`.
    pub fn at(path: impl Into<String>, message: impl Into<String>) -> InvalidSettings {
        InvalidSettings { path: path.into(), message: message.into() }
    }

    /// Refuses the whole.
    pub fn new(message: impl Into<String>) -> InvalidSettings {
        InvalidSettings::at("", message)
    }

    /// The same fault, seen from the object that holds this one at `path`.
    pub fn under(mut self, path: &str) -> InvalidSettings {
        self.path = match self.path.as_str() {
            "" => path.to_owned(),
            inner if inner.starts_with('[') => format!("{path}{inner}"),
            inner => format!("{path}.{inner}"),
        };
        self
    }

    /// What serde found wrong; the schema should have caught it.
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

/// As [`of`], and unsigned integers of up to 32 bits have the bounds of their types: a number beyond is told with its
/// path.
pub fn of_bounded<T: JsonSchema>() -> Value {
    let mut schema = generated::<T>();
    derive::bound_integers(&mut schema);
    derive::simplify(&mut schema);
    schema
}

fn generated<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft07().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Checks `instance` and fills in defaults.
///
/// Along the way values are brought into the form typed decoding expects: `2.0` where an integer is
/// asked becomes `2`, and an empty object where an array is asked becomes `[]` (to the tools they are
/// the same empty table). Nesting beyond 128 levels is refused.
pub fn validate(schema: &Value, instance: &mut Value) -> Result<(), InvalidSettings> {
    evaluate::SchemaEvaluator::new(None).check(schema, instance)
}

/// As [`validate`], by a schema that somebody else wrote, whose `$ref` may lead to other parts of it.
///
/// A value whose evaluation takes more than a million steps is refused: a schema that refers to itself can ask for more.
pub fn validate_document(schema: &Value, instance: &mut Value) -> Result<(), InvalidSettings> {
    let references = reference::SchemaReferences::new(schema);
    evaluate::SchemaEvaluator::new(Some(&references)).check(schema, instance)?;
    match references.is_aborted() {
        true => Err(InvalidSettings::new(
            "the value is nested too deeply or takes too many steps to be evaluated",
        )),
        false => Ok(()),
    }
}

/// Whether a `$ref` of a schema leads to a part of it.
pub fn refers_within(schema: &Value, reference: &Value) -> bool {
    reference::resolve(schema, reference).is_some_and(|part| part.is_object() || part.is_boolean())
}
