//! Responses of another upstream in place of error responses, of the endpoint and of the gateway.
//!
//! The page is requested while the original response waits, so that a failure of the other upstream changes nothing.

use std::sync::Arc;

use yumen_http::{Fields, KnownField, Method};
use yumen_plugin::{ErrorPageRules, ErrorRules, Exchange, LocalResponse, SubrequestSpec, VarTemplate};

use crate::exchange::plugin_host::request_page;
use crate::fault::FaultKind;
use crate::grpc;
use crate::worker::Worker;

const CHALLENGE: &str = "WWW-Authenticate";

/// The page rules for a response of an endpoint with this status, if they replace it.
#[cold]
pub(crate) fn rules_for(ex: &Exchange<'_>, status: u16) -> Option<Arc<ErrorRules>> {
    let rules = ex.response.errors.as_ref()?;
    let covers = rules.pages.as_ref().is_some_and(|pages| pages.covers(status));
    (covers && !grpc::is_call(ex)).then(|| rules.clone())
}

/// The response to a client in place of a local one: that of the other upstream, or the local one in the form of the
/// route.
#[cold]
pub(crate) async fn in_place_of(
    worker: &Worker,
    ex: &Exchange<'_>,
    rules: Arc<ErrorRules>,
    local: LocalResponse,
    fault: Option<FaultKind>,
) -> LocalResponse {
    if grpc::is_call(ex) {
        // The status of a call is in its own field, and its clients read no page.
        return local;
    }
    let Some(pages) = &rules.pages else { return rules.formed(local) };
    if !(pages.covers(local.status) || pages.without_endpoint && fault == Some(FaultKind::NoEndpoint)) {
        return rules.formed(local);
    }
    let Some(mut page) = page(worker, ex, pages, local.status).await else { return rules.formed(local) };
    // A client cannot log in without the challenge (RFC 9110 §15.5.2).
    let challenges =
        local.fields().iter().filter(|(name, _)| name.eq_ignore_ascii_case(CHALLENGE.as_bytes()));
    if !page.fields().has(CHALLENGE) {
        challenges.for_each(|(_, value)| page.fields_mut().add(CHALLENGE, value));
    }
    page
}

/// The response of the other upstream; `None` without a complete one.
pub(crate) async fn page(
    worker: &Worker,
    ex: &Exchange<'_>,
    pages: &ErrorPageRules,
    status: u16,
) -> Option<LocalResponse> {
    let question = question(ex, pages, status)?;
    let response = request_page(worker, question).await?;
    let mut page = LocalResponse::status(response.status);
    for (name, value) in response.fields.iter() {
        let known = KnownField::of(name);
        // The gateway sets the framing, and fields of a connection end with it (RFC 9110 §7.6.1).
        if !known.is_of_message() && known != KnownField::Trailer {
            page.fields_mut().add(&String::from_utf8_lossy(name), value);
        }
    }
    let body = response.body.filter(|_| response.fault.is_none())?;
    Some(page.body(body))
}

fn question(ex: &Exchange<'_>, pages: &ErrorPageRules, status: u16) -> Option<SubrequestSpec> {
    let method = match ex.request.method() {
        // A subrequest cannot have these methods.
        Method::Other | Method::Connect => Method::Get,
        method => method,
    };
    let ip = ex.client.ip.to_string();
    let mut id = Vec::new();
    VarTemplate::parse_written("$request_id").render(ex, &mut id);
    let mut fields = Fields::default();
    let code = status.to_string();
    let described: [(&str, &[u8]); 6] = [
        ("X-Forwarded-For", ip.as_bytes()),
        ("X-Code", code.as_bytes()),
        ("X-Format", ex.request.fields.get("Accept").unwrap_or_default()),
        ("X-Original-URI", ex.request.real_request_uri()),
        ("X-Request-ID", &id),
        ("Accept-Encoding", ex.request.fields.get("Accept-Encoding").unwrap_or_default()),
    ];
    for (name, value) in described.into_iter().filter(|(_, value)| !value.is_empty()) {
        fields.add(name, value);
    }
    fields.extend(&pages.fields);
    Some(SubrequestSpec {
        upstream: pages.upstream.get()?,
        plugin: "error-pages",
        method,
        target: pages.path.to_string(),
        authority: String::from_utf8_lossy(ex.request.authority()).into_owned(),
        fields,
        body: Vec::new(),
        keeps: true,
        timeout_ms: pages.timeout_ms,
        may_repeat: true,
        response_bytes_max: SubrequestSpec::RESPONSE_BYTES_MAX,
        in_flight_max: SubrequestSpec::IN_FLIGHT_MAX,
    })
}
