//! Evaluation of one schema node on one value: the keywords are collected in one pass, then checked in a fixed order.

use serde_json::{Map, Value};

use super::reference::SchemaReferences;
use super::{InvalidSettings, compound, object, reference, remedy, scalar};

/// Bound of nesting, so that recursion cannot exhaust the stack.
const DEPTH_MAX: u16 = 128;

/// The mode of an evaluation.
#[derive(Clone, Copy)]
pub(super) struct SchemaEvaluator<'s> {
    /// Whether defaults are filled in; not while branches are only tried.
    pub(super) complete: bool,
    /// Whether messages are formatted.
    pub(super) builds_messages: bool,
    depth: u16,
    /// Targets of `$ref`, in schemas that may have it.
    pub(super) references: Option<&'s SchemaReferences<'s>>,
}

/// The keywords of a schema node, grouped by the values that they apply to.
#[derive(Default)]
pub(super) struct SchemaKeywords<'a> {
    pub(super) types: Option<&'a Value>,
    pub(super) values: Option<&'a [Value]>,
    pub(super) constant: Option<&'a Value>,
    pub(super) object: ObjectKeywords<'a>,
    pub(super) array: ArrayKeywords<'a>,
    pub(super) text: TextKeywords<'a>,
    pub(super) number: NumberKeywords<'a>,
    pub(super) branches: BranchKeywords<'a>,
}

/// Keywords of objects.
#[derive(Default)]
pub(super) struct ObjectKeywords<'a> {
    pub(super) properties: Option<&'a Map<String, Value>>,
    pub(super) required: Option<&'a [Value]>,
    pub(super) dependencies: Option<&'a Map<String, Value>>,
    pub(super) pattern_properties: Option<&'a Map<String, Value>>,
    pub(super) additional_properties: Option<&'a Value>,
    pub(super) properties_min: Option<u64>,
    pub(super) properties_max: Option<u64>,
    pub(super) property_names: Option<&'a Value>,
}

/// Keywords of arrays.
#[derive(Default)]
pub(super) struct ArrayKeywords<'a> {
    pub(super) items: Option<&'a Value>,
    pub(super) additional_items: Option<&'a Value>,
    pub(super) items_min: Option<u64>,
    pub(super) items_max: Option<u64>,
    pub(super) unique_items: bool,
    pub(super) contains: Option<&'a Value>,
}

/// Keywords of texts.
#[derive(Default)]
pub(super) struct TextKeywords<'a> {
    pub(super) length_min: Option<u64>,
    pub(super) length_max: Option<u64>,
    pub(super) pattern: Option<&'a str>,
    pub(super) format: Option<&'a str>,
}

/// Keywords of numbers.
#[derive(Default)]
pub(super) struct NumberKeywords<'a> {
    pub(super) minimum: Option<&'a Value>,
    pub(super) maximum: Option<&'a Value>,
    pub(super) exclusive_minimum: Option<&'a Value>,
    pub(super) exclusive_maximum: Option<&'a Value>,
    pub(super) multiple_of: Option<&'a Value>,
}

/// Keywords with schemas that are tried.
#[derive(Default)]
pub(super) struct BranchKeywords<'a> {
    pub(super) all_of: Option<&'a [Value]>,
    pub(super) any_of: Option<&'a [Value]>,
    pub(super) one_of: Option<&'a [Value]>,
    pub(super) condition: Option<&'a Value>,
    pub(super) then: Option<&'a Value>,
    pub(super) otherwise: Option<&'a Value>,
    pub(super) not: Option<&'a Value>,
}

impl<'a> SchemaKeywords<'a> {
    fn gather(node: &'a Map<String, Value>) -> SchemaKeywords<'a> {
        let mut k = SchemaKeywords::default();
        // One pass with a jump by name, instead of a look-up of every keyword in every node.
        for (keyword, value) in node {
            match keyword.as_str() {
                "type" => k.types = Some(value),
                "properties" => k.object.properties = value.as_object(),
                "required" => k.object.required = list(value),
                "dependencies" => k.object.dependencies = value.as_object(),
                "patternProperties" => k.object.pattern_properties = value.as_object(),
                "additionalProperties" => k.object.additional_properties = Some(value),
                "minProperties" => k.object.properties_min = value.as_u64(),
                "maxProperties" => k.object.properties_max = value.as_u64(),
                "items" => k.array.items = Some(value),
                "additionalItems" => k.array.additional_items = Some(value),
                "minItems" => k.array.items_min = value.as_u64(),
                "maxItems" => k.array.items_max = value.as_u64(),
                "uniqueItems" => k.array.unique_items = value == &Value::Bool(true),
                "minLength" => k.text.length_min = value.as_u64(),
                "maxLength" => k.text.length_max = value.as_u64(),
                "pattern" => k.text.pattern = value.as_str(),
                "minimum" => k.number.minimum = Some(value),
                "maximum" => k.number.maximum = Some(value),
                "exclusiveMinimum" => k.number.exclusive_minimum = Some(value),
                "exclusiveMaximum" => k.number.exclusive_maximum = Some(value),
                "multipleOf" => k.number.multiple_of = Some(value),
                "enum" => k.values = list(value),
                "allOf" => k.branches.all_of = list(value),
                "anyOf" => k.branches.any_of = list(value),
                "oneOf" => k.branches.one_of = list(value),
                "if" => k.branches.condition = Some(value),
                "then" => k.branches.then = Some(value),
                "else" => k.branches.otherwise = Some(value),
                "not" => k.branches.not = Some(value),
                "format" => k.text.format = value.as_str(),
                "const" => k.constant = Some(value),
                "contains" => k.array.contains = Some(value),
                "propertyNames" => k.object.property_names = Some(value),
                // Unknown keywords are ignored (draft-07 §6.4).
                _ => {}
            }
        }
        k
    }
}

fn list(value: &Value) -> Option<&[Value]> {
    value.as_array().map(Vec::as_slice)
}

impl<'s> SchemaEvaluator<'s> {
    pub(super) fn new(references: Option<&'s SchemaReferences<'s>>) -> SchemaEvaluator<'s> {
        SchemaEvaluator { complete: true, builds_messages: true, depth: 0, references }
    }

    /// The same evaluator without completion and messages, for branches that are only tried.
    pub(super) fn trying(self) -> SchemaEvaluator<'s> {
        SchemaEvaluator { complete: false, builds_messages: false, ..self }
    }

    /// The same evaluator without completion, for a second look at a refused value.
    pub(super) fn explaining(self) -> SchemaEvaluator<'s> {
        SchemaEvaluator { complete: false, ..self }
    }

    /// Whether refusals have hints. Not those by schemas from users, which are applied to requests.
    pub(super) fn builds_hints(self) -> bool {
        self.builds_messages && self.references.is_none()
    }

    /// Takes steps from the budget of the evaluation; `false` if it is exhausted.
    pub(super) fn spend(self, steps: usize) -> bool {
        self.references.is_none_or(|references| references.spend(steps))
    }

    /// Refuses the value itself.
    pub(super) fn refuse(self, message: impl FnOnce() -> String) -> Result<(), InvalidSettings> {
        // Branches that are only tried fail often, and their messages are dropped.
        Err(InvalidSettings::new(if self.builds_messages { message() } else { String::new() }))
    }

    /// A refusal of an inner value at `path`.
    pub(super) fn refuse_at(
        self,
        path: &str,
        message: impl FnOnce() -> String,
    ) -> Result<(), InvalidSettings> {
        if !self.builds_messages {
            return Err(InvalidSettings::new(""));
        }
        Err(InvalidSettings::at(path, message()))
    }

    /// A refusal of an inner value, with path and message from the outer one.
    pub(super) fn wrap(
        self,
        inner: Result<(), InvalidSettings>,
        path: impl FnOnce() -> String,
        message: impl FnOnce(&str) -> String,
    ) -> Result<(), InvalidSettings> {
        match inner {
            Ok(()) => Ok(()),
            // Without messages, paths are not assembled either.
            Err(invalid) if !self.builds_messages => Err(invalid),
            Err(invalid) => {
                let message = message(&invalid.message);
                let path = path();
                let outer = if path.is_empty() { invalid } else { invalid.under(&path) };
                Err(InvalidSettings { message, ..outer })
            }
        }
    }

    /// Checks `instance` by `schema`.
    pub(super) fn check(self, schema: &Value, instance: &mut Value) -> Result<(), InvalidSettings> {
        let node = match schema {
            Value::Object(node) => node,
            Value::Bool(false) => return self.refuse(|| "value wasn't supposed to match schema".into()),
            // `true` accepts every value (draft-07 §4.3.2).
            _ => return Ok(()),
        };
        if self.depth >= DEPTH_MAX {
            // Aborts the evaluation as a whole: under `not`, a mere refusal would count as success.
            self.references.inspect(|references| references.give_up());
            return self.refuse(|| "too deeply nested".into());
        }
        // The depth alone does not bound the work: a schema can refer to itself in several branches.
        if !self.spend(reference::steps(instance)) {
            return self.refuse(|| "the value takes too many steps to be evaluated".into());
        }
        let inner = SchemaEvaluator { depth: self.depth + 1, ..self };
        if let Some(references) = self.references
            && let Some(reference) = node.get("$ref")
        {
            // Other keywords beside `$ref` are ignored (draft-07 §8.3).
            return match references.follow(reference) {
                Ok(schema) => inner.check(schema, instance),
                Err(message) => self.refuse(|| message),
            };
        }
        let keywords = SchemaKeywords::gather(node);
        // First, because it may turn an empty array into an object and back; the checks below depend on the
        // form.
        if let Some(types) = keywords.types {
            scalar::types(inner, types, instance)?;
        }
        match instance {
            // Keywords for other types do not apply (JSON Schema draft-07 validation §3.2.1).
            Value::Object(_) => object::check(inner, &keywords, instance)?,
            Value::Array(_) => compound::array(inner, &keywords, instance)?,
            Value::String(text) => scalar::string(inner, &keywords, text)?,
            Value::Number(number) => scalar::number(inner, &keywords, number)?,
            Value::Null | Value::Bool(_) => {}
        }
        if let Some(values) = keywords.values
            && !values.iter().any(|value| scalar::equal(value, instance))
        {
            let refused = self.refuse(|| "matches none of the enum values".into());
            return refused.map_err(|one| match self.builds_hints() {
                true => one.hint(remedy::of_values(values, instance)),
                false => one,
            });
        }
        compound::combinators(inner, &keywords, instance)?;
        if let (Some(format), Value::String(text)) = (keywords.text.format, &*instance) {
            scalar::format(inner, format, text)?;
        }
        if let Some(constant) = keywords.constant
            && !scalar::equal(constant, instance)
        {
            return self.refuse(|| "failed to check const value".into());
        }
        match keywords.array.contains {
            Some(contains) => compound::contains(inner, contains, instance),
            None => Ok(()),
        }
    }
}
