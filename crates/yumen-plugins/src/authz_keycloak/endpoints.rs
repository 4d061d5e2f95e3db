//! Endpoints of Keycloak: from the settings, else from the discovery document, which is an input of compilation.

use std::sync::Arc;

use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    FetchDelivery, FetchFormat, FetchRefresh, FetchRequest, FetchSource, FetchedValue, HttpFetch,
    PluginBuildContext, PluginFactory,
};

use super::AuthzKeycloak;
use super::settings::KeycloakSettings;
use crate::service::{ServiceTarget, ServiceUrl};

/// Largest discovery document in bytes.
const DISCOVERY_BYTES_MAX: usize = 64 * 1024;

/// The format of discovery documents of UMA.
const UMA_CONFIGURATION: FetchFormat = FetchFormat {
    name: "uma2-configuration",
    bytes_max: DISCOVERY_BYTES_MAX,
    parse: UmaConfiguration::parse,
};

/// The members of a discovery document that the plugin uses (UMA 2.0 Grant §2).
#[derive(Debug, Clone, Deserialize)]
pub(super) struct UmaConfiguration {
    pub(super) token_endpoint: Option<String>,
    pub(super) resource_registration_endpoint: Option<String>,
}

impl UmaConfiguration {
    pub(super) fn parse(bytes: &[u8]) -> Result<FetchedValue, String> {
        let document: UmaConfiguration = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        // A document without the endpoint must not replace a good one.
        if document.token_endpoint.is_none() {
            return Err("the document has no token_endpoint".to_owned());
        }
        Ok(Arc::new(document))
    }
}

/// The endpoints; an absent one is not set and not, or not yet, discovered.
pub(super) struct KeycloakEndpoints {
    pub(super) token: Option<ServiceTarget>,
    pub(super) resource_registration: Option<ServiceTarget>,
    discovery: Option<String>,
}

impl KeycloakEndpoints {
    pub(super) fn build(
        config: &KeycloakSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<KeycloakEndpoints, InvalidSettings> {
        let how = config.service.connection(AuthzKeycloak::NAME, config.timeout);
        let provider = &config.provider;
        let discovery = provider.discovery.as_deref();
        discovery.map(|url| ServiceUrl::parse("discovery", url)).transpose()?;
        let lacks_one = provider.token_endpoint.is_none()
            || config.lazy_load_paths && provider.resource_registration_endpoint.is_none();
        let discovered = discovery.filter(|_| lacks_one).and_then(|url| fetch(config, url, setup));
        let of = |path: &'static str, set: &Option<String>, found: Option<&String>| match (set, found) {
            (Some(url), _) => ServiceTarget::of_setting(path, url, &how, setup.objects).map(Some),
            (None, Some(url)) => {
                let path = format!("discovery.{path}");
                ServiceTarget::of_setting(&path, url, &how, setup.objects).map(Some)
            }
            (None, None) => Ok(None),
        };
        let discovered = discovered.as_deref();
        let token = discovered.and_then(|document| document.token_endpoint.as_ref());
        let registration = discovered.and_then(|document| document.resource_registration_endpoint.as_ref());
        Ok(KeycloakEndpoints {
            token: of("token_endpoint", &provider.token_endpoint, token)?,
            resource_registration: match config.lazy_load_paths {
                true => of(
                    "resource_registration_endpoint",
                    &provider.resource_registration_endpoint,
                    registration,
                )?,
                false => None,
            },
            discovery: provider.discovery.clone(),
        })
    }

    /// The name of the token endpoint.
    pub(super) fn token_name(&self) -> String {
        self.token.as_ref().map(ServiceTarget::describe).unwrap_or_default()
    }

    /// The reason why an endpoint is missing.
    pub(super) fn missing_note(&self) -> String {
        match &self.discovery {
            Some(url) => format!("the discovery document {url} has not been fetched yet"),
            None => "the settings name no token endpoint".to_owned(),
        }
    }
}

fn fetch(
    config: &KeycloakSettings,
    url: &str,
    setup: &PluginBuildContext<'_>,
) -> Option<Arc<UmaConfiguration>> {
    let source = HttpFetch {
        url: url.to_owned(),
        fields: Vec::new(),
        verify: config.service.verifies(),
        ca_pem: None,
        proxy: None,
        timeout_ms: config.timeout,
    };
    let request = FetchRequest {
        source: FetchSource::Http(Box::new(source)),
        format: UMA_CONFIGURATION,
        delivery: FetchDelivery::Rebuild,
        refresh: FetchRefresh { interval_s: config.provider.cache_ttl_seconds },
    };
    setup.objects?.fetch(request).load()?.downcast().ok()
}
