//! The request fields of ingress-nginx that describe the client to the upstream.

use yumen_config::resource::ForwardedFieldsSpec;
use yumen_http::{Fields, KnownField};
use yumen_plugin::{Exchange, VarTemplate};

use crate::redirect::client_scheme;

/// Replaces the forwarding fields of a request. The gateway appends the address of the client to `X-Forwarded-For`
/// and sets `X-Real-IP` in any case.
pub(crate) fn apply(form: ForwardedFieldsSpec, ex: &mut Exchange<'_>) {
    let scheme = client_scheme(ex).as_bytes();
    let port = ex.client.connection.dialed_port().to_string();
    let host = ex.request.authority().to_vec();
    let mut id = Vec::new();
    VarTemplate::parse_written("$request_id").render(ex, &mut id);
    let fields = &mut ex.request.fields;
    keep_original(fields, KnownField::XForwardedFor, "X-Original-Forwarded-For");
    keep_original(fields, KnownField::XForwardedHost, "X-Original-Forwarded-Host");
    if form == ForwardedFieldsSpec::Nginx {
        fields.remove("X-Forwarded-For");
    }
    // Values of clients that are not trusted are removed before, so a present one comes from a trusted peer.
    let absent = [("X-Forwarded-Host", &host[..]), ("X-Forwarded-Port", port.as_bytes())];
    for (name, value) in absent {
        if !fields.has(name) {
            fields.set(name, value);
        }
    }
    for name in ["X-Forwarded-Proto", "X-Forwarded-Scheme", "X-Scheme"] {
        fields.set_only(name, scheme);
    }
    fields.set_only("X-Request-ID", &id);
    // CGI programs take it for the address of their own proxy (CVE-2016-5385).
    fields.remove("Proxy");
}

/// Copies the values of a field to another name, which a client must not choose.
fn keep_original(fields: &mut Fields, known: KnownField, name: &str) {
    let values: Vec<&[u8]> = fields.all_known(known).collect();
    // Several lines are one list (RFC 9110 §5.3).
    let joined = values.join(&b", "[..]);
    match joined.is_empty() {
        true => drop(fields.remove_equivalent(name)),
        false => fields.set_only(name, &joined),
    }
}

#[cfg(test)]
mod tests;
