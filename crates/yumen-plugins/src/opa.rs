//! `opa`: lets Open Policy Agent authorize requests.
//!
//! The plugin describes the request as a JSON document and applies the decision of a policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, Fields, LocalResponse, Method, PhaseSet, Plugin, PluginBuildContext,
    PluginFactory, Step, SubrequestFault, SubrequestResponse, SubrequestSpec, Var,
};

use crate::query;
use crate::service::{ServiceSettings, ServiceTarget, ServiceUrl, is_of_connection};
use crate::text::{is_field_name, warn_of_message_fields};

#[cfg(test)]
mod tests;

/// Settings of `opa`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct OpaSettings {
    /// URL of Open Policy Agent; http or https.
    host: String,
    /// Path of the policy below `/v1/data`: `example` or `example/http`. Its result is an object with `allow`.
    policy: String,
    /// Time limit of a decision in milliseconds.
    #[serde(default = "timeout_ms")]
    #[schemars(range(min = 1, max = 60000))]
    timeout: u64,
    #[serde(flatten)]
    service: ServiceSettings,
    #[serde(flatten)]
    objects: DescribedObjects,
    /// Fields of the decision's `headers` that the upstream gets. They replace the client's fields with these names, also
    /// those that differ only in `_` for `-`, and these are removed if the decision has no such field.
    #[schemars(length(min = 1))]
    send_headers_upstream: Option<Vec<String>>,
}

/// Objects in the input of a policy.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct DescribedObjects {
    /// Whether the input has the route, without its upstream and the settings of its plugins.
    #[serde(default)]
    with_route: ObjectInclusion,
    /// Whether the input has the service, without its upstream and the settings of its plugins.
    #[serde(default)]
    with_service: ObjectInclusion,
    /// Whether the input has the consumer, without the settings of its plugins.
    #[serde(default)]
    with_consumer: ObjectInclusion,
}

/// Whether the input has an object.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
struct ObjectInclusion(bool);

fn timeout_ms() -> u64 {
    3000
}

/// The compiled settings.
pub(crate) struct OpaPlugin {
    service: ServiceTarget,
    objects: DescribedObjects,
    sent_upstream: Vec<String>,
}

impl PluginFactory for OpaPlugin {
    const NAME: &'static str = "opa";
    const PRIORITY: i32 = 2001;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = OpaSettings;

    fn build(config: OpaSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let how = config.service.connection(Self::NAME, config.timeout);
        ServiceUrl::parse("host", &config.host)?;
        if config.host.contains('?') {
            return Err(InvalidSettings::at(
                "host",
                "a query is not accepted, since the policy follows the URL",
            ));
        }
        let endpoint = format!(
            "{}/v1/data/{}",
            config.host.trim_end_matches('/'),
            config.policy.trim_start_matches('/')
        );
        let url = ServiceUrl::parse("policy", &endpoint).map_err(|_| {
            InvalidSettings::at("policy", format!("\"{}\" is no path, such as example/http", config.policy))
        })?;
        let service = ServiceTarget::build("host", &url, &how, setup.objects)?;
        let sent_upstream = config.send_headers_upstream.unwrap_or_default();
        if let Some(name) = sent_upstream.iter().find(|name| !is_field_name(name)) {
            return Err(InvalidSettings::at(
                "send_headers_upstream",
                format!("\"{name}\" is not a field name"),
            ));
        }
        warn_of_message_fields(setup, "send_headers_upstream", true, &sent_upstream);
        Ok(OpaPlugin { service, objects: config.objects, sent_upstream })
    }
}

impl OpaPlugin {
    fn question(&self, ex: &Exchange<'_>) -> SubrequestSpec {
        let mut question = self.service.request(Method::Post);
        question.fields.add("Content-Type", b"application/json");
        question.body = json!({ "input": self.input(ex) }).to_string().into_bytes();
        question
    }

    /// The document that the policy sees as `input`.
    fn input(&self, ex: &Exchange<'_>) -> Value {
        let mut input = json!({ "type": "http", "request": described_request(ex), "var": connection(ex) });
        let DescribedObjects { with_route, with_service, with_consumer } = &self.objects;
        let route = ex.route.info.filter(|_| with_route.0).and_then(|info| info.written.as_deref());
        let service =
            ex.route.info.filter(|_| with_service.0).and_then(|info| info.service_written.as_deref());
        let consumer = ex.consumer.filter(|_| with_consumer.0).and_then(|one| one.written.as_deref());
        for (member, written) in [("route", route), ("service", service), ("consumer", consumer)] {
            if let Some(object) = written.and_then(described_object) {
                input[member] = object;
            }
        }
        input
    }

    /// The step that follows from the response.
    fn apply_response<'a>(
        &self,
        ex: &mut Exchange<'_>,
        answer: Result<SubrequestResponse, SubrequestFault>,
    ) -> Step<'a> {
        // Fails closed: without a whole decision, the request is not admitted.
        let Ok(answer @ SubrequestResponse { fault: None, .. }) = answer else {
            return Step::Respond(LocalResponse::status(403));
        };
        if answer.status != 200 {
            return Step::Respond(LocalResponse::status(503));
        }
        let document = answer.body.and_then(|body| serde_json::from_slice::<Value>(&body).ok());
        let Some(result) = document.as_ref().and_then(|document| document.get("result")?.as_object()) else {
            return Step::Respond(LocalResponse::status(503));
        };
        let headers = result.get("headers").and_then(Value::as_object);
        // Stricter than APISIX, where any value except null and false admits: the text "false" must not.
        if result.get("allow") != Some(&Value::Bool(true)) {
            return Step::Respond(refusal(result, headers));
        }
        self.pass_on(headers, &mut ex.request.fields);
        Step::Continue
    }

    /// Copies `send_headers_upstream` from the decision. The client's fields with these names are removed in any case,
    /// because the upstream trusts them.
    fn pass_on(&self, headers: Option<&Map<String, Value>>, fields: &mut Fields) {
        for name in &self.sent_upstream {
            fields.remove_equivalent(name);
        }
        for (at, name) in self.sent_upstream.iter().enumerate() {
            // A name that is listed twice must not add its values twice.
            let is_first = !self.sent_upstream[..at].iter().any(|before| before.eq_ignore_ascii_case(name));
            let found = headers.into_iter().flatten().find(|(key, _)| key.eq_ignore_ascii_case(name));
            if let Some((_, value)) = found.filter(|_| is_first) {
                field_values(value).iter().for_each(|value| fields.add(name, value.as_bytes()));
            }
        }
    }

    async fn wait<'a>(
        &self,
        ex: &mut Exchange<'_>,
        response: LocalFuture<'static, Result<SubrequestResponse, SubrequestFault>>,
    ) -> Step<'a> {
        let answer = response.await;
        self.apply_response(ex, answer)
    }
}

/// The response to a refused client: `status_code`, `headers` and `reason` of the decision.
fn refusal(result: &Map<String, Value>, headers: Option<&Map<String, Value>>) -> LocalResponse {
    let status = result.get("status_code").and_then(Value::as_u64);
    // RFC 9110 section 15: other values are no statuses of final responses.
    let status = status.filter(|status| (200..=599).contains(status)).unwrap_or(403);
    let mut response = LocalResponse::status(status as u16);
    for (name, value) in headers.into_iter().flatten().filter(|(name, _)| !is_of_connection(name)) {
        for value in field_values(value) {
            response.fields_mut().add(name, value.as_bytes());
        }
    }
    match result.get("reason") {
        None | Some(Value::Null) => response,
        Some(Value::String(reason)) => response.body(reason.clone()),
        Some(reason) => response.body(reason.to_string()),
    }
}

/// The values of a field in a decision. Objects are no values.
fn field_values(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Number(_) | Value::Bool(_) => vec![value.to_string()],
        Value::Array(list) => list.iter().flat_map(field_values).collect(),
        Value::Null | Value::Object(_) => Vec::new(),
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

fn variable(name: &str, ex: &Exchange<'_>) -> String {
    Var::parse(name).get(ex).map(|value| lossy(&value)).unwrap_or_default()
}

fn described_request(ex: &Exchange<'_>) -> Value {
    let request = &ex.request;
    let mut headers = Map::new();
    for (name, value) in request.fields.iter() {
        add_value(&mut headers, lossy(name).to_ascii_lowercase(), Value::String(lossy(value)));
    }
    let mut arguments = Map::new();
    let query_text = request.query().unwrap_or_default();
    for (name, value) in query::pairs(query_text) {
        // In APISIX, an argument without an equals sign is `true`.
        let is_flag = value.is_empty() && query::argument(query_text, &name) == query::QueryArgument::Other;
        let value = if is_flag { Value::Bool(true) } else { Value::String(lossy(&value)) };
        add_value(&mut arguments, lossy(&name), value);
    }
    json!({
        "scheme": ex.client.scheme(),
        "method": lossy(request.method_name()),
        "host": lossy(request.host()),
        "port": variable("server_port", ex).parse::<u16>().ok(),
        "path": variable("uri", ex),
        "headers": headers,
        "query": arguments,
    })
}

/// Adds a value; several values of one name become a list, so that a policy sees all of them.
fn add_value(object: &mut Map<String, Value>, name: String, value: Value) {
    match object.get_mut(&name) {
        None => drop(object.insert(name, value)),
        Some(Value::Array(list)) => list.push(value),
        Some(first) => *first = Value::Array(vec![first.take(), value]),
    }
}

fn connection(ex: &Exchange<'_>) -> Value {
    json!({
        "server_addr": variable("server_addr", ex),
        "server_port": variable("server_port", ex),
        "remote_addr": variable("remote_addr", ex),
        "remote_port": variable("remote_port", ex),
        "timestamp": ex.now.unix_s(),
    })
}

/// An object as written, without its upstream. Settings of plugins are left out, because they may have secrets, which
/// decision logs of the server would keep.
fn described_object(written: &str) -> Option<Value> {
    let mut object: Map<String, Value> = serde_json::from_str(written).ok()?;
    object.remove("upstream");
    object.remove("backends");
    if let Some(Value::Object(plugins)) = object.get_mut("plugins") {
        plugins.values_mut().for_each(|settings| *settings = json!({}));
    }
    Some(Value::Object(object))
}

impl Plugin for OpaPlugin {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let response = self.service.send(ex.host, self.question(ex));
        Step::Wait(Box::pin(self.wait(ex, response)))
    }

    fn dry_run(&self, _: PhaseSet, _: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::Note(format!("depends on the decision of {}", self.service.describe()).into())
    }
}
