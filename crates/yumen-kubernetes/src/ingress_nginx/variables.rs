//! Variables of NGINX and ingress-nginx, by their names in Yumen.

use std::borrow::Cow;
use std::sync::Arc;

use super::nginx_text::{NginxText, TextPart};

/// Variables with another name.
const RENAMED: [(&str, &str); 13] = [
    // The target as the client sent it; `request_uri` of Yumen is the normalized one.
    ("request_uri", "real_request_uri"),
    // A host of ingress-nginx is a server of NGINX.
    ("server_name", "host"),
    ("req_id", "request_id"),
    ("the_real_ip", "remote_addr"),
    ("proxy_protocol_addr", "remote_addr"),
    ("best_http_host", "http_host"),
    ("pass_server_port", "server_port"),
    ("pass_port", "server_port"),
    ("pass_access_scheme", "scheme"),
    ("full_x_forwarded_for", "proxy_add_x_forwarded_for"),
    ("escaped_request_uri", "real_request_uri"),
    ("original_uri", "real_request_uri"),
    ("proxy_host", "http_host"),
];

/// Variables of a request with the same name.
const SAME: [&str; 43] = [
    "args",
    "binary_remote_addr",
    "connection",
    "content_length",
    "content_type",
    "document_uri",
    "host",
    "hostname",
    "https",
    "is_args",
    "msec",
    "pid",
    "proxy_add_x_forwarded_for",
    "query_string",
    "realip_remote_addr",
    "realip_remote_port",
    "remote_addr",
    "remote_port",
    "remote_user",
    "request",
    "request_id",
    "request_method",
    "scheme",
    "server_addr",
    "server_port",
    "server_protocol",
    "ssl_cipher",
    "ssl_client_cert",
    "ssl_client_escaped_cert",
    "ssl_client_fingerprint",
    "ssl_client_i_dn",
    "ssl_client_raw_cert",
    "ssl_client_s_dn",
    "ssl_client_serial",
    "ssl_client_v_end",
    "ssl_client_v_remain",
    "ssl_client_v_start",
    "ssl_client_verify",
    "ssl_protocol",
    "ssl_server_name",
    "time_iso8601",
    "time_local",
    "uri",
];

/// Variables of a path that are known when it is translated.
const CONSTANTS: [&str; 4] = ["namespace", "ingress_name", "service_name", "location_path"];

/// Variables whose value exists once the exchange has ended, for the access log.
const OF_OUTCOME: [&str; 8] = [
    "body_bytes_sent",
    "bytes_sent",
    "request_length",
    "request_time",
    "status",
    "upstream_addr",
    "upstream_response_time",
    "upstream_status",
];

/// Prefixes of variables, and those of Yumen's.
const PREFIXES: [(&str, &str); 3] = [
    ("http_", "http_"),
    // `arg_` of Yumen is that of APISIX: decoded, and `true` without an equals sign.
    ("arg_", "raw_arg_"),
    ("cookie_", "cookie_"),
];

/// The name in Yumen of a variable of the request; `None` if it has none.
pub(super) fn request_variable(name: &str) -> Option<Cow<'_, str>> {
    if let Some((_, known)) = RENAMED.iter().find(|(written, _)| *written == name) {
        return Some(Cow::Borrowed(known));
    }
    let (prefix, known) = match PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)) {
        Some(found) => *found,
        None => return (SAME.contains(&name) || CONSTANTS.contains(&name)).then_some(Cow::Borrowed(name)),
    };
    let rest = &name[prefix.len()..];
    let renamed = || if prefix == known { Cow::Borrowed(name) } else { format!("{known}{rest}").into() };
    (!rest.is_empty()).then(renamed)
}

/// A text with the names of Yumen for those arguments that NGINX reads in another way.
pub(super) fn with_raw_arguments(mut text: NginxText) -> NginxText {
    for part in &mut text.parts {
        if let TextPart::Variable(name) = part
            && let Some(argument) = name.strip_prefix("arg_")
        {
            *name = format!("raw_arg_{argument}").into();
        }
    }
    text
}

/// A text of a ConfigMap with the names of Yumen for its variables; others stay.
pub fn renamed_variables(written: &str) -> String {
    let Ok(mut text) = NginxText::parse(written) else { return written.to_owned() };
    for part in &mut text.parts {
        if let TextPart::Variable(name) = part
            && let Some(known) = request_variable(name)
        {
            let known = Arc::from(known);
            *name = known;
        }
    }
    text.to_string()
}

/// The name in Yumen of a variable in a line of the access log.
pub(super) fn log_variable(name: &str) -> Option<Cow<'_, str>> {
    match name {
        // The access log writes the target as the client sent it.
        "request_uri" => Some(name.into()),
        "service_name" => Some(name.into()),
        _ if CONSTANTS.contains(&name) => None,
        _ if OF_OUTCOME.contains(&name) || name.starts_with("sent_http_") => Some(name.into()),
        _ => request_variable(name),
    }
}
