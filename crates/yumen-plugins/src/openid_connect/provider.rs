//! The identity provider: its discovery document, its endpoints and its keys.

use std::sync::Arc;

use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_config::url;
use yumen_plugin::{
    FetchDelivery, FetchFormat, FetchRefresh, FetchRequest, FetchSource, FetchedCell, FetchedValue,
    HttpFetch, ObjectLookup, OutboundProxy,
};

use super::settings::{OpenidConnectSettings, ProxySettings};
use crate::jose::JWKS_FORMAT;
use crate::service::{ServiceConnection, ServiceTarget};

/// Seconds between two fetches of a discovery document.
const DISCOVERY_INTERVAL_S: u32 = 3600;

/// The format of a discovery document.
pub(super) const DISCOVERY_FORMAT: FetchFormat =
    FetchFormat { name: "oidc-discovery", bytes_max: 256 * 1024, parse: parse_fetched };

fn parse_fetched(bytes: &[u8]) -> Result<FetchedValue, String> {
    Ok(Arc::new(ProviderMetadata::parse(bytes)?))
}

/// The members of a discovery document that are read (OpenID Connect Discovery §3).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct ProviderMetadata {
    pub(crate) issuer: String,
    pub(crate) authorization_endpoint: Option<String>,
    pub(super) token_endpoint: Option<String>,
    pub(super) introspection_endpoint: Option<String>,
    pub(super) userinfo_endpoint: Option<String>,
    pub(crate) end_session_endpoint: Option<String>,
    pub(super) revocation_endpoint: Option<String>,
    pub(super) pushed_authorization_request_endpoint: Option<String>,
    pub(super) jwks_uri: Option<String>,
    /// Whether authorization responses name the issuer (RFC 9207).
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

impl ProviderMetadata {
    pub(crate) fn parse(bytes: &[u8]) -> Result<ProviderMetadata, String> {
        let metadata: ProviderMetadata =
            serde_json::from_slice(bytes).map_err(|error| format!("not a discovery document: {error}"))?;
        if metadata.issuer.is_empty() {
            return Err("the discovery document has no issuer".to_owned());
        }
        // A browser is sent there; other schemes than these run or show something else.
        let is_web = |url: &String| {
            let is_printable = url.bytes().all(|byte| byte.is_ascii_graphic());
            is_printable && (url.starts_with("https://") || url.starts_with("http://"))
        };
        for (name, endpoint) in [
            ("authorization_endpoint", &metadata.authorization_endpoint),
            ("end_session_endpoint", &metadata.end_session_endpoint),
        ] {
            if endpoint.as_ref().is_some_and(|url| !is_web(url)) {
                return Err(format!("\"{name}\" of the discovery document is not an http or https URL"));
            }
        }
        Ok(metadata)
    }
}

/// The provider after discovery.
pub(super) struct OidcProvider {
    pub(super) metadata: Arc<ProviderMetadata>,
    /// The key set; `None` if the provider has none.
    pub(super) keys: Option<Arc<FetchedCell>>,
    pub(super) token: Option<ProviderEndpoint>,
    pub(super) userinfo: Option<ProviderEndpoint>,
    pub(super) pushed: Option<ProviderEndpoint>,
    pub(super) revocation: Option<ProviderEndpoint>,
}

/// An endpoint that the gateway calls.
pub(super) struct ProviderEndpoint {
    pub(super) url: String,
    pub(super) target: ServiceTarget,
}

/// Connections to the provider.
pub(super) struct ProviderConnection {
    verify: bool,
    timeout_ms: u64,
    proxies: [Option<OutboundProxy>; 2],
    no_proxy: Vec<String>,
}

impl ProviderConnection {
    pub(super) fn build(settings: &OpenidConnectSettings) -> Result<ProviderConnection, InvalidSettings> {
        let provider = &settings.provider;
        let (mut proxies, mut no_proxy) = ([None, None], Vec::new());
        if let Some(written) = &provider.proxy_opts {
            proxies = [http_proxy(written)?, https_proxy(written)?];
            let hosts = written.no_proxy.as_deref().unwrap_or_default().split(',');
            no_proxy =
                hosts.map(|host| host.trim().to_ascii_lowercase()).filter(|host| !host.is_empty()).collect();
        }
        let (verify, timeout_ms) = (provider.ssl_verify, provider.timeout_ms());
        Ok(ProviderConnection { verify, timeout_ms, proxies, no_proxy })
    }

    pub(super) fn timeout_ms(&self) -> u64 {
        self.timeout_ms
    }

    /// The proxy for a URL.
    pub(super) fn proxy(&self, url: &str) -> Option<OutboundProxy> {
        let (scheme, rest) = url.split_once("://")?;
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => host,
            _ => authority,
        };
        let host = host.to_ascii_lowercase();
        // A name in `no_proxy` covers its subdomains, with or without a dot before it.
        let is_exempt = self.no_proxy.iter().any(|one| {
            let name = one.trim_start_matches('.');
            one == "*" || host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
        });
        let is_https = scheme.eq_ignore_ascii_case("https");
        self.proxies[usize::from(is_https)].clone().filter(|_| !is_exempt)
    }

    /// The endpoint at a URL. `path` is the setting, or a name that is unique in the plugin.
    pub(super) fn endpoint(
        &self,
        path: &str,
        url: &str,
        objects: Option<&dyn ObjectLookup>,
    ) -> Result<ProviderEndpoint, InvalidSettings> {
        let mut how = ServiceConnection::new("openid-connect", self.timeout_ms, self.verify);
        how.proxy = self.proxy(url);
        Ok(ProviderEndpoint {
            url: url.to_owned(),
            target: ServiceTarget::of_setting(path, url, &how, objects)?,
        })
    }

    fn fetch(
        &self,
        url: &str,
        format: FetchFormat,
        delivery: FetchDelivery,
        interval_s: u32,
    ) -> FetchRequest {
        FetchRequest {
            source: FetchSource::Http(Box::new(HttpFetch {
                url: url.to_owned(),
                fields: vec![("Accept".to_owned(), "application/json".to_owned())],
                verify: self.verify,
                ca_pem: None,
                proxy: self.proxy(url),
                timeout_ms: self.timeout_ms,
            })),
            format,
            delivery,
            refresh: FetchRefresh { interval_s },
        }
    }
}

impl OidcProvider {
    /// The provider by its discovery document; `None` while there is none.
    pub(super) fn discover(
        settings: &OpenidConnectSettings,
        connection: &ProviderConnection,
        objects: Option<&dyn ObjectLookup>,
    ) -> Result<Option<OidcProvider>, InvalidSettings> {
        let discovery = &settings.provider.discovery;
        // The URL is checked before it is fetched.
        let url = crate::service::ServiceUrl::parse("discovery", discovery)?;
        drop(url);
        let Some(lookup) = objects else { return Ok(None) };
        let request =
            connection.fetch(discovery, DISCOVERY_FORMAT, FetchDelivery::Rebuild, DISCOVERY_INTERVAL_S);
        let document = lookup.fetch(request).load();
        let Some(metadata) = document.and_then(|value| value.downcast::<ProviderMetadata>().ok()) else {
            return Ok(None);
        };
        warn_of_other_issuer(discovery, &metadata, lookup);
        let is_https = discovery.to_ascii_lowercase().starts_with("https:");
        let endpoint = |name: &str, url: Option<&String>, is_used: bool| {
            let Some(url) = url.filter(|_| is_used) else { return Ok(None) };
            let path = format!("discovery.{name}");
            // Codes and secrets would leave in clear text.
            if is_https && !url.to_ascii_lowercase().starts_with("https:") {
                let message =
                    "the provider names an endpoint without https, but its discovery document has https";
                return Err(InvalidSettings::at(path, message));
            }
            connection.endpoint(&path, url, objects).map(Some)
        };
        let logs_in = !settings.bearer.bearer_only;
        let pushes = logs_in && settings.login.par.as_ref().is_some_and(|par| par.enabled);
        let revokes = logs_in && settings.logout.revoke_tokens_on_logout;
        let pushed_url = settings.login.par.as_ref().and_then(|par| par.endpoint.as_ref());
        let pushed_url = pushed_url.or(metadata.pushed_authorization_request_endpoint.as_ref());
        let keys = metadata.jwks_uri.as_ref().map(|url| {
            let interval_s = settings.provider.jwk_expires_in.max(60);
            lookup.fetch(connection.fetch(url, JWKS_FORMAT, FetchDelivery::InPlace, interval_s))
        });
        Ok(Some(OidcProvider {
            keys,
            token: endpoint("token_endpoint", metadata.token_endpoint.as_ref(), logs_in)?,
            userinfo: endpoint("userinfo_endpoint", metadata.userinfo_endpoint.as_ref(), logs_in)?,
            pushed: endpoint("pushed_authorization_request_endpoint", pushed_url, pushes)?,
            revocation: endpoint("revocation_endpoint", metadata.revocation_endpoint.as_ref(), revokes)?,
            metadata,
        }))
    }
}

/// The issuer must equal the discovery URL without its suffix (OpenID Connect Discovery §4.3), but documents for several
/// tenants have other issuers.
fn warn_of_other_issuer(discovery: &str, metadata: &ProviderMetadata, objects: &dyn ObjectLookup) {
    let expected = discovery.split("/.well-known/").next().unwrap_or_default();
    if metadata.issuer.trim_end_matches('/') != expected.trim_end_matches('/') {
        let message =
            format!("the document names the issuer {}, which is not part of its URL", metadata.issuer);
        objects.warn("discovery", message, "use the discovery URL of the issuer itself");
    }
}

fn http_proxy(written: &ProxySettings) -> Result<Option<OutboundProxy>, InvalidSettings> {
    let url = written.http_proxy.as_deref();
    url.map(|url| proxy("proxy_opts.http_proxy", url, &written.http_proxy_authorization)).transpose()
}

fn https_proxy(written: &ProxySettings) -> Result<Option<OutboundProxy>, InvalidSettings> {
    let url = written.https_proxy.as_deref();
    url.map(|url| proxy("proxy_opts.https_proxy", url, &written.https_proxy_authorization)).transpose()
}

fn proxy(path: &str, text: &str, authorization: &Option<String>) -> Result<OutboundProxy, InvalidSettings> {
    let refused = || InvalidSettings::at(path, "not a proxy URL such as http://proxy:3128");
    // The connection to a proxy has no TLS of its own.
    let rest = text.strip_prefix("http://").ok_or_else(refused)?.trim_end_matches('/');
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !rest.ends_with(']') => (host, url::port(port).ok_or_else(refused)?),
        _ => (rest, 80),
    };
    let is_host =
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/@?#".contains(&byte));
    if !is_host {
        return Err(refused());
    }
    Ok(OutboundProxy { host: host.to_owned(), port, authorization: authorization.clone() })
}
