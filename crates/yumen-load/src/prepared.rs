//! A plan prepared for execution: addresses resolved, requests encoded, TLS configured.
//! Independent of connections.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::error::LoadError;
use crate::plan::{LoadPlan, LoadProtocol, LoadShape, RequestPlan};
use crate::tls;

/// Maximum length of the weighted order of URLs.
const ORDER_MAX: usize = 4_000_000;
/// Connection-specific fields, which HTTP/2 forbids (RFC 9113 §8.2.2).
const CONNECTION_FIELDS: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// Scheme, host and port: the destination of connections.
#[derive(Clone, Debug)]
pub(crate) struct LoadOrigin {
    key: OriginKey,
    pub(crate) addresses: Vec<SocketAddr>,
    /// Server name for TLS; `None` for `http`.
    pub(crate) server_name: Option<ServerName<'static>>,
}

/// The origin as written in a URL (RFC 9110 §4.3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
struct OriginKey {
    is_https: bool,
    host: String,
    port: u16,
}

/// Prepared request of one URL.
#[derive(Clone, Debug)]
pub(crate) struct PreparedRequest {
    /// Index of the origin.
    pub(crate) origin: usize,
    /// The request in HTTP/1.1 format, body included.
    pub(crate) encoded: Bytes,
    /// The request for HTTP/2.
    pub(crate) request: Option<Request<()>>,
}

/// Immutable data shared by all threads.
pub(crate) struct PreparedPlan {
    pub(crate) plan: LoadPlan,
    pub(crate) origins: Vec<LoadOrigin>,
    pub(crate) targets: Vec<PreparedRequest>,
    /// Indexes of targets, repeated by weight and shuffled.
    pub(crate) order: Vec<u32>,
    pub(crate) body: Bytes,
    pub(crate) head_request: bool,
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl PreparedPlan {
    pub(crate) fn new(plan: &LoadPlan) -> Result<Self, LoadError> {
        // Before names are resolved, which takes time.
        check(plan)?;
        let mut origins: Vec<LoadOrigin> = Vec::new();
        let mut targets = Vec::new();
        for weighted in &plan.request.urls {
            let bad = |why: String| LoadError::Url { url: weighted.url.clone(), why };
            let uri: Uri = weighted.url.parse().map_err(|error| bad(format!("{error}")))?;
            let key = origin_key(&uri).map_err(bad)?;
            // One set of connections per origin, however many URLs it has.
            let origin = match origins.iter().position(|origin| origin.key == key) {
                Some(index) => index,
                None => {
                    origins.push(LoadOrigin::resolve(key, plan).map_err(bad)?);
                    origins.len() - 1
                }
            };
            let request = match plan.protocol {
                LoadProtocol::Http1 => None,
                LoadProtocol::Http2 => Some(request(plan, &uri)?),
            };
            targets.push(PreparedRequest { origin, encoded: encode(plan, &uri), request });
        }
        let secure = origins.iter().any(|origin| origin.server_name.is_some());
        Ok(Self {
            order: mix(plan)?,
            body: Bytes::from(plan.request.body.clone()),
            head_request: plan.request.method == "HEAD",
            tls: secure.then(|| tls::client(plan)).transpose()?,
            plan: LoadPlan {
                request: RequestPlan {
                    // The result contains the plan; a large body would be repeated in it.
                    body_bytes: plan.request.body.len() as u64,
                    body: Vec::new(),
                    ..plan.request.clone()
                },
                ..plan.clone()
            },
            origins,
            targets,
        })
    }

    /// Requests in flight at once over the whole run.
    pub(crate) fn request_loops(&self) -> usize {
        match self.plan.protocol {
            LoadProtocol::Http1 => self.plan.connections,
            LoadProtocol::Http2 => self.plan.connections * self.plan.streams,
        }
    }
}

fn check(plan: &LoadPlan) -> Result<(), LoadError> {
    let wrong = |message: &str| Err(LoadError::Plan(message.to_owned()));
    let positive = |rate: f64| rate.is_finite() && rate > 0.0;
    if plan.request.urls.is_empty() {
        return wrong("no URL is given");
    }
    if plan.connections == 0 || plan.threads == 0 || plan.streams == 0 {
        return wrong("connections, threads and streams must each be at least 1");
    }
    if plan.connections < plan.threads {
        return wrong("there are fewer connections than threads: each thread needs one");
    }
    if plan.connect_timeout_ms == 0 || plan.response_timeout_ms == 0 {
        return wrong("timeouts must be at least a millisecond");
    }
    if plan.protocol == LoadProtocol::Http2 && plan.new_connection && plan.streams > 1 {
        return wrong("a new connection for each request leaves no room for several streams on one");
    }
    if plan.limits.warmup_ms > 0 && (plan.limits.duration_ms.is_none() || plan.limits.count.is_some()) {
        return wrong("a warm-up goes with a duration, not with a count");
    }
    match &plan.kind {
        LoadShape::Closed | LoadShape::Open { .. }
            if plan.limits.duration_ms.is_none() && plan.limits.count.is_none() =>
        {
            wrong("neither a duration nor a count is given: the run would not end")
        }
        LoadShape::Open { rate } if !positive(*rate) => wrong("the rate must be above 0"),
        LoadShape::Ramp { low, high, step, calls, connections_per_step } => {
            if !positive(*low) || !positive(*step) || !high.is_finite() || high < low {
                wrong("a ramp needs 0 < low <= high and a step above 0")
            } else if *calls == 0 || *connections_per_step == 0 {
                wrong("a ramp needs at least one call per connection and one connection per step")
            } else if (high - low) / step > 10_000.0 {
                wrong("a ramp of more than 10 000 steps")
            } else {
                only_http1(plan, "a rate ramp")
            }
        }
        LoadShape::Idle { .. } => only_http1(plan, "holding idle connections"),
        _ => Ok(()),
    }
}

fn only_http1(plan: &LoadPlan, what: &str) -> Result<(), LoadError> {
    match plan.protocol {
        LoadProtocol::Http1 => Ok(()),
        LoadProtocol::Http2 => Err(LoadError::Plan(format!("{what} is made with HTTP/1.1"))),
    }
}

fn origin_key(uri: &Uri) -> Result<OriginKey, String> {
    let is_https = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        other => {
            return Err(format!("the scheme is {}; http and https are allowed", other.unwrap_or("missing")));
        }
    };
    let host = uri.host().filter(|host| !host.is_empty()).ok_or("there is no host")?;
    let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    // The resolver takes IPv6 addresses without their brackets.
    Ok(OriginKey { is_https, host: host.trim_matches(['[', ']']).to_owned(), port })
}

impl LoadOrigin {
    fn resolve(key: OriginKey, plan: &LoadPlan) -> Result<Self, String> {
        let OriginKey { is_https, host, port } = &key;
        // Resolved once, so that no request measures a name server.
        let addresses = (host.as_str(), *port).to_socket_addrs().map_err(|error| error.to_string())?;
        let addresses: Vec<_> = addresses.collect();
        if addresses.is_empty() {
            return Err("the host has no address".to_owned());
        }
        let name = plan.tls.server_name.as_ref().unwrap_or(host).clone();
        let server_name = is_https
            .then(|| ServerName::try_from(name).map_err(|error| format!("server name: {error}")))
            .transpose()?;
        Ok(Self { addresses, server_name, key })
    }
}

/// Encodes the request. Fields of the plan are sent unchanged; only missing ones are added.
fn encode(plan: &LoadPlan, uri: &Uri) -> Bytes {
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let mut out = format!("{} {} HTTP/1.1\r\n", plan.request.method, target).into_bytes();
    let given = |name: &str| plan.request.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    // HTTP/1.1 requires Host (RFC 9112 §3.2).
    if !given("host") {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        // The Host field omits userinfo (RFC 9110 §7.2).
        let host = authority.rsplit('@').next().unwrap_or_default();
        out.extend_from_slice(format!("Host: {host}\r\n").as_bytes());
    }
    for (name, value) in &plan.request.headers {
        out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    // RFC 9110 §8.6: methods that define content send a Content-Length even for an empty body.
    let needs_length =
        !plan.request.body.is_empty() || matches!(plan.request.method.as_str(), "POST" | "PUT" | "PATCH");
    // A framing field of the plan is not doubled.
    if needs_length && !given("content-length") && !given("transfer-encoding") {
        out.extend_from_slice(format!("Content-Length: {}\r\n", plan.request.body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&plan.request.body);
    Bytes::from(out)
}

fn request(plan: &LoadPlan, uri: &Uri) -> Result<Request<()>, LoadError> {
    let bad = |what: String| LoadError::Plan(what);
    let method: Method =
        plan.request.method.parse().map_err(|_| bad(format!("{}: not a method", plan.request.method)))?;
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri.clone();
    *request.version_mut() = http::Version::HTTP_2;
    for (name, value) in &plan.request.headers {
        if CONNECTION_FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field)) {
            return Err(bad(format!("header {name}: HTTP/2 has no connection fields")));
        }
        // HTTP/2 has the host in `:authority` (RFC 9113 §8.3.1).
        if name.eq_ignore_ascii_case("host") {
            let host = value.parse().map_err(|_| bad(format!("header Host: {value}: not an authority")))?;
            *request.uri_mut() = with_authority(uri, host).map_err(bad)?;
            continue;
        }
        let field =
            HeaderName::try_from(name.as_str()).map_err(|_| bad(format!("header {name}: not a name")))?;
        let text = HeaderValue::try_from(value.as_str())
            .map_err(|_| bad(format!("header {name}: {value}: not a field value")))?;
        request.headers_mut().append(field, text);
    }
    if !plan.request.body.is_empty() && !request.headers().contains_key(http::header::CONTENT_LENGTH) {
        request.headers_mut().insert(http::header::CONTENT_LENGTH, (plan.request.body.len() as u64).into());
    }
    Ok(request)
}

fn with_authority(uri: &Uri, authority: http::uri::Authority) -> Result<Uri, String> {
    let mut parts = uri.clone().into_parts();
    parts.authority = Some(authority);
    Uri::from_parts(parts).map_err(|error| error.to_string())
}

/// Repeats targets by weight and shuffles them, identically in every run.
fn mix(plan: &LoadPlan) -> Result<Vec<u32>, LoadError> {
    // Weights 50 and 100 need three entries, not 150.
    let divisor =
        plan.request.urls.iter().fold(0, |divisor, url| greatest_common_divisor(divisor, url.weight));
    if divisor == 0 {
        return Err(LoadError::Plan("every weight is 0".to_owned()));
    }
    let length: u64 = plan.request.urls.iter().map(|url| u64::from(url.weight / divisor)).sum();
    // Bounds the memory, and the time of the shuffle.
    if length > ORDER_MAX as u64 {
        return Err(LoadError::Plan(format!("the weights add up to {length}; at most {ORDER_MAX}")));
    }
    let mut order = Vec::with_capacity(length as usize);
    for (index, url) in plan.request.urls.iter().enumerate() {
        order.extend(std::iter::repeat_n(index as u32, (url.weight / divisor) as usize));
    }
    // A fixed seed, so that equal plans send their requests in the same order.
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    // Fisher and Yates; the bias of the modulo is negligible for such lengths.
    for last in (1..order.len()).rev() {
        order.swap(last, (next_random(&mut state) % (last as u64 + 1)) as usize);
    }
    Ok(order)
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// SplitMix64: sufficient for shuffling, and identical on all platforms.
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
