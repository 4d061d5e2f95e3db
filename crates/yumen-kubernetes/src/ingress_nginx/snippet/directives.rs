//! The table of directives: the translation of each, and other ways for those without one.

use super::syntax::SnippetDirective;

/// A directive with its translation in words, for documents.
pub(in crate::ingress_nginx) const DIRECTIVE_ROWS: [(&str, &str); 38] = [
    (
        "`add_header`",
        "a further response field; without `always` for the ten statuses of NGINX; those of a block replace those around it",
    ),
    ("`more_set_headers`", "a response field in place of others; `-s` limits statuses"),
    ("`more_clear_headers`", "removes response fields"),
    ("`proxy_hide_header`", "removes a response field of the service"),
    ("`proxy_pass_header`", "nothing: fields of the service pass"),
    ("`proxy_set_header`", "a request field for the service; an empty value removes it"),
    ("`more_set_input_headers`, `more_clear_input_headers`", "the same"),
    ("`proxy_method`", "the method for the service"),
    ("`return`", "a response, or a redirect with 301, 302, 303, 307, 308"),
    ("`rewrite … redirect`, `permanent`", "a redirect where the pattern matches"),
    ("`rewrite … break`", "the path for the service where the pattern matches"),
    (
        "`rewrite … last`, or without a flag as the last step",
        "the path for the service of the location that the new path chooses; 503 where that depends on the request",
    ),
    ("`set`", "a value for the directives after it"),
    ("`break`", "ends `set`, `if`, `return` and `rewrite`"),
    ("`if`", "conditions on one variable: set, `=`, `!=`, `~`, `~*`, `!~`, `!~*`; not on files"),
    (
        "`location`",
        "a path of its own: `return`, `deny all`, `rewrite … redirect`; without an answer 404, as the files of NGINX",
    ),
    ("`default_type`", "the media type of `return`"),
    ("`auth_request_set`", "names a field of the auth service's answer for `proxy_set_header`"),
    ("`expires`", "`Cache-Control` with a maximum age, which replaces `Expires` (RFC 9111 §5.3)"),
    ("`allow`, `deny`", "lists of addresses; 403"),
    ("`satisfy`", "one of addresses and authentication suffices"),
    ("`client_max_body_size`", "the largest body; 413"),
    ("`proxy_connect_timeout`", "time to connect"),
    ("`proxy_read_timeout`", "time between two reads"),
    ("`proxy_send_timeout`", "time between two writes"),
    ("`limit_rate`", "the rate of responses"),
    ("`limit_rate_after`", "bytes before that"),
    ("`gzip`", "compression of responses"),
    ("`access_log off`", "no line in the access log"),
    ("`etag`, `if_modified_since`", "nothing: they are of files"),
    (
        "`proxy_buffering`, `proxy_buffers`, `proxy_buffer_size`, `proxy_busy_buffers_size`",
        "nothing: bodies are streamed",
    ),
    (
        "`proxy_request_buffering`, `client_body_buffer_size`, `proxy_max_temp_file_size`",
        "nothing: bodies are streamed",
    ),
    ("`proxy_http_version 1.1`", "nothing: it is the version anyhow"),
    ("`proxy_ssl_server_name on`, `proxy_ssl_verify off`", "nothing: it is so anyhow"),
    ("`server_tokens`, `log_not_found`, `rewrite_log`, `error_log`", "nothing"),
    (
        "`gzip_types`, `gzip_proxied`, `gzip_vary`, `gzip_min_length`, `gzip_comp_level`, `gzip_disable`",
        "nothing: the ConfigMap decides",
    ),
    (
        "`keepalive_timeout`, `tcp_nodelay`, `sendfile`, `large_client_header_buffers`",
        "nothing: they are settings of the node",
    ),
    (
        "`proxy_redirect off`, `proxy_cache off`, `proxy_cache_bypass`, `proxy_no_cache`",
        "nothing: it is so anyhow",
    ),
];

/// Directives without an effect that a client or service could see, with the reason.
pub(super) fn harmless_reason(name: &str, words: &[&str]) -> Option<&'static str> {
    match (name, words) {
        ("etag" | "if_modified_since", _) => Some("the directive is of files"),
        (
            "proxy_buffering"
            | "proxy_buffers"
            | "proxy_buffer_size"
            | "proxy_busy_buffers_size"
            | "proxy_request_buffering"
            | "client_body_buffer_size"
            | "proxy_max_temp_file_size"
            | "proxy_temp_file_write_size",
            _,
        ) => Some("bodies are streamed with bounded memory"),
        ("proxy_http_version", ["1.1"]) => Some("requests to services are of HTTP/1.1"),
        ("proxy_ssl_server_name", ["on"]) => Some("the server name is always sent"),
        ("proxy_ssl_verify", ["off"]) => Some("certificates of services are verified only on request"),
        ("server_tokens" | "log_not_found" | "rewrite_log" | "error_log" | "log_subrequest", _) => {
            Some("logs are settings of the node")
        }
        (
            "gzip_types" | "gzip_proxied" | "gzip_vary" | "gzip_min_length" | "gzip_comp_level"
            | "gzip_disable" | "gzip_http_version" | "gzip_buffers",
            _,
        ) => Some("the ConfigMap decides about compression"),
        (
            "keepalive_timeout"
            | "keepalive_requests"
            | "tcp_nodelay"
            | "tcp_nopush"
            | "sendfile"
            | "large_client_header_buffers"
            | "client_header_buffer_size"
            | "send_timeout"
            | "client_body_timeout"
            | "client_header_timeout"
            | "http2_push_preload"
            | "chunked_transfer_encoding"
            | "resolver"
            | "resolver_timeout"
            | "underscores_in_headers"
            | "ignore_invalid_headers",
            _,
        ) => Some("the directive is a setting of the node"),
        ("proxy_redirect" | "proxy_cache", ["off"]) | ("proxy_cache_bypass" | "proxy_no_cache", _) => {
            Some("responses are not changed or cached without a plugin")
        }
        ("proxy_pass_header", [_]) => Some("fields of the service pass"),
        ("proxy_ignore_client_abort", ["off"]) => Some("it is so anyhow"),
        _ => None,
    }
}

/// The reason why a directive has no translation, and another way to the same effect.
pub(super) fn refusal_reason(name: &str) -> (&'static str, Option<&'static str>) {
    match name {
        "proxy_pass" | "grpc_pass" | "fastcgi_pass" | "uwsgi_pass" => (
            "the backend of a path is in the rules of an Ingress",
            Some("add a path with the service to the rules of an Ingress"),
        ),
        "auth_request" => {
            ("authentication is not an effect of snippets", Some("use the annotation auth-url"))
        }
        "auth_basic" | "auth_basic_user_file" => {
            ("authentication is not an effect of snippets", Some("use auth-type: basic and auth-secret"))
        }
        "limit_req" | "limit_req_zone" | "limit_conn" | "limit_conn_zone" | "limit_req_status" => {
            ("limits are not an effect of snippets", Some("use limit-rps, limit-rpm or limit-connections"))
        }
        "error_page" | "proxy_intercept_errors" => {
            ("error pages are not an effect of snippets", Some("use custom-http-errors and default-backend"))
        }
        "sub_filter" | "sub_filter_once" | "sub_filter_types" | "subs_filter" => {
            ("bodies are not changed by snippets", Some("use the plugin response-rewrite with filters"))
        }
        "set_real_ip_from" | "real_ip_header" | "real_ip_recursive" => (
            "the address of clients is a setting of the node",
            Some("use the ConfigMap's proxy-real-ip-cidr and use-forwarded-headers"),
        ),
        "proxy_cookie_path" | "proxy_cookie_domain" | "proxy_cookie_flags" => (
            "cookies are not changed by snippets",
            Some("use the annotations proxy-cookie-path and proxy-cookie-domain"),
        ),
        "proxy_redirect" => (
            "locations are not changed by snippets",
            Some("use the annotations proxy-redirect-from and proxy-redirect-to"),
        ),
        "proxy_ssl_name"
        | "proxy_ssl_verify"
        | "proxy_ssl_trusted_certificate"
        | "proxy_ssl_certificate"
        | "proxy_ssl_certificate_key"
        | "proxy_ssl_protocols"
        | "proxy_ssl_ciphers"
        | "proxy_ssl_server_name" => {
            ("TLS towards services is not an effect of snippets", Some("use the annotations proxy-ssl-*"))
        }
        "proxy_next_upstream" | "proxy_next_upstream_tries" | "proxy_next_upstream_timeout" => (
            "further attempts are not an effect of snippets",
            Some("use the annotations proxy-next-upstream*"),
        ),
        "ssl_verify_client" | "ssl_client_certificate" | "ssl_verify_depth" => {
            ("client certificates are not an effect of snippets", Some("use the annotations auth-tls-*"))
        }
        "root" | "alias" | "try_files" | "index" | "autoindex" => ("the gateway serves no files", None),
        "include" | "load_module" | "perl" | "perl_modules" => ("nothing is loaded from files", None),
        "proxy_cache"
        | "proxy_cache_valid"
        | "proxy_cache_key"
        | "proxy_cache_path"
        | "proxy_cache_use_stale" => ("responses are not cached by snippets", None),
        "mirror" => ("mirrors are not an effect of snippets", Some("use the annotation mirror-target")),
        _ if name.contains("_by_lua") => ("the gateway runs no Lua", None),
        _ if name.starts_with("modsecurity") => ("the gateway has no web application firewall", None),
        _ => ("the directive has no translation", None),
    }
}

/// Directives that admit or refuse requests, or remove fields that services trust.
const GUARDS: [&str; 16] = [
    "allow",
    "deny",
    "satisfy",
    // The file may have any directive.
    "include",
    "internal",
    // An answer of any status keeps requests from the service, and so does another path.
    "return",
    "rewrite",
    "limit_req",
    "limit_conn",
    "limit_except",
    "valid_referers",
    "ssl_verify_client",
    "modsecurity",
    "more_clear_input_headers",
    "more_set_input_headers",
    "proxy_pass_request_headers",
];

/// Phases of Lua that see a request before the service.
const LUA_PHASES: [&str; 5] =
    ["access_by_lua", "content_by_lua", "rewrite_by_lua", "server_rewrite_by_lua", "set_by_lua"];

/// Fields of requests by which a service admits no client: those of connections and of the way of a request.
const PLAIN_FIELDS: [&str; 9] = [
    "accept-encoding",
    "connection",
    "host",
    "upgrade",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-scheme",
];

/// Whether a directive, or one in its block, admits or refuses requests, or sets fields that a service may trust.
pub(super) fn guards(directive: &SnippetDirective) -> bool {
    let word = |at: usize| directive.words.get(at).map(|word| word.text.as_str()).unwrap_or_default();
    let is_own = match directive.name.as_str() {
        "proxy_set_header" | "grpc_set_header" => !is_plain_field(word(0)),
        // Any service could take the place of the meant one.
        "proxy_ssl_verify" | "grpc_ssl_verify" => word(0) == "on",
        name => is_guard(name),
    };
    is_own || directive.block.iter().flatten().any(guards)
}

fn is_plain_field(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    PLAIN_FIELDS.contains(&name.as_str())
}

fn is_guard(name: &str) -> bool {
    let authenticates = name.starts_with("auth_") && name != "auth_request_set";
    let runs_lua = LUA_PHASES.iter().any(|phase| name.starts_with(phase));
    GUARDS.contains(&name) || authenticates || runs_lua || name.starts_with("modsecurity")
}
