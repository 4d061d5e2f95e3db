//! Variables of NGINX and ingress-nginx, by their names in Yumen.

/// Variables with another name.
const RENAMED: [(&str, &str); 12] = [
    // The target as the client sent it; `request_uri` of Yumen is the normalized one.
    ("request_uri", "real_request_uri"),
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
const SAME: [&str; 44] = [
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
    "server_name",
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

/// Prefixes of variables with the same name.
const PREFIXES: [&str; 3] = ["http_", "arg_", "cookie_"];

/// The name in Yumen of a variable of the request; `None` if it has none.
pub(super) fn request_variable(name: &str) -> Option<&str> {
    if let Some((_, known)) = RENAMED.iter().find(|(written, _)| *written == name) {
        return Some(known);
    }
    let is_same = SAME.contains(&name)
        || CONSTANTS.contains(&name)
        || PREFIXES.iter().any(|prefix| name.len() > prefix.len() && name.starts_with(prefix));
    is_same.then_some(name)
}

/// The name in Yumen of a variable in a line of the access log.
pub(super) fn log_variable(name: &str) -> Option<&str> {
    match name {
        // The access log writes the target as the client sent it.
        "request_uri" => Some(name),
        "service_name" => Some(name),
        _ if CONSTANTS.contains(&name) => None,
        _ if OF_OUTCOME.contains(&name) || name.starts_with("sent_http_") => Some(name),
        _ => request_variable(name),
    }
}
