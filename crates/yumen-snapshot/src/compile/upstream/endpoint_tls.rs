//! TLS settings of connections to endpoints: resolved, checked, and shared between equal upstreams.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use yumen_config::resource as config;
use yumen_config::{InvalidSettings, Kind, decode};

use super::UpstreamBuilder;
use crate::compile::certificate::{self, KeyPairError, LoadCertificate};
use crate::compile::context::CompileContext;
use crate::compile::names::ObjectName;
use crate::upstream::{EndpointName, UpstreamTls};

/// A hash of TLS settings for the names of carried state, which must not contain keys.
pub(super) fn tls_identity(tls: &UpstreamTls) -> u128 {
    // The hasher yields 64 bits; two salted halves make a collision of unequal settings negligible.
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, tls.verify, &tls.ca_pem, &tls.client, &tls.server_name, &tls.names, tls.depth_max)
            .hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

impl UpstreamBuilder<'_> {
    pub(super) fn tls(
        &self,
        written: Option<&config::UpstreamTlsSpec>,
    ) -> Result<Arc<UpstreamTls>, InvalidSettings> {
        let CompileContext { env, carry, plain_tls, .. } = self.context;
        // Most upstreams have no TLS settings and share one value.
        let Some(written) = written else { return Ok(plain_tls.clone()) };
        let mut client = written
            .client_cert
            .as_deref()
            .zip(written.client_key.as_deref())
            .map(|(cert, key)| (Box::from(cert), Box::from(key)));
        if let Some(id) = &written.client_cert_id {
            let refuse = |message: String| InvalidSettings::at("tls.client_cert_id", message);
            let name = ObjectName::new(Kind::Ssls, id.0.clone());
            // The certificate in force, since the newest text of the ssl object may be broken.
            let ssl = self.texts.in_force(&name).and_then(|json| decode::<config::SslSpec>(json).ok());
            let ssl = ssl.ok_or_else(|| refuse(format!("ssl object {id} does not exist")))?;
            // The message of APISIX for a server certificate.
            if ssl.kind != config::SslType::Client {
                return Err(refuse("wrong ssl type".to_owned()));
            }
            let pair = certificate::PemPair { certificate: &ssl.cert, key: &ssl.key };
            // The ssl object notes its secrets itself, and stages its users again.
            client = match pair.resolve(&self.context.reference_values().unnoted(), 0) {
                Ok(resolved) => Some((resolved.certificate.into(), resolved.key.into())),
                Err(KeyPairError::Unresolved { is_awaited: true, .. }) => None,
                Err(error) => return Err(refuse(error.to_string())),
            };
        }
        check_tls(&env.load_certificate, written)?;
        let tls = UpstreamTls {
            verify: written.verify,
            ca_pem: written.ca.as_deref().map(Box::from),
            client,
            server_name: written.server_name.as_deref().map(|name| name.to_ascii_lowercase().into()),
            names: written.subject_alt_names.iter().flatten().map(endpoint_name).collect(),
            depth_max: written.verify_depth,
        };
        // Workers derive a TLS configuration once per `Arc`, so equal settings share one.
        if tls == **plain_tls {
            return Ok(plain_tls.clone());
        }
        Ok(carry.keep(&format!("upstream tls {:032x}", tls_identity(&tls)), || tls))
    }
}

fn endpoint_name(written: &config::SanSpec) -> EndpointName {
    match written {
        config::SanSpec::Dns(name) => EndpointName::Dns(name.to_ascii_lowercase().into()),
        config::SanSpec::Uri(uri) => EndpointName::Uri(uri.as_str().into()),
    }
}

/// Refuses names and a depth without verification: they would suggest a check that does not take place.
fn check_names(written: &config::UpstreamTlsSpec) -> Result<(), InvalidSettings> {
    let members = [
        ("tls.subject_alt_names", written.subject_alt_names.is_some()),
        ("tls.verify_depth", written.verify_depth.is_some()),
    ];
    match members.into_iter().find(|(_, is_written)| *is_written && !written.verify) {
        Some((member, _)) => {
            Err(InvalidSettings::at(member, "has no effect without `verify`").hint("set tls.verify to true"))
        }
        None => Ok(()),
    }
}

/// Checks certificates of an upstream, which the first connection would report otherwise.
pub(in crate::compile) fn check_tls(
    loader: &LoadCertificate,
    written: &config::UpstreamTlsSpec,
) -> Result<(), InvalidSettings> {
    if let (Some(cert), Some(key)) = (&written.client_cert, &written.client_key) {
        loader.pair(cert, key).map_err(|error| {
            // Named exactly, so that the problem points at the field to fix.
            let field = if error.is_of_key() { "tls.client_key" } else { "tls.client_cert" };
            InvalidSettings::at(field, error.to_string())
        })?;
    }
    check_names(written)?;
    match &written.ca {
        Some(ca) => loader.authorities(ca).map_err(|message| InvalidSettings::at("tls.ca", message)),
        None => Ok(()),
    }
}
