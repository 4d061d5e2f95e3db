//! TLS settings of the generator: versions, resumption and verification. Independent of connections.

use std::sync::Arc;

use rustls::client::{ClientSessionMemoryCache, Resumption};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;

use crate::error::LoadError;
use crate::plan::{LoadPlan, LoadProtocol, LoadTlsVersion};
use crate::summary::TlsFacts;

/// Sessions cached for resumption, per server.
const SESSIONS: usize = 256;

pub(crate) fn client(plan: &LoadPlan) -> Result<Arc<ClientConfig>, LoadError> {
    let wrong = |error: String| LoadError::Tls(error);
    let versions: &[&'static rustls::SupportedProtocolVersion] = match plan.tls.version {
        None => &[&TLS13, &TLS12],
        Some(LoadTlsVersion::V12) => &[&TLS12],
        Some(LoadTlsVersion::V13) => &[&TLS13],
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|error| wrong(error.to_string()))?;
    let builder = match &plan.tls.ca_file {
        Some(file) => builder.with_root_certificates(anchors(file).map_err(wrong)?),
        None => {
            // The measured servers use self-signed certificates.
            let verifier = yumen_outbound::unverified(provider.signature_verification_algorithms);
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
    };
    let mut config = builder.with_no_client_auth();
    config.resumption = match plan.tls.resumption {
        // One cache for all threads, as the configuration is shared.
        true => Resumption::store(Arc::new(ClientSessionMemoryCache::new(SESSIONS))),
        false => Resumption::disabled(),
    };
    config.alpn_protocols = match plan.protocol {
        // One protocol: the server must not choose another than the plan's.
        LoadProtocol::Http1 => vec![b"http/1.1".to_vec()],
        LoadProtocol::Http2 => vec![b"h2".to_vec()],
    };
    Ok(Arc::new(config))
}

fn anchors(file: &str) -> Result<RootCertStore, String> {
    let text = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    yumen_outbound::trust_anchors(&text).map_err(|error| format!("{file}: {error}"))
}

/// Negotiated parameters.
pub(crate) fn facts(connection: &ClientConnection) -> TlsFacts {
    let version = connection.protocol_version().and_then(|version| version.as_str());
    // The name of rustls is that of a Rust identifier.
    let version = version.map_or_else(String::new, |text| text.replace("TLSv1_", "TLSv1."));
    let suite = connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
    let group = connection.negotiated_key_exchange_group().and_then(|group| group.name().as_str());
    let certificate = connection.peer_certificates().and_then(|chain| chain.first());
    TlsFacts {
        version,
        cipher_suite: suite.unwrap_or_default().to_owned(),
        key_exchange: group.map(str::to_owned),
        alpn: connection.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned()),
        certificate_key: certificate.and_then(|certificate| certificate_key(certificate)),
    }
}

fn certificate_key(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    match certificate.public_key().parsed().ok()? {
        PublicKey::RSA(key) => Some(format!("RSA {}", key.key_size())),
        PublicKey::EC(point) => Some(format!("ECDSA P-{}", point.key_size())),
        _ => None,
    }
}
