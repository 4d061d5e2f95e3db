//! Address and credentials of an API server: from the pod, from a kubeconfig, or given.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use http::header::{HeaderName, HeaderValue};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube_client::client::{Body, Client, ConfigExt};
use kube_client::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use tower::util::option_layer;
use tower::{BoxError, Layer, ServiceExt};

use crate::error::ApiError;
use crate::line_stream::error_chain;

/// The time for a connection to the API server, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The idle time after which the kernel probes a connection: a watch is silent for a minute between bookmarks.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The origin of the settings, for a reload after the API server refused the credentials.
#[derive(Debug, Clone)]
enum ConfigOrigin {
    Pod,
    File { path: PathBuf, context: Option<String> },
    Given,
}

/// Address, trust anchors and credentials of an API server.
#[derive(Debug, Clone)]
pub struct ApiServerConfig {
    origin: ConfigOrigin,
    config: Config,
    request_timeout: Duration,
}

impl ApiServerConfig {
    /// The API server of the cluster that this process runs in. Files of the service account are re-read every minute.
    ///
    /// # Errors
    ///
    /// [`ApiError::Unusable`] outside a pod, or in one without a service account token.
    pub fn in_cluster() -> Result<ApiServerConfig, ApiError> {
        let config = Config::incluster_env().map_err(|error| {
            ApiError::Unusable(format!(
                "service account of the pod: {}; set automountServiceAccountToken, or name a kubeconfig",
                error_chain(&error)
            ))
        })?;
        Ok(ApiServerConfig::from_parts(ConfigOrigin::Pod, config))
    }

    /// The cluster and user of a kubeconfig, of its current context or the named one. Runs no exec credential program
    /// yet. `HTTPS_PROXY` does not apply.
    ///
    /// # Errors
    ///
    /// [`ApiError::Unusable`] if the file or a file that it names cannot be read, lacks the context, or has a
    /// `proxy-url`.
    pub async fn from_kubeconfig(path: &Path, context: Option<&str>) -> Result<ApiServerConfig, ApiError> {
        let unusable = |cause: String| ApiError::Unusable(format!("kubeconfig {}: {cause}", path.display()));
        let file = Kubeconfig::read_from(path).map_err(|error| unusable(error_chain(&error)))?;
        let proxies: Vec<String> =
            file.clusters.iter().filter_map(|named| named.cluster.as_ref()?.proxy_url.clone()).collect();
        let options =
            KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
        let mut config = Config::from_custom_kubeconfig(file, &options)
            .await
            .map_err(|error| unusable(error_chain(&error)))?;
        if let Some(proxy) = config.proxy_url.take() {
            // The library also takes the proxy of the environment, which is meant for other programs.
            if proxies.iter().any(|url| url.parse::<Uri>().is_ok_and(|url| url == proxy)) {
                return Err(unusable(format!(
                    "proxy-url {proxy} is not supported; name a server that is reachable directly"
                )));
            }
        }
        let origin = ConfigOrigin::File { path: path.to_owned(), context: options.context };
        Ok(ApiServerConfig::from_parts(origin, config))
    }

    /// A server by URL, with trust anchors as PEM (the system's if absent) and a bearer token.
    ///
    /// # Errors
    ///
    /// [`ApiError::Unusable`] if the URL or the certificates do not parse.
    pub fn from_url(
        url: &str,
        ca_pem: Option<&str>,
        token: Option<String>,
    ) -> Result<ApiServerConfig, ApiError> {
        let uri: Uri =
            url.parse().map_err(|error| ApiError::Unusable(format!("API server {url}: {error}")))?;
        let mut config = Config::new(uri);
        if let Some(pem) = ca_pem {
            use rustls::pki_types::CertificateDer;
            use rustls::pki_types::pem::PemObject;
            let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes())
                .map(|one| one.map(|der| der.to_vec()))
                .collect();
            let certificates = certificates.map_err(|error| {
                ApiError::Unusable(format!("API server {url}: certificate authority: {error}"))
            })?;
            config.root_cert = Some(certificates);
        }
        config.auth_info = AuthInfo { token: token.map(Into::into), ..AuthInfo::default() };
        Ok(ApiServerConfig::from_parts(ConfigOrigin::Given, config))
    }

    /// The same with another bound on a whole request, 30 s by default, and ten times it for lists without pages. Watches are bounded to their response head.
    pub fn with_request_timeout(self, request_timeout: Duration) -> ApiServerConfig {
        ApiServerConfig { request_timeout, ..self }
    }

    /// The namespace of the service account or of the kubeconfig context; `default` without one.
    pub fn namespace(&self) -> &str {
        &self.config.default_namespace
    }

    /// The URL of the API server.
    pub fn url(&self) -> String {
        self.config.cluster_url.to_string()
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    /// Reads the origin again: credentials may have been renewed on disk.
    pub(crate) async fn reload(&self) -> Result<ApiServerConfig, ApiError> {
        let fresh = match &self.origin {
            ConfigOrigin::Pod => ApiServerConfig::in_cluster()?,
            ConfigOrigin::File { path, context } => {
                ApiServerConfig::from_kubeconfig(path, context.as_deref()).await?
            }
            ConfigOrigin::Given => self.clone(),
        };
        Ok(fresh.with_request_timeout(self.request_timeout))
    }

    fn from_parts(origin: ConfigOrigin, mut config: Config) -> ApiServerConfig {
        let agent = HeaderValue::from_static(concat!("yumen/", env!("CARGO_PKG_VERSION")));
        config.headers.push((HeaderName::from_static("user-agent"), agent));
        ApiServerConfig { origin, config, request_timeout: Duration::from_secs(30) }
    }

    /// Builds the transport. Runs the exec credential program of the kubeconfig, if it has one.
    ///
    /// The stack is the library's without its tracing layer, which logs each refused request as an error, and without
    /// its retries: the callers pause by their own rules.
    pub(crate) fn connect(&self) -> Result<Client, ApiError> {
        if CryptoProvider::get_default().is_none() {
            // An error means that another thread was first, with the same provider.
            let _ = aws_lc_rs::default_provider().install_default();
        }
        let config = &self.config;
        let unusable = |error: kube_client::Error| {
            ApiError::Unusable(format!("API server {}: {}", config.cluster_url, error_chain(&error)))
        };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let tls = config.rustls_https_connector_with_connector(tcp).map_err(unusable)?;
        let pool: legacy::Client<_, Body> =
            legacy::Builder::new(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(tls);
        // The layer of refreshed tokens has errors of that type.
        let pool = ServiceExt::<http::Request<Body>>::map_err(pool, BoxError::from);
        let named = config.extra_headers_layer().map_err(unusable)?.layer(pool);
        let authorized = option_layer(config.auth_layer().map_err(unusable)?).layer(named);
        let service = config.base_uri_layer().layer(authorized);
        Ok(Client::new(service, config.default_namespace.as_str()))
    }
}
