//! `request-validation`: refuses requests whose fields or body do not follow a JSON schema.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use yumen_config::schema::{self, Invalid};
use yumen_http::Known;
use yumen_plugin::{Configure, Exchange, Foreseen, Phases, Plugin, Response, Setup, Step};

use crate::query::pairs;

/// Settings of `request-validation`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("anyOf" = [{"required": ["header_schema"]}, {"required": ["body_schema"]}]))]
pub(crate) struct Config {
    /// The schema of the fields, as an object of texts; names are in lower case.
    #[schemars(extend("type" = "object"))]
    header_schema: Option<Value>,
    /// The schema of the body, which is a form or JSON. A `$ref` leads to another part of
    /// it, such as `#/$defs/name`.
    #[schemars(extend("type" = "object"))]
    body_schema: Option<Value>,
    /// maximum request body size in bytes buffered into memory; larger request bodies are rejected
    #[serde(default = "max_req_body_size")]
    #[schemars(range(min = 1))]
    max_req_body_size: usize,
    /// Status of the refusal.
    #[serde(default = "rejected_code")]
    #[schemars(range(min = 200, max = 599))]
    rejected_code: u16,
    /// Text of the refusal, instead of what is wrong.
    #[schemars(length(min = 1, max = 256))]
    rejected_msg: Option<String>,
}

fn max_req_body_size() -> usize {
    64 << 20
}

fn rejected_code() -> u16 {
    400
}

/// The plugin.
#[derive(Debug)]
pub(crate) struct RequestValidation(Config);

impl Configure for RequestValidation {
    const NAME: &'static str = "request-validation";
    const PRIORITY: i32 = 2800;
    const GUARDS: bool = true;
    type Config = Config;

    fn build(config: Config, _: &Setup<'_>) -> Result<Self, Invalid> {
        for (path, schema) in [("header_schema", &config.header_schema), ("body_schema", &config.body_schema)]
        {
            if let Some(schema) = schema {
                check_schema(schema, schema, path)?;
            }
        }
        Ok(RequestValidation(config))
    }
}

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Finds what would make a schema mean nothing: unknown types, properties that are no schemas, patterns
/// that do not compile, references to what is not there.
fn check_schema(root: &Value, schema: &Value, path: &str) -> Result<(), Invalid> {
    let Some(members) = schema.as_object() else {
        return if schema.is_boolean() { Ok(()) } else { Err(Invalid::at(path, "a schema is an object")) };
    };
    for (key, value) in members {
        let inner = format!("{path}.{key}");
        match key.as_str() {
            "type" => check_types(value, &inner)?,
            "pattern" => drop(crate::pattern::compile(value.as_str().unwrap_or_default(), &inner)?),
            "$ref" if !schema::refers_within(root, value) => {
                let hint = "name a part of this schema, such as \"#/definitions/name\"";
                return Err(Invalid::at(inner, format!("{value} leads to no schema; {hint}")));
            }
            "properties" | "patternProperties" | "definitions" | "$defs" => {
                let Some(schemas) = value.as_object() else {
                    return Err(Invalid::at(inner, "an object of schemas is expected"));
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
                return Err(Invalid::at(inner, "a list of names is expected"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_types(value: &Value, path: &str) -> Result<(), Invalid> {
    let known = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    let is_known = match value {
        Value::Array(names) => !names.is_empty() && names.iter().all(known),
        one => known(one),
    };
    let message = || format!("{value} is no type; known: {}", TYPES.join(", "));
    if is_known { Ok(()) } else { Err(Invalid::at(path, message())) }
}

impl RequestValidation {
    fn refuse<'a>(&self, found: &str) -> Step<'a> {
        let text = self.0.rejected_msg.as_deref().unwrap_or(found);
        Step::Respond(Response::status(self.0.rejected_code).body(text.to_owned()))
    }

    /// What is wrong with a body; what it says, where it is JSON.
    fn read(&self, schema: &Value, ex: &Exchange<'_>, body: &[u8]) -> Result<Option<Value>, String> {
        let content_type = ex.request.fields.known(Known::ContentType).unwrap_or_default();
        let is_form = content_type.starts_with(b"application/x-www-form-urlencoded");
        let mut value = if is_form {
            form(body)
        } else {
            serde_json::from_slice(body).map_err(|error| error.to_string())?
        };
        schema::validate_document(schema, &mut value).map_err(|invalid| invalid.message)?;
        Ok((!is_form).then_some(value))
    }
}

/// A form as an object: a name that comes twice is a list.
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
        add(&mut members, String::from_utf8_lossy(name).to_ascii_lowercase(), value);
    }
    Value::Object(members)
}

impl Plugin for RequestValidation {
    fn phases(&self) -> Phases {
        Phases::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if let Some(schema) = &self.0.header_schema
            && let Err(invalid) = schema::validate_document(schema, &mut fields(ex))
        {
            return self.refuse(&invalid.message);
        }
        let Some(schema) = &self.0.body_schema else { return Step::Continue };
        if ex.lacks_body(self.0.max_req_body_size) {
            return Step::NeedBody { bytes_max: self.0.max_req_body_size };
        }
        let body = ex.body.as_deref().unwrap_or_default();
        if body.is_empty() {
            return self.refuse("");
        }
        match self.read(schema, ex, body) {
            Err(found) => self.refuse(&found),
            Ok(None) => Step::Continue,
            Ok(Some(value)) => {
                // What was looked at is what goes on: two readers may take a doubled name differently.
                ex.body = Some(value.to_string().into_bytes());
                Step::Continue
            }
        }
    }

    fn foresee(&self, phase: Phases, ex: &mut Exchange<'_>) -> Foreseen {
        Foreseen::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
