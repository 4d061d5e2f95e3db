//! Hosts that stay open although client certificates are required: a wildcard of a certificate stands for one
//! label, that of a route for any number. Also stream routes with server names that require none.

use std::collections::BTreeMap;

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::Kind;
use yumen_config::resource::TrafficClass;

use super::{LintInput, ResourceTexts};

pub(super) fn check(input: &LintInput<'_>, texts: &ResourceTexts<'_>) -> Vec<Problem> {
    let guarded = guarded(texts);
    let mut problems = Vec::new();
    for (one, value) in texts.iter() {
        let Some((field, list_field)) = one.kind.descriptor().host_fields else { continue };
        // The client certificates of a scope are those of its listeners' handshakes, whatever the host.
        if value.get("scopes").is_some() {
            continue;
        }
        let is_stream = one.kind.descriptor().traffic == TrafficClass::Stream;
        let label = if is_stream { "stream route" } else { "route" };
        let hosts = names(value, field, list_field);
        for (path, host) in hosts {
            let host = host.to_ascii_lowercase();
            let Some(ssl) = guarded.get(host.as_str()) else { continue };
            // A wildcard of a certificate covers one label only (RFC 9525 §6.3).
            // Two labels where the wildcard has one: the shortest name that only the route covers.
            let deeper = host.replacen('*', "a.b", 1);
            let become_of_them = match input.snapshot.certificate(&deeper) {
                // The deeper names require client certificates too.
                Some(shown) if shown.client.is_some() => continue,
                None if is_stream => "listeners of protocol tls refuse them",
                _ => "they are served without a client certificate",
            };
            let message = format!(
                "{host} of a {label} reaches names such as {deeper}, which {host} of ssls/{ssl} does not: {become_of_them}"
            );
            let hint = "list the hosts one by one, or require client certificates under those names too";
            problems.push(Problem::warning(one.to_string(), path, message).hint(hint));
        }
    }
    if input.strict {
        problems.extend(nameless_streams(input, texts));
    }
    problems
}

/// Stream routes without a server name, if some certificates require client certificates and others do not.
/// On a listener without TLS this is correct.
fn nameless_streams(input: &LintInput<'_>, texts: &ResourceTexts<'_>) -> Vec<Problem> {
    // Sorted, so that the message names the same certificates in every run.
    let by_name: BTreeMap<_, _> = input.snapshot.certificates.iter().collect();
    let open = by_name.iter().find(|(_, certificate)| certificate.client.is_none());
    let closed = by_name.iter().find(|(_, certificate)| certificate.client.is_some());
    let (Some((open, _)), Some((closed, _))) = (open, closed) else { return Vec::new() };
    let message = format!(
        "a stream route without sni: a listener of protocol tls forwards clients under {open}, which requires no client certificate, as well as under {closed}, which does"
    );
    let nameless = texts.iter().filter(|(one, value)| {
        let is_of_node = value.get("scopes").is_none();
        one.kind == Kind::StreamRoutes && is_of_node && value.get("sni").is_none()
    });
    let hint = "set sni, or require client certificates under all names";
    nameless.map(|(one, _)| Problem::warning(one.to_string(), "sni", &*message).hint(hint)).collect()
}

/// The wildcards that require client certificates, with the object that does.
fn guarded<'t>(texts: &'t ResourceTexts<'_>) -> BTreeMap<String, &'t str> {
    let mut guarded = BTreeMap::new();
    for (one, value) in texts.iter().filter(|(one, _)| one.kind == Kind::Ssls) {
        let text = |field: &str| value.get(field).and_then(Value::as_str);
        // A certificate that is not presented protects no name.
        let is_off = value.get("status").and_then(Value::as_u64) == Some(0) || text("type") == Some("client");
        if is_off || !value.get("client").is_some_and(Value::is_object) {
            continue;
        }
        let wildcards = names(value, "sni", "snis").into_iter().filter(|(_, name)| name.starts_with("*."));
        guarded.extend(wildcards.map(|(_, name)| (name.to_ascii_lowercase(), &*one.id)));
    }
    guarded
}

/// The texts of a field with one value and of a field with several, with their paths.
fn names<'v>(value: &'v Value, one: &str, several: &str) -> Vec<(String, &'v str)> {
    let listed = value.get(several).and_then(Value::as_array).into_iter().flatten().enumerate();
    let listed = listed.filter_map(|(at, name)| Some((format!("{several}[{at}]"), name.as_str()?)));
    let alone = value.get(one).and_then(Value::as_str).map(|name| (one.to_owned(), name));
    alone.into_iter().chain(listed).collect()
}
