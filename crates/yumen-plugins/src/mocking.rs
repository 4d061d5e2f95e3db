//! `mocking`: responds locally with an example, or with random values of a JSON schema.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, PluginBuildContext, PluginFactory, PluginHost,
    Step,
};

use crate::text::{HeaderEntries, TextTemplate, final_status, header_map_schema, warn_of_message_fields};

/// Settings of `mocking`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("anyOf" = [{"required": ["response_example"]}, {"required": ["response_schema"]}]))]
pub(crate) struct MockingSettings {
    /// Delay of the response in seconds.
    #[serde(default)]
    delay: i64,
    /// Status of the response; a number below 200 counts as 200, one above 999 as 999.
    #[serde(default = "ok")]
    #[schemars(range(min = 100))]
    response_status: u64,
    /// Media type of the body: JSON, XML, plain text or HTML.
    #[serde(default = "json_type")]
    content_type: String,
    /// Body of the response; may contain variables.
    response_example: Option<String>,
    /// JSON schema from which a random body is generated.
    response_schema: Option<Map<String, Value>>,
    /// Whether the response carries the field `x-mock-by`.
    #[serde(default = "yes")]
    with_mock_header: bool,
    /// Further fields of the response; values may contain variables.
    #[serde(default)]
    #[schemars(schema_with = "header_map_schema")]
    response_headers: Option<HeaderEntries>,
}

fn ok() -> u64 {
    200
}

fn yes() -> bool {
    true
}

fn json_type() -> String {
    JSON.to_owned()
}

const JSON: &str = "application/json;charset=utf8";

/// Format of a generated body.
#[derive(Debug, Clone, Copy, PartialEq)]
enum MockFormat {
    Json,
    Xml,
    Nothing,
}

impl MockFormat {
    fn of(content_type: &str) -> Option<MockFormat> {
        match content_type.rsplit_once(';').map_or(content_type, |(bare, _)| bare) {
            "application/json" | "text/plain" => Some(MockFormat::Json),
            "application/xml" | "text/xml" => Some(MockFormat::Xml),
            "text/html" => Some(MockFormat::Nothing),
            _ => None,
        }
    }
}

enum MockBody {
    /// The prepared response contains the body.
    Fixed,
    Text(TextTemplate),
    Shape(Map<String, Value>, MockFormat),
}

/// The compiled settings.
pub(crate) struct Mocking {
    /// The part of the response that is equal for all requests.
    prepared: LocalResponse,
    fields: Vec<(String, TextTemplate)>,
    body: MockBody,
    delay: Option<Duration>,
}

impl PluginFactory for Mocking {
    const NAME: &'static str = "mocking";
    const PRIORITY: i32 = 10900;
    type Config = MockingSettings;

    fn build(config: MockingSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let format = MockFormat::of(&config.content_type)
            .ok_or_else(|| InvalidSettings::new("unsupported content type!"))?;
        let mut prepared = LocalResponse::status(final_status(config.response_status));
        prepared = if config.content_type == JSON {
            prepared.field("Content-Type", JSON)
        } else {
            prepared.field("Content-Type", config.content_type)
        };
        if config.with_mock_header {
            prepared = prepared.field("x-mock-by", crate::MODEL);
        }
        let mut fields = Vec::new();
        let headers = config.response_headers.unwrap_or_default().0;
        warn_of_message_fields(setup, "response_headers", false, headers.iter().map(|(name, _)| name));
        for (name, values) in headers {
            for value in values {
                let text = TextTemplate::parse(&value);
                // Prepared fields precede the rendered ones, so a fixed field after a template is rendered
                // too.
                match text.as_plain() {
                    Some(_) if fields.is_empty() => prepared = prepared.field(&name, value),
                    _ => fields.push((name.clone(), text)),
                }
            }
        }
        if config.response_example.is_some() && config.response_schema.is_some() {
            let message = "\"response_schema\" has no effect beside \"response_example\"";
            setup.warn("response_schema", message, "remove one of the two");
        }
        let body = match (config.response_example, config.response_schema) {
            (Some(example), _) => {
                let text = TextTemplate::parse(&example);
                match text.as_plain() {
                    Some(_) => {
                        prepared = prepared.body(example);
                        MockBody::Fixed
                    }
                    None => MockBody::Text(text),
                }
            }
            (None, Some(schema)) => MockBody::Shape(schema, format),
            (None, None) => {
                return Err(InvalidSettings::new("one of response_example and response_schema is required"));
            }
        };
        let delay = u64::try_from(config.delay).ok().filter(|s| *s > 0).map(Duration::from_secs);
        Ok(Mocking { prepared, fields, body, delay })
    }
}

impl Mocking {
    fn answer(&self, ex: &Exchange<'_>) -> LocalResponse {
        let mut response = self.prepared.clone();
        for (name, value) in &self.fields {
            let mut out = Vec::new();
            value.render(ex, &mut out);
            response.fields_mut().add(name, &out);
        }
        match &self.body {
            MockBody::Fixed => {}
            MockBody::Text(text) => {
                let mut out = Vec::new();
                text.render(ex, &mut out);
                response.body = out.into();
            }
            MockBody::Shape(schema, format) => {
                let value = object(schema, ex.host, 0);
                response.body = match format {
                    MockFormat::Json => value.to_string().into(),
                    MockFormat::Xml => {
                        let mut out = String::new();
                        xml(&mut out, "data", &value);
                        out.into()
                    }
                    MockFormat::Nothing => bytes::Bytes::new(),
                };
            }
        }
        response
    }
}

impl Plugin for Mocking {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let Some(delay) = self.delay else { return Step::Respond(self.answer(ex)) };
        Step::Wait(Box::pin(async move {
            ex.host.sleep(delay).await;
            Step::Respond(self.answer(ex))
        }))
    }

    fn responds_always_in(&self) -> Option<PhaseSet> {
        Some(PhaseSet::ACCESS)
    }

    fn dry_run(&self, _phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::Respond(self.answer(ex))
    }
}

/// Deepest nesting of a generated body.
const DEPTH_MAX: usize = 32;

fn object(schema: &Map<String, Value>, host: &dyn PluginHost, depth: usize) -> Value {
    let Some(Value::Object(properties)) = schema.get("properties") else {
        return Value::Object(Map::new());
    };
    let made = |(name, property): (&String, &Value)| Some((name.clone(), make(property, host, depth + 1)?));
    Value::Object(properties.iter().filter_map(made).collect())
}

/// Generates a value of the schema, from its example if that has the right type.
fn make(schema: &Value, host: &dyn PluginHost, depth: usize) -> Option<Value> {
    // Values beyond the depth limit are left out.
    let schema = schema.as_object().filter(|_| depth <= DEPTH_MAX)?;
    let example = schema.get("example");
    // The ranges of random values are those of APISIX.
    let between = |low: u64, high: u64| low + host.random() % (high - low + 1);
    match schema.get("type")?.as_str()?.to_ascii_lowercase().as_str() {
        "object" => Some(object(schema, host, depth)),
        "array" => {
            let items = schema.get("items")?;
            Some((0..between(1, 3)).filter_map(|_| make(items, host, depth + 1)).collect())
        }
        "string" => match example {
            Some(Value::String(text)) => Some(text.clone().into()),
            _ => {
                let letter = |_| char::from(b'a' + between(0, 25) as u8);
                Some((0..between(1, 10)).map(letter).collect::<String>().into())
            }
        },
        "number" => match example {
            Some(Value::Number(number)) => Some(number.clone().into()),
            // 53 random bits, the precision of a double.
            _ => Some(((host.random() >> 11) as f64 / (1u64 << 53) as f64 * 10_000.0).into()),
        },
        "integer" => match example.and_then(Value::as_f64) {
            Some(number) => Some((number.floor() as i64).into()),
            None => Some(between(1, 10_000).into()),
        },
        "boolean" => match example {
            Some(Value::Bool(given)) => Some((*given).into()),
            _ => Some((between(0, 1) == 1).into()),
        },
        _ => None,
    }
}

fn xml(out: &mut String, name: &str, value: &Value) {
    let open = |out: &mut String| out.extend(["<", name, ">"]);
    match value {
        Value::Array(items) => return items.iter().for_each(|item| xml(out, name, item)),
        Value::Object(members) => {
            open(out);
            members.iter().for_each(|(name, member)| xml(out, name, member));
        }
        Value::String(text) => {
            open(out);
            // Quotes need no escape in the content of an element (XML 1.0 §2.4).
            out.push_str(&text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"));
        }
        other => {
            open(out);
            out.push_str(&other.to_string());
        }
    }
    out.extend(["</", name, ">"]);
}

#[cfg(test)]
mod tests;
