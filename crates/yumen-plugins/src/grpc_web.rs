//! `grpc-web`: translates gRPC-Web calls of browsers into gRPC. Messages are not decoded.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD_NO_PAD};
use base64::engine::{DecodePaddingMode, general_purpose::STANDARD};
use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_http::{Fields, Framing, KnownField, Method};
use yumen_plugin::{
    BodyChunk, Computation, DryRunResult, Exchange, LocalResponse, OffloadRefused, PhaseSet, Plugin,
    PluginBuildContext, PluginFactory, ResponseBodyPhase, ResponseHead, ResponseHeadPhase, ResponseProtocol,
    Step, compute,
};

use crate::cors::RequestOrigin;

/// Settings of `grpc-web`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct GrpcWebSettings {
    /// Request fields in responses to preflight requests. Fields that `cors` allows on the same route remain
    /// allowed.
    #[serde(default = "allow_headers")]
    cors_allow_headers: String,
    /// Largest request body in bytes; a larger one is refused with 413.
    #[serde(default = "max_req_body_size")]
    #[schemars(range(min = 1))]
    max_req_body_size: usize,
}

fn allow_headers() -> String {
    "content-type,x-grpc-web,x-user-agent".to_owned()
}

fn max_req_body_size() -> usize {
    64 << 20
}

/// The compiled settings.
pub(crate) struct GrpcWeb {
    allow_headers: String,
    body_bytes_max: usize,
}

impl PluginFactory for GrpcWeb {
    const NAME: &'static str = "grpc-web";
    const PRIORITY: i32 = 505;
    type Config = GrpcWebSettings;

    fn build(config: GrpcWebSettings, _: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        Ok(GrpcWeb { allow_headers: config.cors_allow_headers, body_bytes_max: config.max_req_body_size })
    }
}

/// The state of a call. A global rule and the route may both have the plugin; the first one translates the
/// call.
struct GrpcWebCall {
    /// Content type of the request, which is also that of the response.
    content_type: Box<[u8]>,
    /// Whether both bodies are in Base64 (`application/grpc-web-text`).
    is_text: bool,
    /// Whether the request body is still in Base64.
    is_encoded: bool,
}

/// A response body that is being translated. Responses without a body and those of other types are not.
struct GrpcWebResponse {
    /// The plugin instance that translates it.
    by: usize,
    is_text: bool,
    /// Up to two bytes that do not complete a Base64 group.
    buffered: Vec<u8>,
    /// Whether the trailers were written into the body.
    has_trailers: bool,
}

/// Whether a gRPC-Web media type is in Base64, with the message format after it; `None` for other types.
fn encoding(content_type: &[u8]) -> Option<(bool, &[u8])> {
    let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let name = b"application/grpc-web";
    let rest = match media_type.split_at_checked(name.len()) {
        Some((start, rest)) if start.eq_ignore_ascii_case(name) => rest,
        _ => return None,
    };
    let (is_text, format) = match rest.split_at_checked(5) {
        Some((start, format)) if start.eq_ignore_ascii_case(b"-text") => (true, format),
        _ => (false, rest),
    };
    matches!(format.first(), None | Some(b'+')).then_some((is_text, format))
}

/// Decodes a Base64 body. Padding is valid after each message, not only at the end.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    const INDIFFERENT: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let mut rest = text.trim_ascii();
    while !rest.is_empty() {
        let letters = rest.iter().position(|byte| *byte == b'=').unwrap_or(rest.len());
        let padding = rest[letters..].iter().take_while(|byte| **byte == b'=').count();
        INDIFFERENT.decode_vec(&rest[..letters + padding], &mut out).ok()?;
        rest = &rest[letters + padding..];
    }
    Some(out)
}

/// The frame with the trailers (PROTOCOL-WEB: the highest bit of the flags is set).
fn trailers_frame(lines: &[u8]) -> Vec<u8> {
    // The client needs a status to end its call; 2 is UNKNOWN.
    const NONE: &[u8] = b"grpc-status:2\r\ngrpc-message:upstream grpc status not received\r\n";
    let lines = if lines.is_empty() { NONE } else { lines };
    // The most significant bit of the flags marks a frame of trailers (gRPC-Web protocol).
    let mut frame = vec![0x80];
    frame.extend_from_slice(&u32::try_from(lines.len()).unwrap_or(u32::MAX).to_be_bytes());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        // Names of trailers are in lower case (gRPC-Web protocol).
        let name = line.iter().position(|byte| *byte == b':').unwrap_or(0);
        frame.extend(line[..name].iter().map(u8::to_ascii_lowercase));
        frame.extend_from_slice(&line[name..]);
    }
    frame
}

/// The path of the call after the prefix of a route such as `/prefix/*`.
fn path_in_folder(ex: &Exchange<'_>) -> Option<Vec<u8>> {
    let folder =
        ex.route.uri().strip_suffix('*').filter(|prefix| prefix.len() > 1 && prefix.ends_with('/'))?;
    let target = ex.request.upstream_target();
    let path = target.strip_prefix(folder.as_bytes())?;
    // A prefix that is the name of the service belongs to the path of the call.
    path.contains(&b'/').then(|| [b"/", path].concat())
}

impl GrpcWeb {
    fn begin(&self, ex: &mut Exchange<'_>) -> Result<(), LocalResponse> {
        let content_type = ex.request.fields.known(KnownField::ContentType).unwrap_or_default();
        let Some((is_text, format)) = encoding(content_type) else {
            let found = String::from_utf8_lossy(content_type).into_owned();
            let message = format!("the content type \"{found}\" is not a gRPC-Web type");
            return Err(LocalResponse::error_msg(400, &message));
        };
        let call = GrpcWebCall { content_type: content_type.into(), is_text, is_encoded: is_text };
        let native = [b"application/grpc", format].concat();
        ex.leave(call);
        ex.response.protocol = ResponseProtocol::Grpc;
        ex.request.fields.set("Content-Type", &native);
        // gRPC requires this field (gRPC over HTTP/2).
        ex.request.fields.set("TE", b"trailers");
        if let Some(path) = path_in_folder(ex) {
            ex.request.set_upstream_target(&path);
        }
        Ok(())
    }

    /// Identity of this plugin instance.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Adds the CORS fields, to every response.
    fn allow(&self, ex: &Exchange<'_>, head: &mut ResponseHead) {
        let fields = &mut head.fields;
        // `cors` sends no origin to those that it does not admit, and that must remain so.
        if ex.note::<RequestOrigin>().is_none() && !fields.has("Access-Control-Allow-Origin") {
            fields.set("Access-Control-Allow-Origin", b"*");
        }
        if ex.request.method() == Method::Options {
            allow_too(fields, "Access-Control-Allow-Methods", "POST");
            allow_too(fields, "Access-Control-Allow-Headers", &self.allow_headers);
        }
        allow_too(fields, "Access-Control-Expose-Headers", "grpc-message,grpc-status");
    }
}

/// Adds names to a list field that `cors` or the service may have set. `*` is extended as well: it covers
/// neither `authorization` nor requests with credentials (Fetch §3.3.3).
fn allow_too(fields: &mut Fields, list: &str, names: &str) {
    let mut exposed = fields.all(list).filter(|value| !value.is_empty()).collect::<Vec<_>>().join(&b',');
    for name in names.split(',').map(str::trim) {
        let is_exposed = |one: &[u8]| one.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
        if name.is_empty() || exposed.split(|byte| *byte == b',').any(is_exposed) {
            continue;
        }
        if !exposed.is_empty() {
            exposed.push(b',');
        }
        exposed.extend_from_slice(name.as_bytes());
    }
    fields.set(list, &exposed);
}

impl GrpcWebResponse {
    fn encode(&mut self, data: Vec<u8>, flush: bool) -> Vec<u8> {
        if !self.is_text {
            return data;
        }
        self.buffered.extend_from_slice(&data);
        // Only whole groups of three bytes encode without padding.
        let whole = if flush { self.buffered.len() } else { self.buffered.len() / 3 * 3 };
        let rest = self.buffered.split_off(whole);
        let ready = std::mem::replace(&mut self.buffered, rest);
        if flush { STANDARD.encode(ready) } else { STANDARD_NO_PAD.encode(ready) }.into_bytes()
    }
}

/// Continues with the decoded body, or responds with the problem.
fn take_decoded<'a>(ex: &mut Exchange<'_>, decoded: Result<Option<Vec<u8>>, OffloadRefused>) -> Step<'a> {
    match decoded {
        Ok(Some(body)) => {
            ex.body.buffered = Some(body.into());
            if let Some(call) = ex.note_mut::<GrpcWebCall>() {
                call.is_encoded = false;
            }
            Step::Continue
        }
        Ok(None) => Step::Respond(LocalResponse::error_msg(400, "the request body is not in base64")),
        Err(refused) => Step::Respond(LocalResponse::error_msg(503, &refused.to_string())),
    }
}

impl Plugin for GrpcWeb {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS | PhaseSet::RESPONSE_HEAD | PhaseSet::RESPONSE_BODY
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        // The client of a call that `grpc-transcode` made expects JSON.
        if ex.response.translator.is_some() {
            return Step::Continue;
        }
        match ex.request.method() {
            // As in APISIX, every OPTIONS request counts as a preflight request.
            Method::Options => return Step::Respond(LocalResponse::status(204)),
            Method::Post => {}
            _ => return Step::Respond(LocalResponse::error_msg(400, "a call of gRPC-Web is a POST")),
        }
        // Not at the second call, after the body was buffered.
        if ex.note::<GrpcWebCall>().is_none()
            && let Err(refusal) = self.begin(ex)
        {
            return Step::Respond(refusal);
        }
        if !ex.note::<GrpcWebCall>().is_some_and(|call| call.is_encoded) {
            return Step::Continue;
        }
        if ex.lacks_body(self.body_bytes_max) {
            return Step::NeedBody { bytes_max: self.body_bytes_max };
        }
        let body = ex.body.buffered.take().unwrap_or_default();
        match compute(ex.host, body.len(), move || decode(&body)) {
            Computation::Ready(decoded) => take_decoded(ex, decoded),
            Computation::Pending(decoding) => Step::Wait(Box::pin(async move {
                let decoded = decoding.await;
                take_decoded(ex, decoded)
            })),
        }
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        self.allow(ex, head);
        let Some(call) = ex.note::<GrpcWebCall>() else { return };
        // Another instance may have translated the response already.
        let is_grpc = |value: &[u8]| value.starts_with(b"application/grpc") && encoding(value).is_none();
        if !head.fields.known(KnownField::ContentType).is_some_and(is_grpc) {
            return;
        }
        head.fields.set("Content-Type", &call.content_type);
        // A response without a body carries its status in the head.
        if head.fields.has("grpc-status") || matches!(head.framing, Framing::None) {
            return;
        }
        let answer = GrpcWebResponse {
            by: self.key(),
            is_text: call.is_text,
            buffered: Vec::new(),
            has_trailers: false,
        };
        ex.leave(answer);
        head.body_changes(None);
        ex.edit_body();
    }

    fn response_body(&self, ex: &mut ResponseBodyPhase<'_, '_>, mut chunk: BodyChunk) -> BodyChunk {
        let Some(answer) = ex.note_mut::<GrpcWebResponse>().filter(|answer| answer.by == self.key()) else {
            return chunk;
        };
        let mut data = std::mem::take(&mut chunk.data);
        if chunk.last && !std::mem::replace(&mut answer.has_trailers, true) {
            data.extend(trailers_frame(&std::mem::take(&mut chunk.trailers)));
        }
        // A pause also ends the Base64 text with its padding, so that streamed messages arrive at once.
        let data = answer.encode(data, chunk.last || chunk.pause);
        BodyChunk { data, ..chunk }
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
