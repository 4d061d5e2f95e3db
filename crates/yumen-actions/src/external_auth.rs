//! The instance that asks an authorization service about each request, over HTTP or gRPC.
//!
//! Runs after the plugins of the access phase. It fails closed: without a decision, the request is refused. The
//! worker sends the subrequest.

mod check_call;

use yumen_config::InvalidSettings;
use yumen_config::resource::{ExternalAuthProtocol, ExternalAuthSpec};
use yumen_http::{Fields, KnownField, Method};
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{
    DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, ResponseHead, ResponseHeadPhase, Step,
    SubrequestFault, SubrequestResponse, SubrequestSpec, UpstreamSlot,
};

use crate::ActionUpstreams;

/// Request fields that the service receives in any case.
const ALWAYS_SENT: [&str; 1] = ["authorization"];

/// The largest request body that waits for the decision, in bytes. The service may receive a part of it.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Asks an authorization service.
pub(crate) struct ExternalAuth {
    upstream: Option<UpstreamSlot>,
    written: ExternalAuthSpec,
}

/// The decision about a request.
struct AuthDecision {
    /// The response to a client that is refused.
    refusal: Option<LocalResponse>,
    /// Fields of the request to remove.
    removed: Vec<String>,
    /// Fields of the request to set or add.
    request: Vec<FieldChange>,
    /// Fields of the response to set or add.
    response: Vec<FieldChange>,
}

/// A change of one field.
struct FieldChange {
    name: String,
    value: Vec<u8>,
    action: FieldAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldAction {
    Set,
    Add,
    AddIfAbsent,
    SetIfPresent,
}

/// Response fields of the service for the client, until its response is sent.
struct AuthResponseFields(Vec<FieldChange>);

impl AuthDecision {
    fn admission() -> AuthDecision {
        AuthDecision { refusal: None, removed: Vec::new(), request: Vec::new(), response: Vec::new() }
    }

    fn refusal(response: LocalResponse) -> AuthDecision {
        AuthDecision { refusal: Some(response), ..AuthDecision::admission() }
    }
}

impl FieldChange {
    fn apply(&self, fields: &mut Fields) {
        let is_present = fields.has(&self.name);
        match self.action {
            FieldAction::Set => fields.set(&self.name, &self.value),
            FieldAction::SetIfPresent if is_present => fields.set(&self.name, &self.value),
            FieldAction::AddIfAbsent if is_present => {}
            FieldAction::Add | FieldAction::AddIfAbsent => fields.add(&self.name, &self.value),
            FieldAction::SetIfPresent => {}
        }
    }
}

impl ExternalAuth {
    pub(crate) fn build(
        written: &ExternalAuthSpec,
        upstreams: &dyn ActionUpstreams,
    ) -> Result<ExternalAuth, InvalidSettings> {
        let is_grpc = written.protocol == ExternalAuthProtocol::Grpc;
        let without_effect = [
            ("path", written.path.is_some()),
            ("allowed_response_headers", written.allowed_response_headers.is_some()),
        ];
        if let Some((member, _)) = without_effect.into_iter().find(|(_, is_written)| *is_written && is_grpc) {
            return Err(InvalidSettings::at(
                format!("external_auth.{member}"),
                "has no effect with `protocol` grpc",
            )
            .hint("remove it"));
        }
        let id = written.upstream_id.as_str();
        let upstream = upstreams.upstream(id);
        if upstream.is_none() {
            missing_upstream(id, upstreams);
        }
        Ok(ExternalAuth { upstream, written: written.clone() })
    }

    /// The body size that the decision needs first, if any.
    fn needed_body(&self, ex: &Exchange<'_>) -> Option<usize> {
        let bytes_max = BODY_BYTES_MAX.max(self.written.body_bytes_max as usize);
        (self.written.body_bytes_max > 0 && ex.lacks_body(bytes_max)).then_some(bytes_max)
    }

    /// The part of the request body that the service receives.
    fn body<'e>(&self, ex: &'e Exchange<'_>) -> &'e [u8] {
        let body = ex.body.buffered.as_deref().unwrap_or_default();
        &body[..body.len().min(self.written.body_bytes_max as usize)]
    }

    /// Whether the service receives a request field. Fields of one connection are none of its.
    fn sends(&self, name: &[u8], without_list: bool) -> bool {
        if is_of_connection(name) {
            return false;
        }
        let is_named = |named: &str| named.as_bytes().eq_ignore_ascii_case(name);
        match &self.written.allowed_headers {
            None => without_list || ALWAYS_SENT.iter().any(|named| is_named(named)),
            Some(allowed) => {
                ALWAYS_SENT.iter().any(|named| is_named(named)) || allowed.iter().any(|named| is_named(named))
            }
        }
    }

    fn question(&self, slot: u32, ex: &Exchange<'_>) -> SubrequestSpec {
        match self.written.protocol {
            ExternalAuthProtocol::Grpc => check_call::question(self, slot, ex),
            ExternalAuthProtocol::Http => self.http_question(slot, ex),
        }
    }

    fn http_question(&self, slot: u32, ex: &Exchange<'_>) -> SubrequestSpec {
        let mut fields = Fields::default();
        for (name, value) in ex.request.fields.iter().filter(|(name, _)| self.sends(name, false)) {
            fields.add(&String::from_utf8_lossy(name), value);
        }
        let prefix = self.written.path.as_deref().unwrap_or_default().trim_end_matches('/');
        let target = String::from_utf8_lossy(ex.request.upstream_target());
        SubrequestSpec {
            upstream: slot,
            plugin: "external-auth",
            method: ex.request.method(),
            target: format!("{prefix}{target}"),
            authority: String::from_utf8_lossy(ex.request.authority()).into_owned(),
            fields,
            body: self.body(ex).to_vec(),
            keeps: true,
            timeout_ms: self.written.timeout_ms,
            may_repeat: true,
            response_bytes_max: SubrequestSpec::RESPONSE_BYTES_MAX,
            in_flight_max: SubrequestSpec::IN_FLIGHT_MAX,
        }
    }

    fn decision(&self, answer: SubrequestResponse) -> AuthDecision {
        match self.written.protocol {
            ExternalAuthProtocol::Grpc => check_call::decision(&answer),
            ExternalAuthProtocol::Http => self.http_decision(answer),
        }
    }

    fn http_decision(&self, answer: SubrequestResponse) -> AuthDecision {
        let fields = answer.fields.iter().filter(|(name, _)| !is_of_connection(name));
        if answer.status != 200 {
            let mut response = LocalResponse::status(answer.status);
            fields.for_each(|(name, value)| {
                response.fields_mut().add(&String::from_utf8_lossy(name), value);
            });
            // An incomplete body is left out.
            return AuthDecision::refusal(response.body(answer.body.unwrap_or_default()));
        }
        let is_passed = |name: &[u8]| match &self.written.allowed_response_headers {
            Some(allowed) => allowed.iter().any(|named| named.as_bytes().eq_ignore_ascii_case(name)),
            None => !is_of_response(name),
        };
        let mut seen: Vec<&[u8]> = Vec::new();
        let mut changes = Vec::new();
        for (name, value) in fields.filter(|(name, _)| is_passed(name)) {
            // The first field of a name replaces those of the client, which the upstream must not trust.
            let is_first = !seen.iter().any(|before| before.eq_ignore_ascii_case(name));
            seen.push(name);
            changes.push(FieldChange {
                name: String::from_utf8_lossy(name).into_owned(),
                value: value.to_vec(),
                action: if is_first { FieldAction::Set } else { FieldAction::Add },
            });
        }
        // A field that the service did not send is not the client's to choose.
        let unsent = self.written.allowed_response_headers.iter().flatten();
        let unsent = unsent.filter(|name| !answer.fields.has(name)).cloned();
        AuthDecision { removed: unsent.collect(), request: changes, ..AuthDecision::admission() }
    }

    /// Applies the answer of the service, or its lack.
    fn apply<'a>(
        &self,
        ex: &mut Exchange<'_>,
        answer: Result<SubrequestResponse, SubrequestFault>,
    ) -> Step<'a> {
        let decision = match answer {
            Ok(answer) if answer.fault.is_none() || answer.status != 200 => self.decision(answer),
            _ => AuthDecision::refusal(undecided()),
        };
        if let Some(refusal) = decision.refusal {
            return Step::Respond(refusal);
        }
        let fields = &mut ex.request.fields;
        for name in decision.removed.iter().filter(|name| !is_of_routing(name)) {
            fields.remove_equivalent(name);
        }
        for change in decision.request.iter().filter(|change| !is_of_routing(&change.name)) {
            if change.action == FieldAction::Set {
                fields.remove_equivalent(&change.name);
            }
            change.apply(fields);
        }
        if !decision.response.is_empty() {
            ex.leave(AuthResponseFields(decision.response));
        }
        Step::Continue
    }

    async fn wait<'a>(
        &self,
        ex: &mut Exchange<'_>,
        answer: LocalFuture<'static, Result<SubrequestResponse, SubrequestFault>>,
    ) -> Step<'a> {
        let answer = answer.await;
        self.apply(ex, answer)
    }
}

/// Reports that the upstream of the service does not exist.
pub(crate) fn missing_upstream(id: &str, upstreams: &dyn ActionUpstreams) {
    let message = format!("upstream {id} does not exist or is broken: all requests are refused");
    upstreams.warn("actions.external_auth.upstream_id", message, "create or fix the upstream");
}

/// The refusal without a decision.
fn undecided() -> LocalResponse {
    LocalResponse::error_msg(403, "the authorization service gave no decision")
}

/// Whether a field belongs to the connection or to the framing of a message.
pub(crate) fn is_of_connection(name: &[u8]) -> bool {
    let known = KnownField::of(name);
    known.is_of_message()
        || matches!(known, KnownField::Host | KnownField::Te | KnownField::Trailer | KnownField::Expect)
}

/// Whether a field describes the response of the service itself.
fn is_of_response(name: &[u8]) -> bool {
    let of_response: [&[u8]; 6] =
        [b"content-type", b"content-encoding", b"content-language", b"date", b"server", b"set-cookie"];
    of_response.iter().any(|field| name.eq_ignore_ascii_case(field))
}

/// Whether a service must not change a request field: routing and framing depend on it. Names of pseudo-header fields
/// of HTTP/2 begin with a colon.
fn is_of_routing(name: &str) -> bool {
    name.starts_with(':') || is_of_connection(name.as_bytes())
}

impl Plugin for ExternalAuth {
    fn phases(&self) -> PhaseSet {
        match self.written.protocol {
            ExternalAuthProtocol::Grpc => PhaseSet::ACCESS | PhaseSet::RESPONSE_HEAD,
            ExternalAuthProtocol::Http => PhaseSet::ACCESS,
        }
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let Some(slot) = self.upstream.as_ref().and_then(UpstreamSlot::get) else {
            return Step::Respond(LocalResponse::error_msg(500, "the authorization service is missing"));
        };
        if ex.request.method() == Method::Other && self.written.protocol == ExternalAuthProtocol::Http {
            // A subrequest cannot have this method, and the decision may depend on it.
            return Step::Respond(undecided());
        }
        if let Some(bytes_max) = self.needed_body(ex) {
            return Step::NeedBody { bytes_max };
        }
        match ex.host.send_subrequest(self.question(slot, ex)) {
            Some(answer) => Step::Wait(Box::pin(self.wait(ex, answer))),
            None => Step::Respond(undecided()),
        }
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        if let Some(AuthResponseFields(changes)) = ex.note::<AuthResponseFields>() {
            changes.iter().for_each(|change| change.apply(&mut head.fields));
        }
    }

    fn dry_run(&self, _: PhaseSet, _: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::Note(format!("depends on the decision of upstream {}", self.written.upstream_id).into())
    }
}

#[cfg(test)]
mod tests;
