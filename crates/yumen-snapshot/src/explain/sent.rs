//! The fields by which the gateway itself tells an endpoint who asked and how: by the rules of forwarding, which an
//! integration test holds against this.

use std::collections::BTreeMap;

use yumen_http::Known;
use yumen_plugin::Exchange;

use super::text;

/// These fields and their values. What a client says of them counts as said by a trusted peer here.
pub(super) fn fields(ex: &Exchange<'_>, host: Option<&str>) -> BTreeMap<&'static str, String> {
    let fields = &ex.request.fields;
    let ip = ex.remote_ip.to_string();
    let hops = fields.all_known(Known::XForwardedFor).map(text).chain([ip.clone()]);
    let hops: Vec<String> = hops.collect();
    let mut sent = BTreeMap::from([("X-Forwarded-For", hops.join(", ")), ("X-Real-IP", ip)]);
    sent.extend(host.map(|host| ("Host", host.to_owned())));
    let own = [
        ("X-Forwarded-Proto", Known::XForwardedProto, ex.client.scheme().to_owned()),
        ("X-Forwarded-Host", Known::XForwardedHost, text(ex.request.host())),
        ("X-Forwarded-Port", Known::XForwardedPort, ex.client.local.port().to_string()),
    ];
    let unsaid = own.into_iter().filter(|(_, known, _)| fields.known(*known).is_none());
    sent.extend(unsaid.map(|(name, _, value)| (name, value)));
    sent
}
