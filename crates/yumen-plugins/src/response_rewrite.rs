//! `response-rewrite`: changes status, fields and body of the response.

use std::io;
use std::sync::Arc;

use base64::Engine as _;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::vars::is_data_value;
use yumen_plugin::{
    BodyChunk, Computation, ConditionExpr, Exchange, PhaseSet, Plugin, PluginBuildContext, PluginFactory,
    PluginHost, ResponseBodyPhase, ResponseHead, ResponseHeadPhase, compute,
};

use crate::decoding::{ContentCoding, UnsupportedCoding};
use crate::edits::{PresenceEditSettings, PresenceEdits};
use crate::pattern::{self, LinearSubstitution, MatchReplacement};
use crate::text::{HeaderEdits, TextTemplate, header_map_schema, is_field_name, warn_of_message_fields};

/// Settings of `response-rewrite`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("dependencies" = {
    "body": {"not": {"required": ["filters"]}}, "filters": {"not": {"required": ["body"]}}
}))]
pub(crate) struct ResponseRewriteSettings {
    /// New status.
    #[schemars(range(min = 200, max = 598))]
    status_code: Option<u16>,
    /// Fields to add, set and remove; or a map of fields to set.
    #[serde(default)]
    #[schemars(schema_with = "headers_schema")]
    headers: Option<HeaderEdits<Vec<String>>>,
    /// Edits of fields by presence, after `headers`. Beyond APISIX.
    field_edits: Option<PresenceEditSettings>,
    /// New body.
    body: Option<String>,
    /// Whether the new body is in Base64.
    #[serde(default)]
    body_base64: bool,
    /// Replacements in the body, after its content coding was decoded (gzip, deflate, br, zstd). A body in
    /// another coding passes unchanged. A body that decodes to more than 256 KiB and more than 100 times its
    /// length is cut off as incomplete.
    #[schemars(length(min = 1))]
    filters: Option<Vec<BodyReplacement>>,
    /// Most bytes of a body that are collected for the replacements; the rest is discarded.
    #[serde(default = "body_bytes_max")]
    #[schemars(range(min = 1))]
    max_resp_body_size: usize,
    /// Conditions on the response.
    vars: Option<Vec<Value>>,
}

fn body_bytes_max() -> usize {
    64 << 20
}

fn headers_schema(generator: &mut SchemaGenerator) -> Schema {
    let map = header_map_schema(generator);
    json_schema!({"anyOf": [map, {"properties": {
        "add": {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^[^:]+:.*\\S"}},
        "set": map,
        "remove": {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^[^:]+$"}},
    }}]})
}

/// A replacement in the body.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct BodyReplacement {
    /// Pattern to replace.
    #[schemars(length(min = 1))]
    regex: String,
    /// Whether the first match is replaced, or all matches.
    #[serde(default)]
    scope: ReplacementScope,
    /// Replacement for the match.
    replace: String,
    /// Option letters of the pattern.
    #[serde(default = "jo")]
    options: String,
}

fn jo() -> String {
    "jo".to_owned()
}

/// Number of matches to replace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum ReplacementScope {
    #[default]
    Once,
    Global,
}

enum BodyRewrite {
    Keep,
    Replace(Vec<u8>),
    Filter { filters: Arc<BodyFilters>, bytes_max: usize },
}

/// The compiled settings.
pub(crate) struct ResponseRewrite {
    condition: Option<ConditionExpr>,
    status: Option<u16>,
    add: Vec<(String, TextTemplate)>,
    set: Vec<(String, TextTemplate)>,
    remove: Vec<String>,
    field_edits: Option<PresenceEdits>,
    body: BodyRewrite,
}

/// A response body that is being collected for one instance of the plugin.
struct FilterBody {
    of: usize,
    bytes: Vec<u8>,
    /// Content coding of the collected bytes.
    coding: Option<ContentCoding>,
    done: bool,
}

#[derive(Default)]
struct CollectedBodies(Vec<FilterBody>);

impl PluginFactory for ResponseRewrite {
    const NAME: &'static str = "response-rewrite";
    const PRIORITY: i32 = 899;
    type Config = ResponseRewriteSettings;

    fn build(
        config: ResponseRewriteSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<Self, InvalidSettings> {
        let body = match (config.body, config.filters) {
            (Some(_), Some(_)) => return Err(InvalidSettings::new("body and filters do not go together")),
            (Some(text), None) if config.body_base64 => BodyRewrite::Replace(decode(&text)?),
            (None, _) if config.body_base64 => return Err(InvalidSettings::new("invalid base64 content")),
            (Some(text), None) => BodyRewrite::Replace(text.into_bytes()),
            (None, Some(filters)) => {
                let filters = filters.into_iter().map(filter).collect::<Result<_, _>>()?;
                BodyRewrite::Filter {
                    filters: Arc::new(BodyFilters(filters)),
                    bytes_max: config.max_resp_body_size,
                }
            }
            (None, None) => BodyRewrite::Keep,
        };
        let parse = |vars| {
            ConditionExpr::parse(&Value::Array(vars)).map_err(|message| {
                InvalidSettings::new(format!("failed to validate the 'vars' expression: {message}"))
            })
        };
        let operations = config.headers.map(HeaderEdits::into_operations).unwrap_or_default();
        let names = operations.set.0.iter().map(|(name, _)| name).chain(&operations.remove);
        warn_of_message_fields(setup, "headers", false, names);
        let add = operations.add.iter().map(|line| added(line)).collect::<Result<Vec<_>, _>>()?;
        warn_of_message_fields(setup, "headers.add", false, add.iter().map(|(name, _)| name));
        let set = |(name, values): (String, Vec<String>)| (name, TextTemplate::parse(&values.concat()));
        let field_edits =
            config.field_edits.map(|edits| PresenceEdits::new(edits, "field_edits", is_field_name));
        Ok(ResponseRewrite {
            condition: config.vars.map(parse).transpose()?,
            status: config.status_code,
            add,
            set: operations.set.0.into_iter().map(set).collect(),
            remove: operations.remove,
            field_edits: field_edits.transpose()?,
            body,
        })
    }
}

fn decode(text: &str) -> Result<Vec<u8>, InvalidSettings> {
    let refused = || InvalidSettings::new("invalid base64 content");
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).map_err(|_| refused())?;
    if bytes.is_empty() { Err(refused()) } else { Ok(bytes) }
}

fn filter(filter: BodyReplacement) -> Result<(ReplacementScope, LinearSubstitution), InvalidSettings> {
    let refused = |error: InvalidSettings| {
        InvalidSettings::new(format!("regex \"{}\" validation failed: {}", filter.regex, error.message))
    };
    // Bodies have any length, so their patterns must be linear.
    let regex = pattern::linear_with_options(&filter.regex, &filter.options, "filters").map_err(refused)?;
    let by = MatchReplacement::parse(&filter.replace, "filters").map_err(refused)?;
    Ok((filter.scope, LinearSubstitution::new(regex, by)))
}

/// Parses `Name: value` as a field to add.
fn added(line: &str) -> Result<(String, TextTemplate), InvalidSettings> {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    let (name, value) = (name.trim_end(), value.trim_start());
    if !is_field_name(name) || value.is_empty() {
        let message = format!("\"{line}\" is not a field: expected a name, a colon and a value");
        return Err(InvalidSettings::at("headers.add", message));
    }
    // A value from a reference has no variables.
    let text = if is_data_value(line) { TextTemplate::plain(value) } else { TextTemplate::parse(value) };
    Ok((name.to_owned(), text))
}

impl ResponseRewrite {
    /// Identity of this plugin instance.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn begin_body(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        let (length, coding) = match &self.body {
            BodyRewrite::Keep => return,
            BodyRewrite::Replace(body) => (Some(body.len() as u64), None),
            // A pattern cannot be applied to a range of a coded body (206).
            BodyRewrite::Filter { .. } => match ContentCoding::of(head) {
                Ok(coding) if coding.is_none() || head.status != 206 => (None, coding),
                Ok(_) | Err(UnsupportedCoding) => return,
            },
        };
        head.body_changes(length);
        ex.edit_body();
        // The coding and the validators belong to the former content (RFC 9110 §8.4, §8.8).
        for name in ["Content-Encoding", "Last-Modified", "ETag"] {
            head.fields.remove(name);
        }
        // A global rule and the route may have the plugin, so each instance has a body of its own.
        if ex.note::<CollectedBodies>().is_none() {
            ex.leave(CollectedBodies::default());
        }
        if let Some(bodies) = ex.note_mut::<CollectedBodies>() {
            bodies.0.push(FilterBody { of: self.key(), bytes: Vec::new(), coding, done: false });
        }
    }

    fn edit_fields(&self, ex: &Exchange<'_>, head: &mut ResponseHead) {
        let mut value = Vec::new();
        for (name, text) in &self.add {
            value.clear();
            text.render(ex, &mut value);
            head.fields.add(name, &value);
        }
        for (name, text) in &self.set {
            value.clear();
            text.render(ex, &mut value);
            // An empty value counts as absent and removes the field.
            if value.is_empty() {
                head.fields.remove(name);
            } else {
                head.fields.set(name, &value);
            }
        }
        for name in &self.remove {
            head.fields.remove(name);
        }
        if let Some(edits) = &self.field_edits {
            edits.edit_fields(&edits.values(ex, None), &mut head.fields);
        }
    }
}

/// Replacements in order; shared with the threads that process large bodies.
struct BodyFilters(Vec<(ReplacementScope, LinearSubstitution)>);

impl BodyFilters {
    /// The decoded body with its replacements, or an error if decoding failed.
    fn replaced(
        &self,
        body: Vec<u8>,
        coding: Option<ContentCoding>,
        bytes_max: usize,
    ) -> io::Result<Vec<u8>> {
        let mut body = match coding {
            None => body,
            Some(coding) => coding.decode(&body, bytes_max)?,
        };
        for (scope, substitution) in &self.0 {
            let at_most = match scope {
                ReplacementScope::Once => 1,
                ReplacementScope::Global => usize::MAX,
            };
            body = substitution.replaced(&body, at_most).unwrap_or(body);
        }
        Ok(body)
    }
}

/// Applies the replacements, on another thread if the body is large.
fn replace(
    filters: &Arc<BodyFilters>,
    body: Vec<u8>,
    coding: Option<ContentCoding>,
    bytes_max: usize,
    host: &dyn PluginHost,
) -> Computation<io::Result<Vec<u8>>> {
    /// Cost of a coded byte relative to one that is not coded.
    const CODED_WEIGHT: usize = 16;
    let weight = if coding.is_some() { body.len().saturating_mul(CODED_WEIGHT) } else { body.len() };
    let filters = filters.clone();
    compute(host, weight, move || filters.replaced(body, coding, bytes_max))
}

impl Plugin for ResponseRewrite {
    fn phases(&self) -> PhaseSet {
        match self.body {
            BodyRewrite::Keep => PhaseSet::RESPONSE_HEAD,
            _ => PhaseSet::RESPONSE_HEAD | PhaseSet::RESPONSE_BODY,
        }
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        if self.condition.as_ref().is_some_and(|condition| !condition.eval(ex)) {
            return;
        }
        // After 101 the connection changes its protocol: the status is fixed and there is no body.
        if head.status != 101 {
            if let Some(status) = self.status {
                head.set_status(status);
            }
            self.begin_body(ex, head);
        }
        self.edit_fields(ex, head);
    }

    fn response_body(&self, ex: &mut ResponseBodyPhase<'_, '_>, chunk: BodyChunk) -> BodyChunk {
        let key = self.key();
        let find = |bodies: &'_ mut CollectedBodies| bodies.0.iter().position(|body| body.of == key);
        let Some(bodies) = ex.note_mut::<CollectedBodies>() else { return chunk };
        let Some(at) = find(bodies) else { return chunk };
        let collected = &mut bodies.0[at];
        match &self.body {
            BodyRewrite::Keep => chunk,
            // The new body was sent in place of the first chunk.
            _ if collected.done => BodyChunk { data: Vec::new(), last: true, ..chunk },
            BodyRewrite::Replace(body) => {
                collected.done = true;
                BodyChunk { data: body.clone(), last: true, ..chunk }
            }
            BodyRewrite::Filter { filters, bytes_max } => {
                // Not negative: a body of this length is replaced at once.
                let room = bytes_max - collected.bytes.len();
                collected.bytes.extend_from_slice(&chunk.data[..chunk.data.len().min(room)]);
                if !chunk.last && collected.bytes.len() < *bytes_max {
                    return BodyChunk { data: Vec::new(), ..chunk };
                }
                collected.done = true;
                let (bytes, coding) = (std::mem::take(&mut collected.bytes), collected.coding);
                match replace(filters, bytes, coding, *bytes_max, ex.host) {
                    Computation::Ready(replaced) => {
                        // The head was sent already, so a failure can only end the response as broken.
                        let body = replaced.ok().and_then(Result::ok);
                        let broken = chunk.broken || body.is_none();
                        BodyChunk { data: body.unwrap_or_default(), broken, last: true, ..chunk }
                    }
                    Computation::Pending(replacing) => {
                        ex.defer_body(Box::pin(async move { replacing.await.ok().and_then(Result::ok) }));
                        BodyChunk { data: Vec::new(), last: true, ..chunk }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
