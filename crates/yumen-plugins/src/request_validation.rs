//! `request-validation`: refuses requests if their fields or body do not match a JSON schema.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use yumen_config::schema::{self, InvalidSettings};
use yumen_http::KnownField;
use yumen_plugin::{
    AccessRole, BufferedBody, Computation, DryRunResult, Exchange, JsonFault, JsonScan, LocalResponse,
    OffloadRefused, PhaseSet, Plugin, PluginBuildContext, PluginFactory, Step, compute,
};

use crate::query::pairs;

mod splice;

/// Settings of `request-validation`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("anyOf" = [{"required": ["header_schema"]}, {"required": ["body_schema"]}]))]
pub(crate) struct RequestValidationSettings {
    /// JSON schema of the fields, as an object of strings with names in lower case.
    #[schemars(extend("type" = "object"))]
    header_schema: Option<Value>,
    /// JSON schema of the body, a form or JSON. `$ref` may only refer to a location in the schema itself,
    /// such as `#/$defs/name`.
    #[schemars(extend("type" = "object"))]
    body_schema: Option<Value>,
    /// Largest request body in bytes; a larger one is refused with 413.
    #[serde(default = "max_req_body_size")]
    #[schemars(range(min = 1))]
    max_req_body_size: usize,
    /// Most values in a body: members of objects and elements of arrays in JSON, fields in a form. A body
    /// with more is refused before it is parsed into a tree. Beyond APISIX.
    #[serde(default = "max_body_values")]
    #[schemars(range(min = 1))]
    max_body_values: usize,
    /// Status of the refusal.
    #[serde(default = "rejected_code")]
    #[schemars(range(min = 200, max = 599))]
    rejected_code: u16,
    /// Body of the refusal, instead of the validation error.
    #[schemars(length(min = 1, max = 256))]
    rejected_msg: Option<String>,
}

fn max_req_body_size() -> usize {
    1 << 20
}

fn max_body_values() -> usize {
    100_000
}

fn rejected_code() -> u16 {
    400
}

/// The compiled settings.
#[derive(Debug)]
pub(crate) struct RequestValidation {
    config: RequestValidationSettings,
    body_rules: Option<Arc<BodyRules>>,
}

/// Rules for bodies; shared with the threads that validate large ones.
#[derive(Debug)]
struct BodyRules {
    schema: Value,
    values_max: usize,
}

impl PluginFactory for RequestValidation {
    const NAME: &'static str = "request-validation";
    const PRIORITY: i32 = 2800;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = RequestValidationSettings;

    fn build(config: RequestValidationSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        for (path, schema) in [("header_schema", &config.header_schema), ("body_schema", &config.body_schema)]
        {
            if let Some(schema) = schema {
                check_schema(schema, schema, path)?;
            }
        }
        let values_max = config.max_body_values;
        let body_rules = config.body_schema.clone().map(|schema| Arc::new(BodyRules { schema, values_max }));
        Ok(RequestValidation { config, body_rules })
    }
}

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Refuses a schema with parts that have no effect: unknown types, properties that are no schemas, invalid
/// patterns, and references without a target.
fn check_schema(root: &Value, schema: &Value, path: &str) -> Result<(), InvalidSettings> {
    let Some(members) = schema.as_object() else {
        return if schema.is_boolean() {
            Ok(())
        } else {
            Err(InvalidSettings::at(path, "a schema is an object"))
        };
    };
    for (key, value) in members {
        let inner = format!("{path}.{key}");
        match key.as_str() {
            "type" => check_types(value, &inner)?,
            "pattern" => drop(crate::pattern::compile(value.as_str().unwrap_or_default(), &inner)?),
            "$ref" if !schema::refers_within(root, value) => {
                let hint = "name a part of this schema, such as \"#/definitions/name\"";
                return Err(InvalidSettings::at(
                    inner,
                    format!("{value} does not resolve to a schema; {hint}"),
                ));
            }
            "properties" | "patternProperties" | "definitions" | "$defs" => {
                let Some(schemas) = value.as_object() else {
                    return Err(InvalidSettings::at(inner, "an object of schemas is expected"));
                };
                for (name, schema) in schemas {
                    check_schema(root, schema, &format!("{inner}.{name}"))?;
                }
            }
            "allOf" | "anyOf" | "oneOf" | "items" if value.is_array() => {
                for (at, schema) in value.as_array().into_iter().flatten().enumerate() {
                    check_schema(root, schema, &format!("{inner}[{at}]"))?;
                }
            }
            "dependencies" => {
                for (name, schema) in
                    value.as_object().into_iter().flatten().filter(|(_, needed)| !needed.is_array())
                {
                    check_schema(root, schema, &format!("{inner}.{name}"))?;
                }
            }
            "not" => check_schema(root, value, &inner)?,
            "items"
            | "additionalProperties"
            | "additionalItems"
            | "propertyNames"
            | "contains"
            | "if"
            | "then"
            | "else"
                if value.is_object() =>
            {
                check_schema(root, value, &inner)?
            }
            "required" if !value.is_array() && !value.is_boolean() => {
                return Err(InvalidSettings::at(inner, "a list of names is expected"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_types(value: &Value, path: &str) -> Result<(), InvalidSettings> {
    let known = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    let is_known = match value {
        Value::Array(names) => !names.is_empty() && names.iter().all(known),
        one => known(one),
    };
    let message = || format!("{value} is not a type; allowed: {}", TYPES.join(", "));
    if is_known { Ok(()) } else { Err(InvalidSettings::at(path, message())) }
}

impl RequestValidation {
    fn refuse<'a>(&self, found: &str) -> Step<'a> {
        let text = self.config.rejected_msg.as_deref().unwrap_or(found);
        Step::Respond(LocalResponse::status(self.config.rejected_code).body(text.to_owned()))
    }

    /// Continues with the validated body, or responds with a refusal.
    fn conclude<'a>(&self, ex: &mut Exchange<'_>, validated: Judged) -> Step<'a> {
        match validated {
            Ok(Ok(body)) => {
                ex.body.buffered = Some(body.into());
                Step::Continue
            }
            Ok(Err(found)) => self.refuse(&found),
            Err(refused) => Step::Respond(LocalResponse::error_msg(503, &refused.to_string())),
        }
    }
}

/// The validated body, or the validation error.
type Judged = Result<Result<Vec<u8>, String>, OffloadRefused>;

impl BodyRules {
    fn validate(&self, body: BufferedBody, is_form: bool) -> Result<Vec<u8>, String> {
        let bytes = body.into_bytes();
        let mut value = if is_form { self.form(&bytes)? } else { self.json(&bytes)? };
        schema::validate_document(&self.schema, &mut value).map_err(|invalid| invalid.message)?;
        if is_form {
            return Ok(bytes);
        }
        if let Some(completed) = splice::completed(&bytes, &value) {
            return Ok(completed);
        }
        // Parsers differ in which of duplicate names they use. The upstream gets the members that were
        // validated.
        serde_json::to_vec(&value).map_err(|error| error.to_string())
    }

    fn json(&self, body: &[u8]) -> Result<Value, String> {
        // Bounds memory: a tree takes up to 18 times the size of its text.
        match JsonScan::new(0, self.values_max).whole(body) {
            Err(JsonFault::TooManyValues) => Err(self.too_many()),
            // The parser reports any other fault with a better message.
            _ => serde_json::from_slice(body).map_err(|error| error.to_string()),
        }
    }

    fn form(&self, body: &[u8]) -> Result<Value, String> {
        if body.iter().filter(|byte| **byte == b'&').count() >= self.values_max {
            return Err(self.too_many());
        }
        Ok(form(body))
    }

    fn too_many(&self) -> String {
        format!("the body holds more than {} values", self.values_max)
    }
}

/// A form as an object; a name that occurs several times becomes an array.
fn form(body: &[u8]) -> Value {
    let mut members = Map::new();
    for (name, value) in pairs(body) {
        add(&mut members, String::from_utf8_lossy(&name).into_owned(), &value);
    }
    Value::Object(members)
}

fn add(members: &mut Map<String, Value>, name: String, value: &[u8]) {
    let value = Value::from(String::from_utf8_lossy(value));
    match members.get_mut(&name) {
        Some(Value::Array(values)) => values.push(value),
        Some(first) => *first = Value::Array(vec![first.take(), value]),
        None => drop(members.insert(name, value)),
    }
}

fn fields(ex: &Exchange<'_>) -> Value {
    let mut members = Map::new();
    for (name, value) in ex.request.fields.iter() {
        // Names of fields are case-insensitive (RFC 9110 §5.1).
        add(&mut members, String::from_utf8_lossy(name).to_ascii_lowercase(), value);
    }
    Value::Object(members)
}

impl Plugin for RequestValidation {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if let Some(schema) = &self.config.header_schema
            && let Err(invalid) = schema::validate_document(schema, &mut fields(ex))
        {
            return self.refuse(&invalid.message);
        }
        let Some(rules) = self.body_rules.clone() else { return Step::Continue };
        if ex.lacks_body(self.config.max_req_body_size) {
            return Step::NeedBody { bytes_max: self.config.max_req_body_size };
        }
        let body = ex.body.buffered.take().unwrap_or_default();
        // As in APISIX, a schema for the body makes a body mandatory.
        if body.is_empty() {
            return self.refuse("");
        }
        let content_type = ex.request.fields.known(KnownField::ContentType).unwrap_or_default();
        // The upstream could parse the body by another type than the one that was validated.
        if ex.has_ambiguous_content_type() {
            return self.refuse("the request names more than one Content-Type");
        }
        let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        // As in APISIX, a body of any other type is parsed as JSON.
        let is_form = media_type.eq_ignore_ascii_case(b"application/x-www-form-urlencoded");
        match compute(ex.host, body.len(), move || rules.validate(body, is_form)) {
            Computation::Ready(validated) => self.conclude(ex, validated),
            Computation::Pending(validation) => Step::Wait(Box::pin(async move {
                let validated = validation.await;
                self.conclude(ex, validated)
            })),
        }
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
