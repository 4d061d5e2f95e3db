//! `grpc-transcode`: lets JSON clients call unary methods of a gRPC service.
//!
//! Knows protobuf through the compiled proto object; the codec is `yumen-proto-json`.

mod request;
mod response;
mod rules;

use std::sync::Arc;

use prost_reflect::{MessageDescriptor, MethodDescriptor};
use request::MessageInput;
use rules::{HttpRule, TemplateSegments};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_config::resource::ResourceId;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::proto::{ProtoDescriptors, UnknownProtoName};
use yumen_plugin::{
    BufferedResponse, Computation, DryRunResult, Exchange, LocalResponse, OffloadRefused, PhaseSet, Plugin,
    PluginBuildContext, PluginFactory, ResponseProtocol, ResponseTranslator, Step, compute,
};
use yumen_proto_json::{JsonForm, LargeIntegers, MessageTypeCache};

/// Most characters of a problem in a response.
const PROBLEM_LETTERS_MAX: usize = 300;

/// Settings of `grpc-transcode`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct GrpcTranscodeSettings {
    /// Id of the proto object with the service.
    proto_id: ResourceId,
    /// Full name of the gRPC service.
    service: String,
    /// Name of the method. Without it, the `google.api.http` options of the service's methods map requests to
    /// methods. Beyond APISIX.
    method: Option<String>,
    /// Deadline of the call in milliseconds; 0 means none.
    #[serde(default)]
    deadline: f64,
    /// Options of the JSON that messages become.
    #[serde(default = "pb_options")]
    #[schemars(length(min = 1))]
    pb_option: Vec<PbOption>,
    /// Whether the body of a failed call contains its status.
    #[serde(default)]
    show_status_in_body: bool,
    /// Message type of the details in this status.
    status_detail_type: Option<String>,
    /// Largest request body in bytes; a larger one is refused with 413. Beyond APISIX.
    #[serde(default = "request_bytes_max")]
    #[schemars(range(min = 1))]
    max_req_body_size: usize,
    /// Largest response in bytes, and the largest JSON that it becomes; more is a 502.
    #[serde(default = "body_bytes_max")]
    #[schemars(range(min = 1))]
    max_resp_body_size: usize,
}

/// The default limit of gRPC servers for a message: 4 MiB.
fn request_bytes_max() -> usize {
    4 << 20
}

fn body_bytes_max() -> usize {
    64 << 20
}

fn pb_options() -> Vec<PbOption> {
    use PbOption::{AutoDefaultValues, DisableHooks, EnumAsName, Int64AsNumber};
    vec![EnumAsName, Int64AsNumber, AutoDefaultValues, DisableHooks]
}

/// Options of the JSON form, with the names of APISIX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum PbOption {
    Int64AsNumber,
    Int64AsString,
    Int64AsHexstring,
    EnumAsName,
    EnumAsValue,
    AutoDefaultValues,
    NoDefaultValues,
    UseDefaultValues,
    UseDefaultMetatable,
    EnableHooks,
    DisableHooks,
}

/// Returns the form of JSON that these options select; the last one of a kind counts.
fn json_form(options: &[PbOption], is_proto3: bool) -> JsonForm {
    let mut form =
        JsonForm { large_integers: LargeIntegers::Numbers, enum_numbers: false, defaults: is_proto3 };
    for option in options {
        match option {
            PbOption::Int64AsNumber => form.large_integers = LargeIntegers::Numbers,
            PbOption::Int64AsString => form.large_integers = LargeIntegers::Decimal,
            PbOption::Int64AsHexstring => form.large_integers = LargeIntegers::Hexadecimal,
            PbOption::EnumAsName => form.enum_numbers = false,
            PbOption::EnumAsValue => form.enum_numbers = true,
            PbOption::AutoDefaultValues => form.defaults = is_proto3,
            // A metatable supplies defaults on access and is not visible in JSON.
            PbOption::NoDefaultValues | PbOption::UseDefaultMetatable => form.defaults = false,
            PbOption::UseDefaultValues => form.defaults = true,
            PbOption::EnableHooks | PbOption::DisableHooks => {}
        }
    }
    form
}

/// The compiled settings.
pub(crate) struct GrpcTranscode {
    calls: CallTable,
    body_bytes_max: usize,
}

/// The calls that requests map to.
enum CallTable {
    /// No objects were at hand: the settings were only validated.
    Unknown,
    One(Arc<TranscodedCall>),
    /// One call per HTTP rule, sorted from narrow to wide paths.
    Ruled {
        service: String,
        calls: Arc<RuledCalls>,
    },
}

/// Calls with the HTTP rules that map to them.
type RuledCalls = Vec<(HttpRule, Arc<TranscodedCall>)>;

/// A method with the options of its calls.
struct TranscodedCall {
    method: MethodDescriptor,
    /// The message types that responses have used, shared by all calls.
    types: Arc<MessageTypeCache>,
    /// `/package.Service/Method`.
    target: String,
    /// Value of `grpc-timeout`.
    timeout: Option<String>,
    form: JsonForm,
    show_status: bool,
    detail: Option<MessageDescriptor>,
    body_bytes_max: usize,
    /// The field of the message that is the whole response body.
    response_body: Option<String>,
}

impl PluginFactory for GrpcTranscode {
    const NAME: &'static str = "grpc-transcode";
    const PRIORITY: i32 = 506;
    type Config = GrpcTranscodeSettings;

    fn build(config: GrpcTranscodeSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let body_bytes_max = config.max_req_body_size;
        let Some(objects) = setup.objects else {
            // The settings are only validated, so no call is needed.
            return Ok(GrpcTranscode { calls: CallTable::Unknown, body_bytes_max });
        };
        let id = config.proto_id.as_str();
        let missing = || InvalidSettings::at("proto_id", format!("proto {id} does not exist or is broken"));
        let protos = objects.proto(id).ok_or_else(missing)?;
        let calls = match &config.method {
            Some(name) => CallTable::One(Arc::new(TranscodedCall::named(&config, &protos, name)?)),
            None => CallTable::ruled(&config, &protos)?,
        };
        Ok(GrpcTranscode { calls, body_bytes_max })
    }
}

impl CallTable {
    /// Calls for all methods with HTTP rules, sorted from narrow to wide paths.
    fn ruled(
        config: &GrpcTranscodeSettings,
        protos: &ProtoDescriptors,
    ) -> Result<CallTable, InvalidSettings> {
        let service = &config.service;
        let methods = protos.methods(service).map_err(|known| no_service(config, &known))?;
        let types = Arc::new(MessageTypeCache::of(protos.pool()));
        let mut calls = Vec::new();
        for method in methods {
            let refused =
                |why| InvalidSettings::at("service", format!("method {} of {service}: {why}", method.name()));
            let rules = rules::of(&method, protos).map_err(refused)?;
            // A stream has no single message for a JSON body; the other methods of the service remain.
            if method.is_client_streaming() || method.is_server_streaming() {
                continue;
            }
            for rule in rules {
                let call = TranscodedCall::new(config, protos, &types, &method)?;
                let call = TranscodedCall { response_body: rule.response_body.clone(), ..call };
                calls.push((rule, Arc::new(call)));
            }
        }
        if calls.is_empty() {
            let message = format!(
                "property \"method\" is required: no unary method of {service} has a google.api.http option"
            );
            return Err(InvalidSettings::at("method", message));
        }
        // More specific paths come first, because the first match applies.
        calls.sort_by(|a, b| a.0.path.order(&b.0.path));
        Ok(CallTable::Ruled { service: service.clone(), calls: Arc::new(calls) })
    }
}

fn no_service(config: &GrpcTranscodeSettings, known: &[String]) -> InvalidSettings {
    let (service, id) = (&config.service, config.proto_id.as_str());
    InvalidSettings::at(
        "service",
        format!("proto {id} has no service \"{service}\"; it has: {}", list(known)),
    )
}

impl TranscodedCall {
    fn named(
        config: &GrpcTranscodeSettings,
        protos: &ProtoDescriptors,
        name: &str,
    ) -> Result<TranscodedCall, InvalidSettings> {
        let service = &config.service;
        let method = protos.method(service, name).map_err(|unknown| match unknown {
            UnknownProtoName::Service(known) => no_service(config, &known),
            UnknownProtoName::Method(known) => InvalidSettings::at(
                "method",
                format!("service {service} has no method \"{name}\"; it has: {}", list(&known)),
            ),
        })?;
        if method.is_client_streaming() || method.is_server_streaming() {
            let message = format!("{name} is a stream; only calls of one message each way are JSON");
            return Err(InvalidSettings::at("method", message));
        }
        TranscodedCall::new(config, protos, &Arc::new(MessageTypeCache::of(protos.pool())), &method)
    }

    fn new(
        config: &GrpcTranscodeSettings,
        protos: &ProtoDescriptors,
        types: &Arc<MessageTypeCache>,
        method: &MethodDescriptor,
    ) -> Result<TranscodedCall, InvalidSettings> {
        let detail = config.status_detail_type.as_deref().map(|name| {
            let found = protos.pool().get_message_by_name(name);
            let id = config.proto_id.as_str();
            let missing = || {
                InvalidSettings::at(
                    "status_detail_type",
                    format!("proto {id} has no message type \"{name}\""),
                )
            };
            found.ok_or_else(missing)
        });
        let is_proto3 = method.output().parent_file().syntax() == prost_reflect::Syntax::Proto3;
        Ok(TranscodedCall {
            target: format!("/{}/{}", config.service, method.name()),
            // The gRPC protocol allows at most eight digits.
            timeout: (config.deadline >= 1.0)
                .then(|| format!("{}m", config.deadline.min(99_999_999.0) as u64)),
            form: json_form(&config.pb_option, is_proto3),
            show_status: config.show_status_in_body,
            detail: detail.transpose()?,
            body_bytes_max: config.max_resp_body_size,
            method: method.clone(),
            types: types.clone(),
            response_body: None,
        })
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Translates the response of a call into JSON.
struct TranscodeTranslator(Arc<TranscodedCall>);

impl ResponseTranslator for TranscodeTranslator {
    fn bytes_max(&self) -> usize {
        self.0.body_bytes_max
    }

    fn translate(&self, answer: BufferedResponse<'_>) -> LocalResponse {
        response::translate(&self.0, answer)
    }
}

impl Plugin for GrpcTranscode {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        // A global rule has already translated this request.
        if matches!(self.calls, CallTable::Unknown) || ex.response.translator.is_some() {
            return Step::Continue;
        }
        // The body is buffered even if the message does not use it, because the message replaces it.
        if ex.lacks_body(self.body_bytes_max) {
            return Step::NeedBody { bytes_max: self.body_bytes_max };
        }
        let (call, ruled) = match &self.calls {
            CallTable::Unknown => return Step::Continue,
            CallTable::One(call) => (call.clone(), None),
            CallTable::Ruled { service, calls } => match ruled(service, calls, ex) {
                Ok((at, captures)) => (calls[at].1.clone(), Some((calls.clone(), at, captures))),
                Err(response) => return Step::Respond(response),
            },
        };
        // Owned values, because the work may run on another thread.
        let input = MessageInput::take(ex);
        let bytes = input.body.len();
        let called = call.clone();
        let work = move || match &ruled {
            None => request::message(&called, &input),
            Some((calls, at, captures)) => request::ruled_message(&called, &calls[*at].0, captures, &input),
        };
        match compute(ex.host, bytes, work) {
            Computation::Ready(message) => make_call(ex, call, message),
            Computation::Pending(writing) => Step::Wait(Box::pin(async move {
                let message = writing.await;
                make_call(ex, call, message)
            })),
        }
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

/// Continues with the message as a gRPC call, or responds with the problem.
fn make_call<'a>(
    ex: &mut Exchange<'_>,
    call: Arc<TranscodedCall>,
    message: Result<Result<Vec<u8>, String>, OffloadRefused>,
) -> Step<'a> {
    let message = match message {
        Ok(Ok(message)) => message,
        Ok(Err(problem)) => {
            // The problem may contain a value as long as the body.
            let problem: String = problem.chars().take(PROBLEM_LETTERS_MAX).collect();
            let message = format!("the request is no {}: {problem}", call.method.input().name());
            return Step::Respond(LocalResponse::error_msg(400, &message));
        }
        Err(refused) => return Step::Respond(LocalResponse::error_msg(503, &refused.to_string())),
    };
    ex.body.buffered = Some(message.into());
    // The client expects JSON and an HTTP status, although the forwarded request is gRPC.
    ex.response.protocol = ResponseProtocol::Http;
    let request = &mut ex.request;
    request.set_method("POST");
    request.set_upstream_target(call.target.as_bytes());
    request.fields.set("Content-Type", b"application/grpc");
    // gRPC requires this field (gRPC over HTTP/2).
    request.fields.set("TE", b"trailers");
    // The new body has no coding.
    request.fields.remove("Content-Encoding");
    if let Some(timeout) = &call.timeout {
        request.fields.set("grpc-timeout", timeout.as_bytes());
    }
    ex.response.translator = Some(Box::new(TranscodeTranslator(call)));
    Step::Continue
}

/// The position of a rule with the path's variables.
type RuledRequest = (usize, Vec<(String, String)>);

/// The first rule that matches the request, with the path's variables. If only the method differs, the
/// refusal is a 405 that lists the methods of the rules for this path.
fn ruled(service: &str, calls: &RuledCalls, ex: &Exchange<'_>) -> Result<RuledRequest, LocalResponse> {
    let verb = ex.request.method_name();
    let mut others: Vec<&str> = Vec::new();
    // A path with dot segments matches no rule, see [`TemplateSegments::of`].
    if let Some(path) = TemplateSegments::of(ex.request.upstream_target()) {
        for (at, (rule, _)) in calls.iter().enumerate() {
            let Some(captures) = rule.path.matches(&path) else { continue };
            if rule.verb == "*" || rule.verb.as_bytes() == verb {
                return Ok((
                    at,
                    captures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
                ));
            }
            // Verbs of equal rules need not be adjacent.
            if !others.contains(&&*rule.verb) {
                others.push(&rule.verb);
            }
        }
    }
    if others.is_empty() {
        return Err(LocalResponse::error_msg(404, &format!("no method of {service} is called by this path")));
    }
    let response = LocalResponse::error_msg(405, &format!("no method of {service} is called by this method"));
    Err(response.field("Allow", others.join(", ")))
}

#[cfg(test)]
mod tests;
