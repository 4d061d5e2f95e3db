//! The implementation of [`TlsLoader`] for the compiler: parses certificates and handshake rules, and
//! deduplicates them.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use aws_lc_rs::digest::{SHA256, digest};
use quinn::crypto::rustls::QuicServerConfig;
use rustls::SupportedCipherSuite;
use tokio::sync::mpsc::UnboundedSender;
use yumen_snapshot::compile::{HandshakeRules, KeyPairError, Loaded, ScopeTlsRules, TlsLoader};

use super::authorities::TrustedAuthorities;
use super::certificate_key_pair::CertificateKeyPair;
use super::clients::ClientCertChecker;
use super::provider::{TlsVersions, suites};
use super::scope::ScopeTlsIdentity;
use super::variants::TlsVariantConfigs;

/// Parses certificates for compilers.
#[derive(Default)]
pub struct CertificateLoader {
    shared: Mutex<HashMap<u128, Weak<[u8]>, foldhash::fast::RandomState>>,
    rules: Mutex<HashMap<u128, Weak<CompiledTlsRules>, foldhash::fast::RandomState>>,
    staple_requests: Option<UnboundedSender<Weak<CertificateKeyPair>>>,
}

/// The handshake rules of one or more certificates, beyond the settings of the node; or those of one scope.
pub(super) struct CompiledTlsRules {
    /// A hash of the rules, and of the scope. Sessions of other rules are not resumed.
    pub(super) id: u128,
    /// The scope, which has certificates of its own.
    pub(super) scope: Option<ScopeTlsIdentity>,
    pub(super) versions: Option<TlsVersions>,
    pub(super) suites: Option<Vec<SupportedCipherSuite>>,
    pub(super) client: Option<Arc<ClientCertChecker>>,
    /// Created by the acceptor on first use.
    pub(super) configs: TlsVariantConfigs,
    /// The configuration for HTTP/3, created on first use.
    pub(super) quic: OnceLock<Arc<QuicServerConfig>>,
}

impl CertificateLoader {
    /// Creates a loader whose certificates request OCSP staples through `requests`: those with must-staple at
    /// once, others at their first handshake.
    pub fn with_staple_requests(requests: UnboundedSender<Weak<CertificateKeyPair>>) -> CertificateLoader {
        CertificateLoader { staple_requests: Some(requests), ..CertificateLoader::default() }
    }

    /// Returns the shared copy of a certificate.
    fn share(&self, der: &[u8]) -> Arc<[u8]> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let id = id_of(&[der]);
        if let Some(known) = shared.get(&id).and_then(Weak::upgrade) {
            return known;
        }
        let copy: Arc<[u8]> = der.into();
        forget_unused(&mut shared);
        shared.insert(id, Arc::downgrade(&copy));
        copy
    }
}

impl CertificateLoader {
    /// The rules of a key, read on first use.
    fn shared_rules(
        &self,
        key: u128,
        read: impl FnOnce() -> Result<CompiledTlsRules, (&'static str, String)>,
    ) -> Result<Loaded, (&'static str, String)> {
        let mut all = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let rules = Arc::new(read()?);
        forget_unused(&mut all);
        all.insert(key, Arc::downgrade(&rules));
        Ok(rules as Arc<dyn Any + Send + Sync>)
    }
}

/// Removes unused entries when the table is full, so that it does not grow without need.
fn forget_unused<T: ?Sized>(table: &mut HashMap<u128, Weak<T>, foldhash::fast::RandomState>) {
    if table.len() == table.capacity() {
        table.retain(|_, weak| weak.strong_count() > 0);
    }
}

/// A hash of texts that preserves their boundaries.
fn id_of(parts: &[&[u8]]) -> u128 {
    let digests = parts.iter().flat_map(|part| digest(&SHA256, part).as_ref().to_vec());
    let whole = digest(&SHA256, &digests.collect::<Vec<u8>>());
    u128::from_be_bytes(*whole.as_ref().first_chunk().expect("a digest is longer"))
}

fn id_of_rules(written: &HandshakeRules<'_>) -> u128 {
    let policy = format!("{:?} {:?}", written.versions, written.ciphers);
    let Some(client) = &written.client else { return id_of(&[policy.as_bytes()]) };
    let flags = format!("{} {}", client.depth, client.is_optional);
    let crl = client.crl.unwrap_or_default().as_bytes();
    id_of(&[policy.as_bytes(), flags.as_bytes(), client.ca.as_bytes(), crl])
}

fn id_of_scope(written: &ScopeTlsRules<'_>) -> u128 {
    let rules = id_of_rules(&written.rules).to_be_bytes();
    let settings = format!("{:?} {}", written.client_mode, written.default_certificate);
    id_of(&[b"scope", written.scope.as_bytes(), &rules, settings.as_bytes()])
}

impl CompiledTlsRules {
    fn read(
        id: u128,
        written: &HandshakeRules<'_>,
        scope: Option<ScopeTlsIdentity>,
    ) -> Result<CompiledTlsRules, (&'static str, String)> {
        let versions = written.versions.map(|(tls12, tls13)| TlsVersions { tls12, tls13 });
        if versions.is_some_and(|versions| !versions.tls12 && !versions.tls13) {
            let message = "unsupported TLS versions; supported: TLSv1.2, TLSv1.3";
            return Err(("ssl_protocols", message.to_owned()));
        }
        let suites = written.ciphers.map(suites).transpose().map_err(|error| ("ssl_ciphers", error))?;
        let client = written.client.as_ref().map(ClientCertChecker::new).transpose()?;
        Ok(CompiledTlsRules {
            id,
            scope,
            versions,
            suites,
            client: client.map(Arc::new),
            configs: TlsVariantConfigs::default(),
            quic: OnceLock::new(),
        })
    }
}

impl TlsLoader for CertificateLoader {
    fn pair(&self, certificate: &str, key: &str) -> Result<Loaded, KeyPairError> {
        Ok(CertificateKeyPair::read(certificate, key, |der| self.share(der), self.staple_requests.clone())?)
    }

    fn rules(&self, written: &HandshakeRules<'_>) -> Result<Loaded, (&'static str, String)> {
        let id = id_of_rules(written);
        self.shared_rules(id, || CompiledTlsRules::read(id, written, None))
    }

    fn scope(&self, written: &ScopeTlsRules<'_>) -> Result<Loaded, (&'static str, String)> {
        let id = id_of_scope(written);
        // Not part of the id: sessions outlive a restart, and other nodes assign other slots.
        let key = id_of(&[&id.to_be_bytes(), format!("{:?}", written.slot).as_bytes()]);
        let scope = || Some(ScopeTlsIdentity::of(written));
        self.shared_rules(key, || CompiledTlsRules::read(id, &written.rules, scope()))
    }

    fn authorities(&self, pem: &str) -> Result<(), String> {
        TrustedAuthorities::read(pem).map(drop)
    }
}
