//! An authorization request with the semantics of NGINX's `auth_request`, as ingress-nginx sets it up.
//!
//! It fails closed: without a decision the response is 500.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use yumen_config::resource::{AuthCacheSpec, AuthRequestSpec, ExternalAuthSpec, RouteMethod};
use yumen_http::{Fields, KnownField, Method};
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{
    DryRunResult, Exchange, LocalResponse, PhaseSet, Plugin, ResponseHead, ResponseHeadPhase, Step,
    SubrequestFault, SubrequestResponse, SubrequestSpec, UpstreamSlot, VarTemplate, escape_argument,
};

use crate::ActionUpstreams;
use crate::external_auth::{is_of_connection, missing_upstream};
use crate::redirect::client_scheme;

/// Most decisions in the cache of one action.
const CACHED_MAX: usize = 4096;

/// The statuses whose responses get fields of `add_header` in NGINX.
const ADDED_TO: [u16; 10] = [200, 201, 204, 206, 301, 302, 303, 304, 307, 308];

/// Asks an authorization service.
pub(crate) struct AuthRequest {
    upstream: Option<UpstreamSlot>,
    id: Box<str>,
    url: VarTemplate,
    host: Option<VarTemplate>,
    method: Option<Method>,
    fields: Box<[(Box<str>, VarTemplate)]>,
    redirect_field: VarTemplate,
    signin: Option<SigninLocation>,
    /// Response fields of the service that the upstream receives.
    passed: Box<[Box<str>]>,
    /// Request fields for the upstream, made of response fields of the service.
    composed: Box<[(Box<str>, AnswerText)]>,
    cache: Option<AuthCache>,
    always_sets_cookie: bool,
    timeout_ms: u64,
}

/// A text with response fields of the service.
struct AnswerText(Box<[AnswerPart]>);

enum AnswerPart {
    Literal(Box<str>),
    /// The name of a field, with dashes.
    Field(Box<str>),
}

impl AnswerText {
    fn parse(written: &str) -> AnswerText {
        let (mut parts, mut rest) = (Vec::new(), written);
        while let Some((before, name, after)) = next_field(rest) {
            parts.push(AnswerPart::Literal(before.into()));
            parts.push(AnswerPart::Field(name.to_ascii_lowercase().replace('_', "-").into()));
            rest = after;
        }
        parts.push(AnswerPart::Literal(rest.into()));
        AnswerText(parts.into())
    }

    fn names(&self, name: &[u8]) -> bool {
        self.0.iter().any(|part| matches!(part, AnswerPart::Field(field) if is_alike(field, name)))
    }

    fn render(&self, of_service: &Fields) -> Vec<u8> {
        let mut out = Vec::new();
        for part in &self.0 {
            match part {
                AnswerPart::Literal(text) => out.extend_from_slice(text.as_bytes()),
                AnswerPart::Field(field) => {
                    let values = of_service.iter().filter(|(name, _)| is_alike(field, name));
                    let values: Vec<&[u8]> = values.map(|(_, value)| value).collect();
                    // As in NGINX, several fields are one list.
                    out.extend_from_slice(&values.join(&b", "[..]));
                }
            }
        }
        out
    }
}

/// The text before the first variable of a field, the rest of its name, and the text after it.
fn next_field(text: &str) -> Option<(&str, &str, &str)> {
    const PREFIX: &str = "upstream_http_";
    let is_of_name = |one: char| one.is_ascii_alphanumeric() || one == '_';
    text.match_indices('$').find_map(|(at, _)| {
        let after = &text[at + 1..];
        match after.strip_prefix('{').and_then(|inner| inner.strip_prefix(PREFIX)) {
            Some(inner) => inner.split_once('}').map(|(name, rest)| (&text[..at], name, rest)),
            None => {
                let inner = after.strip_prefix(PREFIX)?;
                let end = inner.find(|one: char| !is_of_name(one)).unwrap_or(inner.len());
                Some((&text[..at], &inner[..end], &inner[end..]))
            }
        }
    })
}

/// Whether a field has the name of a variable, in which underscores stand for dashes.
fn is_alike(variable: &str, name: &[u8]) -> bool {
    let same =
        |(wanted, found): (u8, &u8)| wanted == found.to_ascii_lowercase() || wanted == b'-' && *found == b'_';
    variable.len() == name.len() && variable.bytes().zip(name).all(same)
}

/// The location of the sign-in page.
struct SigninLocation {
    url: VarTemplate,
    /// The query argument with the URL of the request and the sign before it.
    argument: Option<Box<str>>,
}

/// Cached decisions with the time of their end, in milliseconds of the monotonic clock.
struct AuthCache {
    key: VarTemplate,
    durations: Box<[(u16, u64)]>,
    decisions: Mutex<HashMap<Vec<u8>, (u64, AuthAnswer)>>,
}

/// The part of a response of the service that the decision needs.
#[derive(Debug, Clone, Default)]
struct AuthAnswer {
    status: u16,
    /// `WWW-Authenticate`, `Set-Cookie` and the fields for the upstream.
    fields: Fields,
}

/// Cookies of the service, until the response is sent.
struct AuthCookies(Vec<Vec<u8>>);

fn method_of(written: RouteMethod) -> Method {
    match written {
        RouteMethod::Get => Method::Get,
        RouteMethod::Post => Method::Post,
        RouteMethod::Put => Method::Put,
        RouteMethod::Delete => Method::Delete,
        RouteMethod::Patch => Method::Patch,
        RouteMethod::Head => Method::Head,
        RouteMethod::Options => Method::Options,
        RouteMethod::Connect => Method::Connect,
        RouteMethod::Trace => Method::Trace,
        RouteMethod::Purge => Method::Purge,
    }
}

impl AuthRequest {
    pub(crate) fn build(
        written: &ExternalAuthSpec,
        nginx: &AuthRequestSpec,
        upstreams: &dyn ActionUpstreams,
    ) -> AuthRequest {
        let upstream = upstreams.upstream(written.upstream_id.as_str());
        if upstream.is_none() {
            missing_upstream(written.upstream_id.as_str(), upstreams);
        }
        let fields = nginx.fields.iter().flatten();
        let redirect_field = nginx.redirect_field.as_deref().unwrap_or("$real_request_uri");
        AuthRequest {
            upstream,
            id: written.upstream_id.as_str().into(),
            url: VarTemplate::parse(&nginx.url),
            host: nginx.host.as_deref().map(VarTemplate::parse),
            method: nginx.method.map(method_of),
            fields: fields.map(|(name, value)| (name.as_str().into(), VarTemplate::parse(value))).collect(),
            redirect_field: VarTemplate::parse(redirect_field),
            signin: nginx.signin.as_deref().map(|url| SigninLocation::new(url, &nginx.signin_parameter)),
            passed: written
                .allowed_response_headers
                .iter()
                .flatten()
                .map(|name| name.as_str().into())
                .collect(),
            composed: nginx
                .answer_fields
                .iter()
                .flatten()
                .map(|(name, value)| (name.as_str().into(), AnswerText::parse(value)))
                .collect(),
            cache: nginx.cache.as_ref().map(AuthCache::new),
            always_sets_cookie: nginx.always_set_cookie,
            timeout_ms: written.timeout_ms,
        }
    }

    fn question(&self, slot: u32, ex: &Exchange<'_>) -> SubrequestSpec {
        let mut fields = Fields::default();
        for (name, value) in ex.request.fields.iter().filter(|(name, _)| is_sent(name)) {
            fields.add(&String::from_utf8_lossy(name), value);
        }
        self.describe(ex, &mut fields);
        let mut authority = match &self.host {
            Some(host) => rendered(host, ex),
            None => ex.request.authority().to_vec(),
        };
        let mut target = rendered(&self.url, ex);
        // A space or line break of a variable would end the target or the field.
        for text in [&mut target, &mut authority] {
            text.retain(|byte| *byte > b' ' && *byte != 0x7f);
        }
        if !target.starts_with(b"/") {
            target.insert(0, b'/');
        }
        SubrequestSpec {
            upstream: slot,
            plugin: "auth-request",
            method: self.method.unwrap_or(Method::Get),
            target: String::from_utf8_lossy(&target).into_owned(),
            authority: String::from_utf8_lossy(&authority).into_owned(),
            fields,
            body: Vec::new(),
            keeps: true,
            timeout_ms: self.timeout_ms,
            may_repeat: true,
            response_bytes_max: SubrequestSpec::RESPONSE_BYTES_MAX,
            in_flight_max: SubrequestSpec::IN_FLIGHT_MAX,
        }
    }

    /// Sets the fields that describe the request, then those of the operator.
    fn describe(&self, ex: &Exchange<'_>, fields: &mut Fields) {
        let ip = ex.client.ip.to_string();
        let uri = ex.request.real_request_uri();
        let url = [ex.client.scheme().as_bytes(), b"://", ex.request.authority(), uri].concat();
        let id = rendered(&VarTemplate::parse_written("$request_id"), ex);
        let set: [(&str, &[u8]); 7] = [
            ("X-Original-URL", &url),
            ("X-Original-Method", ex.request.method_name()),
            ("X-Sent-From", b"nginx-ingress-controller"),
            ("X-Real-IP", ip.as_bytes()),
            ("X-Forwarded-For", ip.as_bytes()),
            ("X-Request-ID", &id),
            ("X-Auth-Request-Redirect", &rendered(&self.redirect_field, ex)),
        ];
        for (name, value) in set {
            fields.set_only(name, value);
        }
        fields.remove("X-Forwarded-Proto");
        if self.method.is_some() {
            fields.set_only("X-Original-URI", uri);
            fields.set_only("X-Scheme", client_scheme(ex).as_bytes());
        }
        for (name, value) in &self.fields {
            let value = rendered(value, ex);
            match value.is_empty() {
                true => drop(fields.remove(name)),
                false => fields.set(name, &value),
            }
        }
    }

    /// The part of a response that decides.
    fn answer(&self, response: &SubrequestResponse) -> AuthAnswer {
        let mut answer = AuthAnswer { status: response.status, fields: Fields::default() };
        let is_kept = |name: &[u8]| {
            let is_named = |named: &str| named.as_bytes().eq_ignore_ascii_case(name);
            is_named("WWW-Authenticate")
                || is_named("Set-Cookie")
                || self.passed.iter().any(|passed| is_named(passed))
                || self.composed.iter().any(|(_, text)| text.names(name))
        };
        for (name, value) in response.fields.iter().filter(|(name, _)| is_kept(name)) {
            answer.fields.add(&String::from_utf8_lossy(name), value);
        }
        answer
    }

    /// Applies the decision, or its lack.
    fn apply<'a>(&self, ex: &mut Exchange<'_>, answer: Option<AuthAnswer>) -> Step<'a> {
        let Some(answer) = answer else { return Step::Respond(undecided()) };
        let cookies: Vec<Vec<u8>> = all(&answer.fields, "Set-Cookie").map(<[u8]>::to_vec).collect();
        if !cookies.is_empty() {
            ex.leave(AuthCookies(cookies));
        }
        match (answer.status, &self.signin) {
            (200..=299, _) => self.admit(ex, &answer.fields),
            (401, Some(signin)) => return Step::Respond(signin.redirect(ex)),
            (401, None) => {
                let mut refusal =
                    LocalResponse::message(401, "the authorization service refused the request");
                for challenge in all(&answer.fields, "WWW-Authenticate") {
                    refusal.fields_mut().add("WWW-Authenticate", challenge);
                }
                return Step::Respond(refusal);
            }
            (403, _) => {
                let message = "the authorization service refused the request";
                return Step::Respond(LocalResponse::message(403, message));
            }
            _ => return Step::Respond(undecided()),
        }
        Step::Continue
    }

    /// Passes the fields of the service on. One that it did not send is not the client's to choose.
    fn admit(&self, ex: &mut Exchange<'_>, of_service: &Fields) {
        for name in self.passed.iter().filter(|name| !is_of_connection(name.as_bytes())) {
            ex.request.fields.remove_equivalent(name);
            for value in all(of_service, name) {
                ex.request.fields.add(name, value);
            }
        }
        for (name, text) in self.composed.iter().filter(|(name, _)| !is_of_connection(name.as_bytes())) {
            ex.request.fields.remove_equivalent(name);
            let value = text.render(of_service);
            if !value.is_empty() {
                ex.request.fields.add(name, &value);
            }
        }
    }

    async fn wait<'a>(
        &self,
        ex: &mut Exchange<'_>,
        key: Option<Vec<u8>>,
        response: LocalFuture<'static, Result<SubrequestResponse, SubrequestFault>>,
    ) -> Step<'a> {
        // An incomplete body does not matter: the head decides.
        let answer = response.await.ok().map(|response| self.answer(&response));
        if let (Some(cache), Some(key), Some(answer)) = (&self.cache, key, &answer) {
            cache.keep(key, answer, ex.host.clock().mono_ms());
        }
        self.apply(ex, answer)
    }
}

impl AuthCache {
    fn new(written: &AuthCacheSpec) -> AuthCache {
        let durations = written.durations.iter();
        let each = durations.flat_map(|one| one.statuses.iter().map(|status| (*status, one.seconds * 1000)));
        AuthCache {
            key: VarTemplate::parse(&written.key),
            durations: each.collect(),
            decisions: Mutex::default(),
        }
    }

    fn find(&self, key: &[u8], now_ms: u64) -> Option<AuthAnswer> {
        let decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        decisions.get(key).filter(|(end_ms, _)| *end_ms > now_ms).map(|(_, answer)| answer.clone())
    }

    fn keep(&self, key: Vec<u8>, answer: &AuthAnswer, now_ms: u64) {
        let duration = self.durations.iter().find(|(status, _)| *status == answer.status);
        // A cookie is for one client, and another one may have the same key.
        let Some((_, duration_ms)) = duration.filter(|_| !answer.fields.has("Set-Cookie")) else { return };
        let mut decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        if decisions.len() >= CACHED_MAX {
            decisions.retain(|_, (end_ms, _)| *end_ms > now_ms);
        }
        if decisions.len() >= CACHED_MAX {
            decisions.clear();
        }
        decisions.insert(key, (now_ms.saturating_add(*duration_ms), answer.clone()));
    }
}

impl SigninLocation {
    fn new(url: &str, parameter: &str) -> SigninLocation {
        let (_, query) = url.split_once('?').unwrap_or((url, ""));
        let mut arguments = query.split('&').map(|argument| argument.split('=').next().unwrap_or_default());
        let argument = match (arguments.any(|name| name == parameter), query.is_empty()) {
            (true, _) => None,
            (false, true) if url.ends_with('?') => Some(format!("{parameter}=")),
            (false, true) => Some(format!("?{parameter}=")),
            (false, false) => Some(format!("&{parameter}=")),
        };
        SigninLocation { url: VarTemplate::parse(url), argument: argument.map(String::into_boxed_str) }
    }

    fn redirect(&self, ex: &Exchange<'_>) -> LocalResponse {
        let mut location = rendered(&self.url, ex);
        if let Some(argument) = &self.argument {
            for part in [argument.as_bytes(), client_scheme(ex).as_bytes(), b"://", ex.request.authority()] {
                location.extend_from_slice(part);
            }
            escape_argument(ex.request.real_request_uri(), &mut location);
        }
        let mut response = LocalResponse::status(302);
        response.fields_mut().add("Location", &location);
        response
    }
}

fn rendered(template: &VarTemplate, ex: &Exchange<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    template.render(ex, &mut out);
    out
}

fn all<'f>(fields: &'f Fields, name: &'f str) -> impl Iterator<Item = &'f [u8]> {
    let is_it = move |(found, _): &(&[u8], &[u8])| found.eq_ignore_ascii_case(name.as_bytes());
    fields.iter().filter(is_it).map(|(_, value)| value)
}

/// Whether the service receives a request field. Those of the body describe one that it does not get.
fn is_sent(name: &[u8]) -> bool {
    !is_of_connection(name) && KnownField::of(name) != KnownField::ContentLength
}

/// The response without a decision.
fn undecided() -> LocalResponse {
    LocalResponse::error_msg(500, "the authorization service gave no decision")
}

impl Plugin for AuthRequest {
    fn phases(&self) -> PhaseSet {
        PhaseSet::ACCESS | PhaseSet::RESPONSE_HEAD
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let Some(slot) = self.upstream.as_ref().and_then(UpstreamSlot::get) else {
            return Step::Respond(LocalResponse::error_msg(500, "the authorization service is missing"));
        };
        let key = self.cache.as_ref().map(|cache| rendered(&cache.key, ex));
        if let (Some(cache), Some(key)) = (&self.cache, &key)
            && let Some(answer) = cache.find(key, ex.host.clock().mono_ms())
        {
            return self.apply(ex, Some(answer));
        }
        match ex.host.send_subrequest(self.question(slot, ex)) {
            Some(response) => Step::Wait(Box::pin(self.wait(ex, key, response))),
            None => Step::Respond(undecided()),
        }
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        let is_added = self.always_sets_cookie || ADDED_TO.contains(&head.status);
        if let Some(AuthCookies(cookies)) = ex.note::<AuthCookies>().filter(|_| is_added) {
            cookies.iter().for_each(|cookie| head.fields.add("Set-Cookie", cookie));
        }
    }

    fn dry_run(&self, _: PhaseSet, _: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::Note(format!("depends on the decision of upstream {}", self.id).into())
    }
}

#[cfg(test)]
mod tests;
