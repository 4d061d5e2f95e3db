//! Services that plugins call: the URL in the settings, the inline upstream for it, and subrequests to it.
//!
//! A URL becomes an inline upstream, so names are resolved beside the traffic, and connections are pooled like those to
//! other upstreams.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use yumen_config::resource::{UpstreamSpec, decode_value};
use yumen_config::schema::InvalidSettings;
use yumen_config::url;
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{
    Fields, Method, ObjectLookup, OutboundProxy, PluginHost, SubrequestFault, SubrequestResponse,
    SubrequestSpec, UpstreamSlot, escape_argument,
};

/// The components of a URL in settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceUrl {
    is_https: bool,
    /// The host; an IPv6 address is in brackets.
    host: String,
    port: u16,
    /// Host and port as written.
    authority: String,
    /// Path and query, beginning with a slash.
    target: String,
}

impl ServiceUrl {
    /// Parses the setting at `path`. The message does not repeat the URL: it may contain a password, and problems have
    /// more readers than settings.
    pub(crate) fn parse(path: &str, text: &str) -> Result<ServiceUrl, InvalidSettings> {
        let refused =
            || InvalidSettings::at(path, "not an http or https URL such as http://127.0.0.1:9000/check");
        let (scheme, rest) = text.split_once("://").ok_or_else(refused)?;
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(refused()),
        };
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        // In an IPv6 address in brackets, the last colon begins no port.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !authority.ends_with(']') => (host, url::port(port).ok_or_else(refused)?),
            _ => (authority, if is_https { 443 } else { 80 }),
        };
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        // Credentials in a URL are deprecated (RFC 9110 §4.2.4).
        if authority.contains('@') {
            return Err(InvalidSettings::at(
                path,
                "a URL with a user is not accepted; remove `user:password@` and use the setting for \
                 credentials or fields, if the plugin has one",
            ));
        }
        if host.is_empty() || !is_plain {
            return Err(refused());
        }
        // The origin form of a target begins with a slash (RFC 9112 §3.2.1).
        let slash = if target.starts_with('/') { "" } else { "/" };
        Ok(ServiceUrl {
            is_https,
            host: host.to_owned(),
            port,
            authority: authority.to_owned(),
            target: format!("{slash}{target}"),
        })
    }
}

/// Settings of connections that several plugins of APISIX have under the same names.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ServiceSettings {
    /// Whether the certificate of the service is verified.
    #[serde(default = "yes")]
    ssl_verify: bool,
    /// Whether connections to the service are reused.
    #[serde(default = "yes")]
    keepalive: bool,
    /// Idle timeout of connections to the service in milliseconds.
    #[serde(default = "keepalive_ms")]
    #[schemars(range(min = 1000))]
    keepalive_timeout: u64,
    /// Most idle connections to the service in each worker.
    #[serde(default = "keepalive_pool")]
    #[schemars(range(min = 1))]
    keepalive_pool: u64,
}

fn yes() -> bool {
    true
}

fn keepalive_ms() -> u64 {
    60_000
}

fn keepalive_pool() -> u64 {
    5
}

impl ServiceSettings {
    /// The connection of `plugin` with these settings.
    pub(crate) fn connection(&self, plugin: &'static str, timeout_ms: u64) -> ServiceConnection {
        ServiceConnection::new(plugin, timeout_ms, self.ssl_verify).keepalive(
            self.keepalive,
            self.keepalive_timeout,
            self.keepalive_pool,
        )
    }

    /// Whether the certificate of the service is verified.
    pub(crate) fn verifies(&self) -> bool {
        self.ssl_verify
    }
}

/// Settings of connections to a service. Every plugin has them under names of its own.
#[derive(Debug, Clone)]
pub(crate) struct ServiceConnection {
    /// Name of the plugin in metrics.
    pub(crate) plugin: &'static str,
    /// Time limit of a call in milliseconds.
    pub(crate) timeout_ms: u64,
    /// Whether the certificate of the service is verified.
    pub(crate) verify: bool,
    /// Trust anchors in PEM instead of those of the system.
    pub(crate) ca_pem: Option<String>,
    /// Client certificate and key in PEM.
    pub(crate) client: Option<(String, String)>,
    /// Idle connections that are reused; `None` closes each connection after one call.
    pub(crate) keepalive: Option<ServiceKeepalive>,
    /// The proxy between the gateway and the service.
    pub(crate) proxy: Option<OutboundProxy>,
    /// Maximum number of calls of a worker that are in flight.
    pub(crate) in_flight_max: u32,
}

/// Reuse of connections to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServiceKeepalive {
    /// Idle timeout in milliseconds.
    pub(crate) idle_ms: u64,
    /// Most idle connections in each worker.
    pub(crate) size: u64,
}

impl ServiceConnection {
    /// The connection settings of `plugin` with the defaults of APISIX: reuse for 60 s, five idle connections.
    pub(crate) fn new(plugin: &'static str, timeout_ms: u64, verify: bool) -> ServiceConnection {
        ServiceConnection {
            plugin,
            timeout_ms,
            verify,
            ca_pem: None,
            client: None,
            keepalive: Some(ServiceKeepalive { idle_ms: 60_000, size: 5 }),
            proxy: None,
            in_flight_max: SubrequestSpec::IN_FLIGHT_MAX,
        }
    }

    /// The settings that every plugin of APISIX with `keepalive`, `keepalive_timeout` and `keepalive_pool` has.
    pub(crate) fn keepalive(self, is_on: bool, idle_ms: u64, size: u64) -> ServiceConnection {
        ServiceConnection { keepalive: is_on.then_some(ServiceKeepalive { idle_ms, size }), ..self }
    }

    /// The inline upstream with the endpoint of the URL.
    fn upstream(&self, path: &str, url: &ServiceUrl) -> Result<UpstreamSpec, InvalidSettings> {
        let mut written = json!({
            "nodes": [{ "host": url.host, "port": url.port, "weight": 1 }],
            "scheme": if url.is_https { "https" } else { "http" },
        });
        if let Some(keepalive) = self.keepalive {
            written["keepalive_pool"] = json!({
                "size": keepalive.size,
                "idle_timeout": keepalive.idle_ms as f64 / 1000.0,
                "requests": 1000,
            });
        }
        if url.is_https {
            let mut tls = json!({ "verify": self.verify });
            if let Some(ca) = &self.ca_pem {
                tls["ca"] = json!(ca);
            }
            if let Some((certificate, key)) = &self.client {
                tls["client_cert"] = json!(certificate);
                tls["client_key"] = json!(key);
            }
            written["tls"] = tls;
        }
        decode_value(written).map_err(|refused| InvalidSettings::at(path, refused.message))
    }
}

/// A service that a plugin calls.
#[derive(Debug, Clone)]
pub(crate) struct ServiceTarget {
    slot: UpstreamSlot,
    url: ServiceUrl,
    plugin: &'static str,
    timeout_ms: u64,
    keeps: bool,
    in_flight_max: u32,
}

impl ServiceTarget {
    /// Registers the inline upstream of `url`. `path` is the setting with the URL; it must be unique in the plugin.
    /// Without `objects`, the settings are only validated.
    pub(crate) fn build(
        path: &str,
        url: &ServiceUrl,
        how: &ServiceConnection,
        objects: Option<&dyn ObjectLookup>,
    ) -> Result<ServiceTarget, InvalidSettings> {
        let written = how.upstream(path, url)?;
        let slot = match objects {
            None => UpstreamSlot::default(),
            Some(objects) => objects
                .inline_upstream_through(path, written, how.proxy.clone())
                .map_err(|refused| InvalidSettings::at(path, refused.message))?,
        };
        Ok(ServiceTarget {
            slot,
            url: url.clone(),
            plugin: how.plugin,
            timeout_ms: how.timeout_ms,
            keeps: how.keepalive.is_some(),
            in_flight_max: how.in_flight_max,
        })
    }

    /// [`ServiceTarget::build`] for the URL in the setting at `path`.
    pub(crate) fn of_setting(
        path: &str,
        url: &str,
        how: &ServiceConnection,
        objects: Option<&dyn ObjectLookup>,
    ) -> Result<ServiceTarget, InvalidSettings> {
        ServiceTarget::build(path, &ServiceUrl::parse(path, url)?, how, objects)
    }

    /// A call to the URL without further fields and without a body. It may be repeated after its connection closed
    /// without a response; callers forbid that for grants.
    pub(crate) fn request(&self, method: Method) -> SubrequestSpec {
        SubrequestSpec {
            // Set by `send`.
            upstream: 0,
            plugin: self.plugin,
            method,
            target: self.url.target.clone(),
            authority: self.url.authority.clone(),
            fields: Fields::default(),
            body: Vec::new(),
            keeps: self.keeps,
            timeout_ms: self.timeout_ms,
            may_repeat: true,
            response_bytes_max: SubrequestSpec::RESPONSE_BYTES_MAX,
            in_flight_max: self.in_flight_max,
        }
    }

    /// Sends a call.
    pub(crate) fn send(
        &self,
        host: &dyn PluginHost,
        spec: SubrequestSpec,
    ) -> LocalFuture<'static, Result<SubrequestResponse, SubrequestFault>> {
        let sent =
            self.slot.get().and_then(|upstream| host.send_subrequest(SubrequestSpec { upstream, ..spec }));
        sent.unwrap_or_else(|| Box::pin(async { Err(SubrequestFault::NoEndpoint) }))
    }

    /// A POST with a form as its body.
    pub(crate) fn form(&self, pairs: &[(&str, &str)]) -> SubrequestSpec {
        let mut spec = self.request(Method::Post);
        spec.fields.add("Content-Type", FORM_TYPE.as_bytes());
        spec.body = encode_pairs(pairs).into_bytes();
        spec
    }

    /// A POST with a JSON document as its body.
    pub(crate) fn json(&self, document: &Value) -> SubrequestSpec {
        let mut spec = self.request(Method::Post);
        spec.fields.add("Content-Type", b"application/json; charset=utf-8");
        spec.body = document.to_string().into_bytes();
        spec
    }

    /// A call whose URL has further query arguments.
    pub(crate) fn query(&self, method: Method, pairs: &[(&str, &str)]) -> SubrequestSpec {
        let mut spec = self.request(method);
        add_arguments(&mut spec, pairs);
        spec
    }

    /// The URL with its path, without the query, which may have secrets.
    pub(crate) fn describe(&self) -> String {
        let scheme = if self.url.is_https { "https" } else { "http" };
        let path = self.url.target.split('?').next().unwrap_or_default();
        format!("{scheme}://{}{path}", self.url.authority)
    }
}

/// Media type of forms.
pub(crate) const FORM_TYPE: &str = "application/x-www-form-urlencoded";

/// Pairs as a form or query.
pub(crate) fn encode_pairs(pairs: &[(&str, &str)]) -> String {
    let mut out = Vec::new();
    for (name, value) in pairs {
        if !out.is_empty() {
            out.push(b'&');
        }
        escape_argument(name.as_bytes(), &mut out);
        out.push(b'=');
        escape_argument(value.as_bytes(), &mut out);
    }
    String::from_utf8(out).expect("escaped text is ASCII")
}

/// Adds query arguments to a call.
pub(crate) fn add_arguments(spec: &mut SubrequestSpec, pairs: &[(&str, &str)]) {
    spec.target.push(if spec.target.contains('?') { '&' } else { '?' });
    spec.target.push_str(&encode_pairs(pairs));
}

/// The document of a provider, which reports refusals in a document with any status below 500.
pub(crate) fn provider_document(answer: Result<SubrequestResponse, SubrequestFault>) -> Option<Value> {
    let answer = answer.ok().filter(|answer| answer.fault.is_none() && answer.status < 500)?;
    serde_json::from_slice(answer.body.as_deref()?).ok()
}

/// The document of a whole response, if its status is 2xx and its body JSON.
pub(crate) fn json_document(answer: &SubrequestResponse) -> Option<Value> {
    let is_whole = answer.fault.is_none() && (200..300).contains(&answer.status);
    serde_json::from_slice(answer.body.as_deref().filter(|_| is_whole)?).ok()
}

/// Whether a field belongs to the connection or to the body framing, which the subrequest sets itself.
pub(crate) fn is_of_connection(name: &str) -> bool {
    let of_connection =
        ["host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "expect"];
    of_connection.iter().any(|one| name.eq_ignore_ascii_case(one))
}

#[cfg(test)]
mod tests;
