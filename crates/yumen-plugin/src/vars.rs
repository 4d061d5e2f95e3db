//! Variables of an exchange, with the names of NGINX and APISIX. Names are compiled with the configuration.

use std::borrow::Cow;
use std::io::Write;
use std::net::IpAddr;

use yumen_http::{Fields, Framing, HttpVersion};

use crate::{ClientCertificate, Exchange};

mod body_index;
mod data_values;
mod date;
mod escape;
mod graphql;
mod inputs;
mod json_index;
mod multipart;
mod post;
mod process;
mod request_text;
mod template;
mod traces;
mod unknown;

pub(crate) use body_index::BodyIndex;
pub use body_index::{BodyIndexing, IndexingProgress};
pub use data_values::{is_data_value, with_data_values};
pub use escape::escape_argument;
pub(crate) use graphql::GraphqlOperation;
pub use inputs::VarInputs;
pub use process::ProcessVars;
pub use template::VarTemplate;
pub use unknown::unknown_names;

/// Prefix of variables for response fields.
const SENT: &str = "sent_http_";

/// A variable with its parsed name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Var {
    /// A fixed name, such as `remote_addr`.
    Fixed(FixedVar),
    /// `http_x`: the request fields with this name, joined.
    RequestField(Box<str>),
    /// `sent_http_x`: the response fields with this name, joined; see [`Exchange::answer_fields`].
    ResponseField(Box<str>),
    /// `arg_x`: the first query argument with this name, decoded.
    Argument(Box<[u8]>),
    /// `raw_arg_x`: `$arg_x` of NGINX, the first query argument with this name in any case and an equals sign, as
    /// received.
    RawArgument(Box<[u8]>),
    /// `cookie_x`.
    Cookie(Box<[u8]>),
    /// `uri_param_x`: the value of a parameter in the route's path.
    PathParam(Box<str>),
    /// `post_arg_x` and `post_arg.a.b`: a field of a form, or a location in a JSON body.
    PostArgument(Box<str>),
    /// An unknown name, without a value. Reported as a problem: see [`unknown_names`].
    Unknown(Box<str>),
}

macro_rules! fixed {
    ($($variant:ident = $($name:literal)|+),* $(,)?) => {
        /// A variable with a fixed name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum FixedVar { $($variant),* }

        impl FixedVar {
            /// The variable with this name.
            pub fn of(name: &str) -> Option<FixedVar> {
                match name {
                    $($($name)|+ => Some(FixedVar::$variant),)*
                    _ => None,
                }
            }

            /// All names, for suggestions in problems.
            pub const NAMES: &[&str] = &[$($($name),+),*];
        }
    };
}

fixed! {
    Uri = "uri" | "document_uri",
    RequestUri = "request_uri",
    RealRequestUri = "real_request_uri",
    EscapedRequestUri = "escaped_request_uri",
    Args = "args" | "query_string",
    IsArgs = "is_args",
    Host = "host",
    RemoteAddr = "remote_addr",
    RemotePort = "remote_port",
    PeerPort = "realip_remote_port",
    BinaryRemoteAddr = "binary_remote_addr",
    PeerAddr = "realip_remote_addr",
    ServerAddr = "server_addr",
    ServerPort = "server_port",
    ServerName = "server_name",
    ServerProtocol = "server_protocol",
    Scheme = "scheme",
    Https = "https",
    RequestMethod = "request_method" | "method",
    RequestLine = "request",
    RequestLength = "request_length",
    RequestTime = "request_time",
    RequestBody = "request_body",
    RemoteUser = "remote_user",
    AddedForwardedFor = "proxy_add_x_forwarded_for",
    ForwardedProto = "http_x_forwarded_proto",
    ForwardedHost = "http_x_forwarded_host",
    ForwardedPort = "http_x_forwarded_port",
    ContentLength = "content_length",
    ContentType = "content_type",
    Connection = "connection",
    Msec = "msec",
    TimeIso8601 = "time_iso8601",
    TimeLocal = "time_local",
    Status = "status",
    UpstreamStatus = "upstream_status",
    UpstreamAddr = "upstream_addr",
    UpstreamUnresolvedHost = "upstream_unresolved_host",
    UpstreamUri = "upstream_uri",
    SslServerName = "ssl_server_name",
    SslProtocol = "ssl_protocol",
    SslCipher = "ssl_cipher",
    SslCurve = "ssl_curve",
    SslSessionReused = "ssl_session_reused",
    SslClientVerify = "ssl_client_verify",
    SslClientSubject = "ssl_client_s_dn",
    SslClientIssuer = "ssl_client_i_dn",
    SslClientSerial = "ssl_client_serial",
    SslClientFingerprint = "ssl_client_fingerprint",
    SslClientValidFrom = "ssl_client_v_start",
    SslClientValidUntil = "ssl_client_v_end",
    SslClientDaysLeft = "ssl_client_v_remain",
    SslClientRawCert = "ssl_client_raw_cert",
    SslClientCert = "ssl_client_cert",
    SslClientEscapedCert = "ssl_client_escaped_cert",
    RequestId = "request_id" | "apisix_request_id",
    TraceId = "trace_id",
    OpentelemetryParent = "opentelemetry_context_traceparent",
    OpentelemetryTraceId = "opentelemetry_trace_id",
    OpentelemetrySpanId = "opentelemetry_span_id",
    ZipkinParent = "zipkin_context_traceparent",
    ZipkinTraceId = "zipkin_trace_id",
    ZipkinSpanId = "zipkin_span_id",
    GraphqlOperation = "graphql_operation",
    GraphqlName = "graphql_name",
    GraphqlRootFields = "graphql_root_fields",
    ConsumerName = "consumer_name" | "consumer_id",
    ConsumerGroupId = "consumer_group_id",
    RouteId = "route_id",
    RouteName = "route_name",
    ServiceId = "service_id",
    ServiceName = "service_name",
    BalancerIp = "balancer_ip",
    BalancerPort = "balancer_port",
    MatchedUri = "matched_uri",
    MatchedHost = "matched_host",
    MqttClientId = "mqtt_client_id",
    StreamProtocol = "protocol",
    Hostname = "hostname",
    Pid = "pid",
    BytesSent = "bytes_sent",
    BodyBytesSent = "body_bytes_sent",
}

/// A value with its type: JSON and GraphQL have types other than text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum VarValue<'a> {
    Text(Cow<'a, [u8]>),
    Number(f64),
    Bool(bool),
    List(Vec<VarValue<'a>>),
}

impl Var {
    /// Parses a name without its dollar sign.
    pub fn parse(name: &str) -> Var {
        if let Some(fixed) = FixedVar::of(name) {
            return Var::Fixed(fixed);
        }
        // As in NGINX, an underscore in the variable stands for a dash in the field name.
        let field = |name: &str| name.to_ascii_lowercase().replace('_', "-").into_boxed_str();
        if let Some(name) = name.strip_prefix("http_") {
            // A name with dashes or capitals misses the table above, but means the same variable.
            match &*field(name) {
                "x-forwarded-proto" => Var::Fixed(FixedVar::ForwardedProto),
                "x-forwarded-host" => Var::Fixed(FixedVar::ForwardedHost),
                "x-forwarded-port" => Var::Fixed(FixedVar::ForwardedPort),
                name => Var::RequestField(name.into()),
            }
        } else if let Some(name) = name.strip_prefix(SENT) {
            Var::ResponseField(field(name))
        } else if let Some(name) = name.strip_prefix("arg_") {
            Var::Argument(name.as_bytes().into())
        } else if let Some(name) = name.strip_prefix("raw_arg_") {
            Var::RawArgument(name.as_bytes().into())
        } else if let Some(name) = name.strip_prefix("cookie_") {
            Var::Cookie(name.as_bytes().into())
        } else if let Some(name) = name.strip_prefix("uri_param_") {
            Var::PathParam(name.into())
        } else if name.starts_with("post_arg_") || name.starts_with("post_arg.") {
            Var::PostArgument(name["post_arg_".len()..].into())
        } else {
            unknown::note(name);
            Var::Unknown(name.into())
        }
    }

    /// The value for comparison; `None` without one. Values of the request are borrowed, while addresses,
    /// numbers and times are formatted.
    pub fn get<'a>(&self, ex: &'a Exchange<'_>) -> Option<Cow<'a, [u8]>> {
        match self {
            Var::Fixed(fixed) => fixed.get(ex),
            Var::RequestField(name) => joined(&ex.request.fields, name),
            Var::ResponseField(name) => joined(ex.response.visible_fields(), name),
            Var::Argument(name) => argument(ex.request.query()?, name),
            Var::RawArgument(name) => raw_argument(ex.request.query()?, name).map(Cow::Borrowed),
            Var::Cookie(name) => ex.request.cookie(name).map(Cow::Borrowed),
            Var::PathParam(name) => ex.path_param(name),
            Var::PostArgument(name) => body_index::argument(ex, name).map(VarValue::into_text),
            Var::Unknown(_) => None,
        }
    }

    /// The value with its type, for conditions.
    pub(crate) fn value<'a>(&self, ex: &'a Exchange<'_>) -> Option<VarValue<'a>> {
        match self {
            Var::Fixed(FixedVar::GraphqlRootFields) => {
                let operation = graphql::operation(ex)?;
                let fields = operation.root_fields.iter();
                let texts = fields.map(|field| VarValue::Text(Cow::Owned(field.clone().into_bytes())));
                Some(VarValue::List(texts.collect()))
            }
            Var::PostArgument(name) => body_index::argument(ex, name),
            _ => self.get(ex).map(VarValue::Text),
        }
    }

    /// The value as an IP address, without formatting where possible.
    pub(crate) fn ip(&self, ex: &Exchange<'_>) -> Option<IpAddr> {
        match self {
            Var::Fixed(FixedVar::RemoteAddr) => Some(ex.client.ip),
            Var::Fixed(FixedVar::PeerAddr) => Some(ex.client.connection.peer.ip().to_canonical()),
            _ => std::str::from_utf8(&self.get(ex)?).ok()?.trim().parse().ok(),
        }
    }

    /// Appends the value; returns whether there is one. The path in `request_uri` is percent-encoded here,
    /// because the text may become a URL or a field.
    pub(crate) fn append(&self, ex: &Exchange<'_>, out: &mut Vec<u8>) -> bool {
        if let Var::Fixed(fixed) = self
            && fixed.format(ex, out)
        {
            return true;
        }
        let value = self.get(ex);
        out.extend_from_slice(value.as_deref().unwrap_or_default());
        value.is_some()
    }

    /// Whether the value is in the request body.
    pub fn needs_body(&self) -> bool {
        use FixedVar::{GraphqlName, GraphqlOperation, GraphqlRootFields};
        matches!(self, Var::PostArgument(_) | Var::Fixed(GraphqlOperation | GraphqlName | GraphqlRootFields))
    }

    /// Whether the value is a response field.
    pub fn reads_answer(&self) -> bool {
        matches!(self, Var::ResponseField(_))
    }

    /// Whether the value depends on the request only, not on upstream, response or later bytes.
    pub fn is_of_request(&self) -> bool {
        use FixedVar::{
            BalancerIp, BalancerPort, BodyBytesSent, BytesSent, MqttClientId, RequestBody, RequestLength,
            RequestTime, Status, UpstreamAddr, UpstreamStatus, UpstreamUnresolvedHost, UpstreamUri,
        };
        let is_late = matches!(
            self,
            Var::ResponseField(_)
                | Var::Unknown(_)
                | Var::Fixed(
                    BalancerIp
                        | BalancerPort
                        | BodyBytesSent
                        | BytesSent
                        | MqttClientId
                        | RequestBody
                        | RequestLength
                        | RequestTime
                        | Status
                        | UpstreamAddr
                        | UpstreamStatus
                        | UpstreamUnresolvedHost
                        | UpstreamUri
                )
        );
        !is_late
    }

    /// Whether the value is in a body that is not buffered yet. A body of a type without values has none.
    pub fn awaits_body(&self, ex: &Exchange<'_>) -> bool {
        self.needs_body()
            && ex.body.buffered.is_none()
            && ex.request.framing != Framing::None
            && match self {
                Var::PostArgument(_) => post::is_looked_into(ex),
                _ => graphql::is_in_body(ex),
            }
    }
}

impl FixedVar {
    fn get<'a>(self, ex: &'a Exchange<'_>) -> Option<Cow<'a, [u8]>> {
        if let Some(bytes) = self.borrowed(ex) {
            return Some(Cow::Borrowed(bytes));
        }
        let operation = || graphql::operation(ex);
        match self {
            FixedVar::RequestUri => Some(ex.request.request_uri()),
            FixedVar::EscapedRequestUri => {
                let mut escaped = Vec::new();
                escape_argument(ex.request.real_request_uri(), &mut escaped);
                Some(Cow::Owned(escaped))
            }
            FixedVar::ContentType => joined(&ex.request.fields, "content-type"),
            FixedVar::ForwardedProto | FixedVar::ForwardedHost | FixedVar::ForwardedPort => {
                Some(self.forwarded(ex))
            }
            FixedVar::GraphqlOperation => operation().map(|found| Cow::Borrowed(found.kind.as_bytes())),
            FixedVar::GraphqlName => operation().map(|found| Cow::Owned(found.name.clone().into_bytes())),
            FixedVar::GraphqlRootFields => {
                operation().map(|found| Cow::Owned(found.root_fields.join(",").into_bytes()))
            }
            _ => {
                let mut out = Vec::new();
                self.format(ex, &mut out).then_some(Cow::Owned(out))
            }
        }
    }

    /// The value if the exchange contains it as bytes.
    fn borrowed<'a>(self, ex: &'a Exchange<'_>) -> Option<&'a [u8]> {
        let present = |text: &'a str| (!text.is_empty()).then_some(text.as_bytes());
        let request = &ex.request;
        match self {
            FixedVar::Uri => Some(request.path()),
            FixedVar::RealRequestUri => Some(request.real_request_uri()),
            FixedVar::Args => request.query(),
            FixedVar::IsArgs => {
                Some(if request.query().is_some_and(|query| !query.is_empty()) { b"?" } else { b"" })
            }
            FixedVar::Host => Some(request.host()).filter(|host| !host.is_empty()),
            // The generated `nginx.conf` of APISIX has one HTTP server with this name.
            FixedVar::ServerName => Some(b"_"),
            FixedVar::ServerProtocol => Some(protocol(request.version)),
            FixedVar::Scheme => Some(ex.client.scheme().as_bytes()),
            FixedVar::Https => Some(if ex.client.connection.tls.is_some() { b"on" } else { b"" }),
            // As in NGINX, `$https` is present and empty without TLS.
            FixedVar::RequestMethod => Some(request.method_name()),
            FixedVar::ContentLength => request.fields.known(yumen_http::KnownField::ContentLength),
            FixedVar::RequestId => request.fields.known(yumen_http::KnownField::XRequestId),
            FixedVar::RequestBody => ex.body.buffered.as_deref(),
            FixedVar::UpstreamUri => Some(request.upstream_target()),
            FixedVar::SslServerName => present(ex.client.tls()?.sni.as_deref()?),
            FixedVar::SslProtocol => present(ex.client.tls()?.version),
            FixedVar::SslCipher => present(ex.client.tls()?.cipher),
            FixedVar::SslCurve => present(ex.client.tls()?.group),
            // NGINX writes `r` for a resumed session and a dot otherwise.
            FixedVar::SslSessionReused => Some(if ex.client.tls()?.is_resumed { b"r" } else { b"." }),
            FixedVar::SslClientSubject => present(&client_certificate(ex)?.subject),
            FixedVar::SslClientIssuer => present(&client_certificate(ex)?.issuer),
            FixedVar::SslClientSerial => present(&client_certificate(ex)?.serial),
            FixedVar::SslClientFingerprint => present(&client_certificate(ex)?.fingerprint),
            FixedVar::SslClientValidFrom => present(&client_certificate(ex)?.valid_from),
            FixedVar::SslClientValidUntil => present(&client_certificate(ex)?.valid_until),
            FixedVar::ConsumerName => present(&ex.consumer?.username),
            FixedVar::ConsumerGroupId => present(ex.consumer?.group_id.as_deref()?),
            FixedVar::RouteId => present(&ex.route.info?.id),
            FixedVar::RouteName => present(&ex.route.info?.name),
            FixedVar::ServiceId => present(&ex.route.info?.service_id),
            FixedVar::ServiceName => present(&ex.route.info?.service_name),
            FixedVar::MatchedUri => present(ex.route.uri()),
            FixedVar::MatchedHost => present(ex.route.host),
            FixedVar::UpstreamUnresolvedHost => present(ex.endpoint.host),
            FixedVar::Hostname => present(&ProcessVars::current()?.hostname),
            // The stream module of NGINX writes the protocol in capitals.
            FixedVar::StreamProtocol => {
                present(if ex.client.stream.as_ref()?.protocol == "udp" { "UDP" } else { "TCP" })
            }
            FixedVar::MqttClientId => present(ex.client.stream.as_ref()?.mqtt_client_id.as_deref()?),
            _ => None,
        }
    }

    /// The forwarded value of a trusted peer or a plugin, or that of the connection, as in APISIX.
    fn forwarded<'a>(self, ex: &'a Exchange<'_>) -> Cow<'a, [u8]> {
        let fields = &ex.request.fields;
        match self {
            FixedVar::ForwardedHost => {
                joined(fields, "x-forwarded-host").unwrap_or(Cow::Borrowed(ex.request.host()))
            }
            FixedVar::ForwardedPort => joined(fields, "x-forwarded-port")
                .unwrap_or_else(|| Cow::Owned(ex.client.connection.dialed_port().to_string().into_bytes())),
            _ => joined(fields, "x-forwarded-proto").unwrap_or(Cow::Borrowed(ex.client.scheme().as_bytes())),
        }
    }

    /// Appends a value that requires formatting; false for others and without a value.
    fn format(self, ex: &Exchange<'_>, out: &mut Vec<u8>) -> bool {
        let peer = ex.client.connection.peer;
        match self {
            FixedVar::RemoteAddr => text(out, ex.client.ip),
            // A trusted proxy may forward an address without a port.
            FixedVar::RemotePort if ex.client.port != 0 => number(out, ex.client.port.into()),
            FixedVar::RequestUri => out.extend_from_slice(&ex.request.encoded_request_uri()),
            FixedVar::PeerPort => number(out, peer.port().into()),
            FixedVar::BinaryRemoteAddr => match ex.client.ip {
                IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
                IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
            },
            FixedVar::PeerAddr => text(out, peer.ip().to_canonical()),
            FixedVar::ServerAddr => text(out, ex.client.connection.local.ip().to_canonical()),
            FixedVar::ServerPort => number(out, ex.server_port().into()),
            FixedVar::RequestLine => request_text::request_line(ex, out),
            FixedVar::RequestLength => number(out, request_text::request_length(ex)),
            FixedVar::RequestTime => {
                let spent_ms = ex.host.clock().mono_us.saturating_sub(ex.now.mono_us) / 1000;
                text(out, format_args!("{}.{:03}", spent_ms / 1000, spent_ms % 1000));
            }
            // Without the field, the exchange has an id of its own, as requests have in NGINX.
            FixedVar::RequestId if ex.request.fields.known(yumen_http::KnownField::XRequestId).is_none() => {
                let [high, low] = ex.own_id();
                text(out, format_args!("{high:016x}{low:016x}"));
            }
            FixedVar::RemoteUser => return request_text::remote_user(ex, out),
            FixedVar::AddedForwardedFor => {
                for hop in ex.request.fields.all_known(yumen_http::KnownField::XForwardedFor) {
                    out.extend_from_slice(hop);
                    out.extend_from_slice(b", ");
                }
                text(out, ex.client.ip);
            }
            FixedVar::Connection => number(out, ex.client.connection.connection_id),
            FixedVar::Pid => number(out, ProcessVars::current().map_or(0, |process| process.pid).into()),
            // 0 before the log phase, whose plugins and filters read these.
            FixedVar::BytesSent => number(out, ex.sent().total),
            FixedVar::BodyBytesSent => number(out, ex.sent().body),
            FixedVar::Msec => {
                number(out, ex.now.unix_s());
                text(out, format_args!(".{:03}", ex.now.unix_ms % 1000));
            }
            FixedVar::TimeIso8601 => date::iso8601(out, ex.now.unix_s()),
            FixedVar::TimeLocal => date::log_time(out, ex.now.unix_s()),
            FixedVar::Status if ex.response.status != 0 => number(out, ex.response.status.into()),
            FixedVar::UpstreamStatus if ex.endpoint.status != 0 => number(out, ex.endpoint.status.into()),
            FixedVar::SslClientVerify => match &ex.client.connection.tls {
                Some(tls) => tls.verdict.append(out),
                None => return false,
            },
            FixedVar::SslClientDaysLeft
            | FixedVar::SslClientRawCert
            | FixedVar::SslClientCert
            | FixedVar::SslClientEscapedCert => match client_certificate(ex) {
                Some(certificate) => self.format_certificate(certificate, ex.now.unix_s(), out),
                None => return false,
            },
            FixedVar::UpstreamAddr | FixedVar::BalancerIp | FixedVar::BalancerPort => {
                let Some(endpoint) = ex.endpoint.address else { return false };
                match self {
                    FixedVar::BalancerIp => text(out, endpoint.ip()),
                    FixedVar::BalancerPort => number(out, endpoint.port().into()),
                    _ => text(out, endpoint),
                }
            }
            _ => return self.format_trace(ex, out),
        }
        true
    }

    /// Appends a value that is derived from the client certificate.
    fn format_certificate(self, certificate: &ClientCertificate, now_unix_s: u64, out: &mut Vec<u8>) {
        match self {
            FixedVar::SslClientDaysLeft => number(out, certificate.days_left(now_unix_s)),
            // As in NGINX: tabs make it valid as a folded field value.
            FixedVar::SslClientCert => text(out, certificate.pem("\t")),
            FixedVar::SslClientEscapedCert => {
                let pem = certificate.pem("") + "\n";
                text(out, percent_encoding::utf8_percent_encode(&pem, ESCAPED));
            }
            _ => text(out, certificate.pem("") + "\n"),
        }
    }
}

/// The characters that `$ssl_client_escaped_cert` does not escape (RFC 3986 §2.3).
const ESCAPED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn client_certificate<'a>(ex: &'a Exchange<'_>) -> Option<&'a ClientCertificate> {
    ex.client.tls()?.certificate.as_deref()
}

impl<'a> VarValue<'a> {
    pub(crate) fn into_text(self) -> Cow<'a, [u8]> {
        match self {
            VarValue::Text(text) => text,
            VarValue::Number(number) => Cow::Owned(number.to_string().into_bytes()),
            VarValue::Bool(true) => Cow::Borrowed(b"true"),
            VarValue::Bool(false) => Cow::Borrowed(b"false"),
            VarValue::List(items) => {
                let texts: Vec<Cow<'a, [u8]>> = items.into_iter().map(VarValue::into_text).collect();
                Cow::Owned(texts.join(&b","[..]))
            }
        }
    }
}

fn protocol(version: HttpVersion) -> &'static [u8] {
    match version {
        HttpVersion::Http10 => b"HTTP/1.0",
        HttpVersion::Http11 => b"HTTP/1.1",
        // NGINX writes a minor version for these too.
        HttpVersion::Http2 => b"HTTP/2.0",
        HttpVersion::Http3 => b"HTTP/3.0",
    }
}

fn text(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    write!(out, "{value}").expect("a vector takes every write");
}

fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// All values under `name`, joined by the rules of cookies or of lists (RFC 9110 §5.3).
fn joined<'a>(fields: &'a Fields, name: &str) -> Option<Cow<'a, [u8]>> {
    let first = fields.get(name)?;
    let mut rest = fields.all(name).skip(1).peekable();
    if rest.peek().is_none() {
        return Some(Cow::Borrowed(first));
    }
    // Several cookie lines are one list of pairs (RFC 9113 §8.2.3).
    let separator: &[u8] = if name == "cookie" { b"; " } else { b", " };
    let mut value = first.to_vec();
    for next in rest {
        value.extend_from_slice(separator);
        value.extend_from_slice(next);
    }
    Some(Cow::Owned(value))
}

/// The first argument with the decoded name `name`. One without an equals sign has the value `true`, as in
/// APISIX.
fn argument<'a>(query: &'a [u8], name: &[u8]) -> Option<Cow<'a, [u8]>> {
    query.split(|byte| *byte == b'&').find_map(|pair| {
        let equals = memchr::memchr(b'=', pair);
        let key = &pair[..equals.unwrap_or(pair.len())];
        // Decoding never lengthens a name.
        if key.len() < name.len() || post::form_decode(key).as_ref() != name {
            return None;
        }
        Some(equals.map_or(Cow::Borrowed(&b"true"[..]), |equals| post::form_decode(&pair[equals + 1..])))
    })
}

fn raw_argument<'a>(query: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    query.split(|byte| *byte == b'&').find_map(|pair| {
        let (key, value) = pair.split_at(memchr::memchr(b'=', pair)?);
        key.eq_ignore_ascii_case(name).then(|| &value[1..])
    })
}

#[cfg(test)]
mod tests;
