//! `degraphql`: turns a REST request into a fixed GraphQL query with variables from its query or body.
//!
//! The plugin parses the document only to validate it. It builds the JSON envelope of GraphQL over HTTP; the
//! upstream executes the query.

use std::fmt;
use std::sync::Arc;

use apollo_parser::Parser;
use apollo_parser::cst::Definition;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};
use yumen_config::schema::InvalidSettings;
use yumen_http::Method;
use yumen_plugin::{
    Computation, DryRunResult, Exchange, JsonFault, JsonScan, LocalResponse, OffloadRefused, PhaseSet,
    Plugin, PluginBuildContext, PluginFactory, Step, compute,
};

use crate::query::pairs;

/// Settings of `degraphql`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct DegraphqlSettings {
    /// GraphQL document.
    #[schemars(length(min = 1, max = 1024))]
    query: String,
    /// Names of the variables that are taken from the request.
    #[schemars(length(min = 1))]
    variables: Option<Vec<String>>,
    /// Name of the operation to execute; required if the document has several.
    #[schemars(length(min = 1, max = 1024))]
    operation_name: Option<String>,
    /// Largest request body in bytes; a larger one is refused with 413.
    #[serde(default = "max_req_body_size")]
    #[schemars(range(min = 1))]
    max_req_body_size: usize,
}

fn max_req_body_size() -> usize {
    1 << 20
}

/// Most JSON values in a request body with variables.
const BODY_VALUES_MAX: usize = 100_000;

/// The compiled settings; shared with the threads that build large envelopes.
pub(crate) struct Degraphql(Arc<DegraphqlSettings>);

impl PluginFactory for Degraphql {
    const NAME: &'static str = "degraphql";
    const PRIORITY: i32 = 509;
    type Config = DegraphqlSettings;

    fn build(config: DegraphqlSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let tree = Parser::new(&config.query).recursion_limit(64).parse();
        if let Some(error) = tree.errors().next() {
            return Err(InvalidSettings::at("query", format!("failed to parse query: {}", error.message())));
        }
        let definitions = tree.document().definitions();
        let operations =
            definitions.filter(|one| matches!(one, Definition::OperationDefinition(_))).take(2).count();
        if operations > 1 && config.operation_name.is_none() {
            let message = "operation_name is required if multiple operations are present in the query";
            return Err(InvalidSettings::new(message));
        }
        Ok(Degraphql(Arc::new(config)))
    }
}

impl Degraphql {
    /// Replaces the query of the target with the GraphQL parameters.
    fn rewrite_get(&self, ex: &mut Exchange<'_>) {
        let mut given = Map::new();
        for (name, value) in pairs(ex.request.query().unwrap_or_default()) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            // The first of several values applies.
            given.entry(text(&name)).or_insert_with(|| text(&value).into());
        }
        let original = ex.request.upstream_target();
        let path = original.split(|byte| *byte == b'?').next().unwrap_or_default();
        let mut target = path.to_vec();
        let mut add = |name: &str, value: &str| {
            target.push(if target.contains(&b'?') { b'&' } else { b'?' });
            target.extend_from_slice(
                format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)).as_bytes(),
            );
        };
        add("query", &self.0.query);
        if let Some(variables) = self.0.variables(given) {
            add("variables", &variables.to_string());
        }
        if let Some(name) = &self.0.operation_name {
            add("operationName", name);
        }
        ex.request.set_upstream_target(&target);
    }

    /// Replaces the body with the JSON envelope of the query.
    fn rewrite_post<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        // The envelope replaces the body, so the body is moved to the computation without a copy.
        let body = ex.body.buffered.take().unwrap_or_default();
        let config = self.0.clone();
        match compute(ex.host, body.len(), move || config.envelope(&body)) {
            Computation::Ready(envelope) => send(ex, envelope),
            Computation::Pending(writing) => Step::Wait(Box::pin(async move {
                let envelope = writing.await;
                send(ex, envelope)
            })),
        }
    }
}

/// Continues with the new body, or responds with the problem.
fn send<'a>(ex: &mut Exchange<'_>, envelope: Result<Result<Vec<u8>, &str>, OffloadRefused>) -> Step<'a> {
    match envelope {
        Ok(Ok(envelope)) => {
            ex.body.buffered = Some(envelope.into());
            ex.request.fields.set("Content-Type", b"application/json");
            Step::Continue
        }
        Ok(Err(found)) => Step::Respond(LocalResponse::error_msg(400, found)),
        Err(refused) => Step::Respond(LocalResponse::error_msg(503, &refused.to_string())),
    }
}

impl DegraphqlSettings {
    /// The configured variables that the request has.
    fn variables(&self, mut given: Map<String, Value>) -> Option<Value> {
        let names = self.variables.as_ref()?;
        let taken = names.iter().filter_map(|name| Some((name.clone(), given.remove(name)?)));
        Some(Value::Object(taken.collect()))
    }

    /// The JSON body that carries the query.
    fn envelope(&self, body: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut envelope = Map::new();
        envelope.insert("query".into(), self.query.as_str().into());
        if let Some(names) = &self.variables {
            // Counted before any value is allocated: a small body may contain very many values.
            if JsonScan::new(0, BODY_VALUES_MAX).whole(body) == Err(JsonFault::TooManyValues) {
                return Err("the request body holds more than 100000 values");
            }
            let given = picked(names, body).ok_or("the request body is not a JSON object")?;
            envelope.extend(self.variables(given).map(|variables| ("variables".to_owned(), variables)));
        }
        if let Some(name) = &self.operation_name {
            envelope.insert("operationName".into(), name.as_str().into());
        }
        Ok(Value::Object(envelope).to_string().into_bytes())
    }
}

/// The members with these names of a JSON object; `None` if the body is no object. Other members are skipped
/// without an allocation.
fn picked(names: &[String], body: &[u8]) -> Option<Map<String, Value>> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let members = json.deserialize_map(PickedMembers(names)).ok()?;
    json.end().ok().map(|()| members)
}

struct PickedMembers<'a>(&'a [String]);

impl<'de> Visitor<'de> for PickedMembers<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            if self.0.contains(&name) {
                members.insert(name, access.next_value()?);
            } else {
                access.next_value::<IgnoredAny>()?;
            }
        }
        Ok(members)
    }
}

impl Plugin for Degraphql {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        match ex.request.method() {
            Method::Get => {
                self.rewrite_get(ex);
                Step::Continue
            }
            Method::Post if ex.lacks_body(self.0.max_req_body_size) => {
                Step::NeedBody { bytes_max: self.0.max_req_body_size }
            }
            Method::Post => self.rewrite_post(ex),
            _ => Step::Respond(LocalResponse::status(405)),
        }
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
