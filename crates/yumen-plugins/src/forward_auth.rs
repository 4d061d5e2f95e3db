//! `forward-auth`: lets an external service authorize requests.
//!
//! The plugin builds the subrequest and evaluates the response; the worker sends it.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{
    AccessRole, DryRunResult, Exchange, Fields, LocalResponse, Method, PhaseSet, Plugin, PluginBuildContext,
    PluginFactory, Step, SubrequestFault, SubrequestResponse, SubrequestSpec,
};

use crate::service::{ServiceSettings, ServiceTarget, is_of_connection};
use crate::text::{HeaderEntries, TextTemplate, is_field_name, warn_of_message_fields};
use crate::traces;

/// Settings of `forward-auth`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ForwardAuthSettings {
    /// URL of the authorization service; http or https.
    uri: String,
    /// Whether requests pass if the service does not respond, or if an admitting response is incomplete or
    /// late.
    #[serde(default)]
    allow_degradation: bool,
    /// Status of the refusal if the service does not respond completely.
    #[serde(default = "forbidden")]
    #[schemars(range(min = 200, max = 599))]
    status_on_error: u16,
    /// Method of the subrequest.
    #[serde(default)]
    #[schemars(schema_with = "method_schema")]
    request_method: AuthRequestMethod,
    /// Fields of the request that the subrequest repeats.
    #[serde(default)]
    request_headers: Vec<String>,
    /// Further fields of the subrequest; values may contain variables. `Host` sets the host of the
    /// subrequest. Fields of the connection and of the body framing are left out.
    #[serde(default)]
    #[schemars(schema_with = "extra_schema")]
    extra_headers: Option<HeaderEntries>,
    /// Fields of the response that the upstream gets. They replace the client's fields with these names, also
    /// those that differ only in `_` for `-`.
    #[serde(default)]
    upstream_headers: Vec<String>,
    /// Fields of the response that a refused client gets.
    #[serde(default)]
    client_headers: Vec<String>,
    /// Time limit of the subrequest in milliseconds.
    #[serde(default = "timeout_ms")]
    #[schemars(range(min = 1, max = 60000))]
    timeout: u64,
    #[serde(flatten)]
    service: ServiceSettings,
    /// Largest request body in bytes that a POST subrequest carries.
    #[serde(default = "body_bytes_max")]
    #[schemars(range(min = 1))]
    max_req_body_size: usize,
}

fn forbidden() -> u16 {
    403
}

fn timeout_ms() -> u64 {
    3000
}

fn body_bytes_max() -> usize {
    64 << 20
}

/// Method of the subrequest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum AuthRequestMethod {
    #[default]
    Get,
    Post,
}

fn method_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["GET", "POST"], "default": "GET"})
}

fn extra_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "patternProperties": {"^[^:]+$": {"type": "string"}},
    })
}

/// The compiled settings.
pub(crate) struct ForwardAuth {
    service: ServiceTarget,
    /// The `Host` of the subrequest if it differs from the authority.
    host: Option<TextTemplate>,
    extra: Vec<(String, TextTemplate)>,
    config: ForwardAuthSettings,
}

impl PluginFactory for ForwardAuth {
    const NAME: &'static str = "forward-auth";
    const PRIORITY: i32 = 2002;
    const ROLE: AccessRole = AccessRole::Guard;
    type Config = ForwardAuthSettings;

    fn build(
        mut config: ForwardAuthSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<Self, InvalidSettings> {
        let how = config.service.connection(Self::NAME, config.timeout);
        let service = ServiceTarget::of_setting("uri", &config.uri, &how, setup.objects)?;
        let extra = config.extra_headers.take().unwrap_or_default().0;
        let lists = [
            ("request_headers", &config.request_headers),
            ("upstream_headers", &config.upstream_headers),
            ("client_headers", &config.client_headers),
        ];
        let names = lists.into_iter().flat_map(|(path, names)| names.iter().map(move |name| (path, name)));
        let extra_names = extra.iter().map(|(name, _)| ("extra_headers", name));
        if let Some((path, name)) = names.chain(extra_names).find(|(_, name)| !is_field_name(name)) {
            return Err(InvalidSettings::at(path, format!("\"{name}\" is not a field name")));
        }
        warn_of_message_fields(setup, "upstream_headers", true, &config.upstream_headers);
        warn_of_message_fields(setup, "client_headers", false, &config.client_headers);
        warn_of_message_fields(setup, "extra_headers", false, extra.iter().map(|(name, _)| name));
        let text = |(name, values): (String, Vec<String>)| (name, TextTemplate::parse(&values.concat()));
        // `Host` becomes the authority of the subrequest and is none of its fields.
        let (host, extra): (Vec<_>, Vec<_>) =
            extra.into_iter().map(text).partition(|(name, _)| name.eq_ignore_ascii_case("host"));
        Ok(ForwardAuth {
            service,
            host: host.into_iter().next().map(|(_, text)| text),
            extra: extra.into_iter().filter(|(name, _)| !is_of_connection(name)).collect(),
            config,
        })
    }
}

impl ForwardAuth {
    fn question(&self, ex: &Exchange<'_>) -> SubrequestSpec {
        let is_post = self.config.request_method == AuthRequestMethod::Post;
        let mut question = self.service.request(if is_post { Method::Post } else { Method::Get });
        if let Some(host) = self.host(ex) {
            question.authority = host;
        }
        question.fields = self.fields(is_post, ex);
        if is_post {
            question.body = ex.body.buffered.as_deref().unwrap_or_default().to_vec();
        }
        question
    }

    /// The `Host` from `extra_headers`, if its rendered value is a possible host.
    fn host(&self, ex: &Exchange<'_>) -> Option<String> {
        let mut host = Vec::new();
        self.host.as_ref()?.render(ex, &mut host);
        let is_plain = !host.is_empty() && host.iter().all(u8::is_ascii_graphic);
        String::from_utf8(host).ok().filter(|_| is_plain)
    }

    /// Fields of the subrequest. The gateway's own fields take precedence over those of the client.
    fn fields(&self, is_post: bool, ex: &Exchange<'_>) -> Fields {
        let (request, mut fields) = (&ex.request, Fields::default());
        fields.add("X-Forwarded-Proto", ex.client.scheme().as_bytes());
        fields.add("X-Forwarded-Method", request.method_name());
        fields.add("X-Forwarded-Host", request.host());
        fields.add("X-Forwarded-Uri", &request.forwarded_request_uri());
        fields.add("X-Forwarded-For", ex.client.ip.to_string().as_bytes());
        // The body is sent as received, so its coding applies.
        if is_post && let Some(coding) = request.fields.get("content-encoding") {
            fields.add("Content-Encoding", coding);
        }
        let mut value = Vec::new();
        for (name, text) in &self.extra {
            value.clear();
            text.render(ex, &mut value);
            fields.set(name, &value);
        }
        traces::copy_context(&request.fields, &mut fields);
        for name in self.config.request_headers.iter().filter(|name| !is_of_connection(name)) {
            if fields.get(name).is_none() {
                for value in request.fields.all(name) {
                    fields.add(name, value);
                }
            }
        }
        fields
    }

    /// The step that follows from the response.
    fn apply_response<'a>(
        &self,
        ex: &mut Exchange<'_>,
        answer: Result<SubrequestResponse, SubrequestFault>,
    ) -> Step<'a> {
        match answer {
            Err(_) if self.config.allow_degradation => {
                self.pass_on(ex, None);
                Step::Continue
            }
            // Fails closed: without a decision, the request is not admitted.
            Err(_) => Step::Respond(LocalResponse::status(self.config.status_on_error)),
            // As in APISIX, a redirect refuses too; it may lead to a login page.
            Ok(answer) if answer.status >= 300 => Step::Respond(self.refusal(answer)),
            // An incomplete response does not admit the request; an incomplete refusal still refuses it.
            Ok(SubrequestResponse { fault: Some(fault), .. }) => self.apply_response(ex, Err(fault)),
            Ok(answer) => {
                self.pass_on(ex, Some(&answer));
                Step::Continue
            }
        }
    }

    /// Copies `upstream_headers` from the response. The client's fields with these names are removed in any
    /// case, because the upstream trusts them.
    fn pass_on(&self, ex: &mut Exchange<'_>, answer: Option<&SubrequestResponse>) {
        let (names, fields) = (&self.config.upstream_headers, &mut ex.request.fields);
        for name in names {
            fields.remove_equivalent(name);
        }
        for (at, name) in names.iter().enumerate() {
            // A name that is listed twice must not add its values twice.
            let is_first = !names[..at].iter().any(|before| before.eq_ignore_ascii_case(name));
            for value in answer.iter().filter(|_| is_first).flat_map(|answer| answer.fields.all(name)) {
                fields.add(name, value);
            }
        }
    }

    fn refusal(&self, answer: SubrequestResponse) -> LocalResponse {
        let mut response = LocalResponse::status(answer.status);
        let mut copy = |name: &str| {
            for value in answer.fields.all(name) {
                response.fields_mut().add(name, value);
            }
        };
        self.config.client_headers.iter().filter(|name| !is_of_connection(name)).for_each(|name| copy(name));
        // Without its type, clients would have to guess the type of the body.
        if !self.config.client_headers.iter().any(|name| name.eq_ignore_ascii_case("content-type")) {
            copy("Content-Type");
        }
        // An incomplete body is left out.
        response.body(answer.body.unwrap_or_default())
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

impl Plugin for ForwardAuth {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let is_post = self.config.request_method == AuthRequestMethod::Post;
        if is_post && ex.lacks_body(self.config.max_req_body_size) {
            return Step::NeedBody { bytes_max: self.config.max_req_body_size };
        }
        let response = self.service.send(ex.host, self.question(ex));
        Step::Wait(Box::pin(self.wait(ex, response)))
    }

    fn dry_run(&self, _: PhaseSet, _: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::Note(format!("depends on the response of {}", self.service.describe()).into())
    }
}

#[cfg(test)]
mod tests;
