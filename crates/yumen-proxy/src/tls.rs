//! TLS of both sides, by rustls over aws-lc-rs: server settings and handshakes with clients.
//!
//! Independent of requests. Upstream handshakes are in `handshake` and `upstream`.

mod authorities;
mod certificate_key_pair;
mod challenges;
mod client_cert_policy;
mod clients;
mod der;
mod endpoint_verifier;
mod handshake;
mod loader;
mod names;
pub mod ocsp;
mod provider;
mod quic;
mod revocation;
mod scope;
#[cfg(test)]
pub(crate) mod scoped_tls;
mod sessions;
mod terms;
#[cfg(test)]
mod tests;
mod tickets;
mod upstream;
mod variants;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert, ResolvesServerCertUsingSni, StoresServerSessions};
use rustls::sign::CertifiedKey;
use rustls::{HandshakeKind, ServerConfig, ServerConnection};
use tokio_rustls::LazyConfigAcceptor;
use yumen_plugin::{ListenerNumber, TlsInfo};
use yumen_snapshot::{CompiledCertificate, Publisher, Snapshot};

use crate::runtime::clock;
use crate::transport::tcp::TcpConnection;
use loader::CompiledTlsRules;
use scope::{BoundSessions, ScopeTlsIdentity};
use tickets::BoundTickets;
use variants::{TlsVariant, TlsVariantConfigs};

pub use certificate_key_pair::{CertificateKeyPair, StapleRequirement};
pub use challenges::{TlsAlpnChallenge, TlsAlpnChallenges};
pub(crate) use client_cert_policy::{ClientCertRefusal, misdirected, refusal, scope_refusal, stream_refusal};
pub(crate) use handshake::{TlsName, UpstreamHandshake, server_name};
pub use loader::CertificateLoader;
pub use provider::TlsVersions;
pub(crate) use quic::{quic_info, requests_client_certificate};
pub(crate) use sessions::UpstreamTlsClient;
pub use terms::{ClientTrustTerms, ValidityTerm, client_terms, scope_terms, terms_of, upstream_authorities};
pub use tickets::{TICKET_KEY_BYTES, TicketKeys};
pub(crate) use upstream::{plain_client, shared_client};

/// The content type of a handshake record, the first byte of a TLS connection (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;

/// ALPN name of HTTP/2 (RFC 9113 §3.2).
pub(crate) const HTTP2: &[u8] = b"h2";

/// ALPN names of HTTP/1. A handshake without a common protocol fails (RFC 7301 §3.2), and some old clients
/// offer only `http/1.0`.
const HTTP1: [&[u8]; 2] = [b"http/1.1", b"http/1.0"];

/// Performs TLS handshakes on accepted connections.
#[derive(Clone)]
pub struct DownstreamTlsAcceptor {
    shared: Arc<SharedTls>,
    for_streams: bool,
    /// The listener of the configuration that accepts the connections, or that of the node's settings.
    listener: ListenerNumber,
    alt_svc: Option<Arc<[u8]>>,
}

/// A downstream connection after its handshake.
pub(crate) struct AcceptedTls {
    pub(crate) stream: tokio_rustls::server::TlsStream<TcpConnection>,
    pub(crate) info: TlsInfo,
    /// The `Alt-Svc` field line for responses (RFC 7838).
    pub(crate) alt_svc: Option<Arc<[u8]>>,
}

/// The reason why a handshake gave no stream.
pub(crate) enum HandshakeRefusal {
    /// The first byte is not that of a TLS record. Nothing was consumed.
    NotTls(TcpConnection),
    /// No certificate matches the server name, while others require client certificates; or no scope of the listener
    /// has the name. The client received an alert.
    UnknownName(Box<str>),
    Failed(io::Error),
}

impl From<io::Error> for HandshakeRefusal {
    fn from(error: io::Error) -> HandshakeRefusal {
        HandshakeRefusal::Failed(error)
    }
}

/// Settings of downstream TLS.
pub struct DownstreamTlsSettings {
    /// Source of certificates. Handshakes use the newest snapshot.
    pub publisher: Arc<Publisher>,
    /// The certificate for server names that no certificate of the snapshot matches.
    pub default: Option<Arc<CertifiedKey>>,
    /// TLS versions, unless the certificate sets its own.
    pub versions: TlsVersions,
    /// Names of the cipher suites, unless the certificate sets its own; empty for all suites.
    pub ciphers: Vec<String>,
    /// Whether ALPN offers HTTP/2.
    pub http2: bool,
    /// Keys of session tickets; `None` disables tickets.
    pub tickets: Option<Arc<TicketKeys>>,
    /// The most sessions that are cached for clients without tickets; 0 disables the cache.
    pub sessions_max: usize,
    /// ACME challenges in progress.
    pub challenges: Arc<TlsAlpnChallenges>,
}

/// Handshake state that all workers share.
struct SharedTls {
    settings: DownstreamTlsSettings,
    sessions: Arc<dyn StoresServerSessions>,
    resolver: Arc<CertificateResolver>,
    /// Configurations for certificates without handshake rules.
    plain: TlsVariantConfigs,
}

/// Creates the acceptor that all listeners and workers share.
pub fn acceptor(settings: DownstreamTlsSettings) -> Result<DownstreamTlsAcceptor, String> {
    let sessions: Arc<dyn StoresServerSessions> = match settings.sessions_max {
        0 => Arc::new(rustls::server::NoServerSessionStorage {}),
        sessions => rustls::server::ServerSessionMemoryCache::new(sessions),
    };
    let resolver = Arc::new(CertificateResolver {
        publisher: settings.publisher.clone(),
        default: settings.default.clone(),
        scope: None,
    });
    let shared = SharedTls { settings, sessions, resolver, plain: TlsVariantConfigs::default() };
    // Built here so that invalid settings fail at startup and not in the first handshake.
    shared.config(TlsVariant { streams: false, clients_order: false }, None)?;
    let listener = ListenerNumber::STATIC;
    Ok(DownstreamTlsAcceptor { shared: Arc::new(shared), for_streams: false, listener, alt_svc: None })
}

/// Builds a configuration from `rules`, or else from the settings of the node.
fn server_config(
    shared: &SharedTls,
    variant: TlsVariant,
    rules: Option<&CompiledTlsRules>,
) -> Result<ServerConfig, String> {
    let SharedTls { settings, sessions, .. } = shared;
    let of_node = match settings.ciphers.is_empty() {
        true => None,
        false => Some(provider::suites(&settings.ciphers).map_err(|error| format!("tls.ciphers: {error}"))?),
    };
    let suites = rules.and_then(|rules| rules.suites.clone()).or(of_node);
    let versions = rules.and_then(|rules| rules.versions).unwrap_or(settings.versions);
    // A configured list of suites is in the operator's order of preference.
    let server_order = suites.is_some() || !variant.clients_order;
    let builder = ServerConfig::builder_with_provider(
        suites.map_or_else(provider::provider, |suites| provider::with_suites(&suites)),
    )
    .with_protocol_versions(versions.supported())
    .map_err(|error| error.to_string())?;
    let client = rules.and_then(|rules| rules.client.clone());
    let is_anonymous = client.is_none();
    let builder = match client {
        Some(check) => builder.with_client_cert_verifier(check),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(shared.resolver_of(rules));
    config.ignore_client_order = server_order;
    // One ticket suffices, because each connection issues one for the next.
    config.send_tls13_tickets = 1;
    if !variant.streams {
        let all = settings.http2.then_some(HTTP2).into_iter().chain(HTTP1);
        config.alpn_protocols = all.map(<[u8]>::to_vec).collect();
    }
    if let Some(keys) = &settings.tickets {
        let binding = rules.map_or(0, |rules| rules.id);
        config.ticketer = Arc::new(BoundTickets { keys: keys.clone(), binding });
    }
    // A cached session carries the client's identity and must not outlive the rules that verified it.
    config.session_storage = match is_anonymous {
        true => BoundSessions::of(sessions, rules),
        false => Arc::new(rustls::server::NoServerSessionStorage {}),
    };
    config.send_half_rtt_data = false;
    Ok(config)
}

impl DownstreamTlsAcceptor {
    /// An acceptor for TCP streams, without ALPN.
    pub fn for_streams(&self) -> DownstreamTlsAcceptor {
        DownstreamTlsAcceptor { for_streams: true, alt_svc: None, ..self.clone() }
    }

    /// Performs a handshake with a client.
    pub(crate) async fn accept(&self, mut tcp: TcpConnection) -> Result<AcceptedTls, HandshakeRefusal> {
        // Checked before rustls, which would respond to cleartext with an alert.
        if poll_fn(|cx| tcp.poll_first(cx)).await?.is_some_and(|first| first != HANDSHAKE) {
            return Err(HandshakeRefusal::NotTls(tcp));
        }
        let start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), tcp).await?;
        let hello = start.client_hello();
        if let Some(config) = self.shared.settings.challenges.answer(&hello) {
            start.into_stream(config).await?;
            // RFC 8737 §3: no data follows the handshake of a validation.
            return Err(io::Error::other("an ACME server asked, and was answered").into());
        }
        let variant = TlsVariant::of(&hello, self.for_streams);
        let sni = requested_name(hello.server_name());
        let is_static = self.listener.is_static();
        if self.for_streams && is_static && self.shared.settings.publisher.load().is_closed(sni) {
            let sni = Box::from(sni);
            let config = self.shared.without_certificate(variant).map_err(io::Error::other)?;
            // The handshake fails for lack of a certificate; only the alert matters.
            drop(start.into_stream(config).await);
            return Err(HandshakeRefusal::UnknownName(sni));
        }
        let rules = match is_static {
            true => self.shared.rules(sni),
            false => match self.shared.rules_on(self.listener, sni) {
                Some(rules) => Some(rules),
                None => {
                    let sni = Box::from(sni);
                    // Streams end without an alert: the Gateway API asks that their connections are closed.
                    if !self.for_streams {
                        scope::refuse_name(start.io).await;
                    }
                    return Err(HandshakeRefusal::UnknownName(sni));
                }
            },
        };
        let config = self.shared.config(variant, rules.as_deref()).map_err(io::Error::other)?;
        let stream = start.into_stream(config).await?;
        let info = info(stream.get_ref().1, rules.as_deref());
        Ok(AcceptedTls { stream, info, alt_svc: self.alt_svc(rules.as_deref()) })
    }
}

impl SharedTls {
    /// The handshake rules of the certificate for `sni`.
    fn rules(&self, sni: &str) -> Option<Arc<CompiledTlsRules>> {
        let snapshot = self.settings.publisher.load();
        snapshot.certificate(sni)?.rules.clone()?.downcast().ok()
    }

    /// A configuration without a certificate, which fails every handshake with an alert.
    fn without_certificate(&self, variant: TlsVariant) -> Result<Arc<ServerConfig>, String> {
        let mut config = ServerConfig::clone(&*self.config(variant, None)?);
        config.cert_resolver = Arc::new(ResolvesServerCertUsingSni::new());
        Ok(Arc::new(config))
    }

    fn config(
        &self,
        variant: TlsVariant,
        rules: Option<&CompiledTlsRules>,
    ) -> Result<Arc<ServerConfig>, String> {
        let configs = rules.map_or(&self.plain, |rules| &rules.configs);
        configs.get(variant, || server_config(self, variant, rules))
    }
}

struct CertificateResolver {
    publisher: Arc<Publisher>,
    default: Option<Arc<CertifiedKey>>,
    /// The scope with the certificates; `None` for those without scopes.
    scope: Option<ScopeTlsIdentity>,
}

impl CertificateResolver {
    fn find<'s>(&self, snapshot: &'s Snapshot, sni: &str) -> Option<&'s CompiledCertificate> {
        let Some(scope) = &self.scope else { return snapshot.certificate(sni) };
        // The slot may have passed to another scope since the handshake rules were chosen.
        let scope = snapshot.scope(scope.slot()).filter(|one| *one.id == *scope.id())?;
        scope.certificate_by_name(sni).map(|(_, certificate)| certificate)
    }
}

impl std::fmt::Debug for CertificateResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let snapshot = self.publisher.load();
        let certificate = self.find(&snapshot, requested_name(hello.server_name()));
        let now_unix_s = (clock::now().unix_ms / 1000) as i64;
        let pairs = certificate.map(|certificate| &certificate.keys[..]).unwrap_or_default();
        // A pair that cannot be loaded is skipped, and the next pair or the default certificate serves
        // (decision 23).
        let mut keys = pairs
            .iter()
            .filter_map(|pair| pair.downcast_ref::<CertificateKeyPair>())
            .filter_map(|pair| {
                let log = |error: &String| {
                    let id = certificate.map(|certificate| &*certificate.id).unwrap_or_default();
                    tracing::error!(object = format!("ssls/{id}"), error, "certificate cannot be loaded");
                };
                pair.ready(now_unix_s).inspect_err(log).ok()
            })
            .peekable();
        let first = keys.peek().cloned();
        // Of several key pairs, the first whose signature algorithm the client supports.
        keys.find(|key| key.key.choose_scheme(hello.signature_schemes()).is_some())
            .or(first)
            .or_else(|| self.default.clone())
    }
}

/// The server name of a client hello; empty if there is none. A trailing dot is removed (RFC 6066 §3), as in
/// `Host`, so that rules match both.
pub(crate) fn requested_name(sni: Option<&str>) -> &str {
    let sni = sni.unwrap_or_default();
    sni.strip_suffix('.').unwrap_or(sni)
}

/// Parses a PEM certificate chain and its key. Fails if they do not belong together.
pub fn load_key_pair(certificate: &str, key: &str) -> Result<Arc<CertifiedKey>, String> {
    certificate_key_pair::load(certificate, key).map_err(|flaw| flaw.to_string())
}

/// The facts of a finished handshake, for variables and plugins.
fn info(connection: &ServerConnection, rules: Option<&CompiledTlsRules>) -> TlsInfo {
    let chain: &[CertificateDer<'_>] = connection.peer_certificates().unwrap_or_default();
    TlsInfo {
        sni: connection.server_name().map(|sni| requested_name(Some(sni)).into()),
        version: match connection.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "TLSv1.2",
        },
        cipher: connection
            .negotiated_cipher_suite()
            .and_then(|suite| suite.suite().as_str())
            .unwrap_or_default(),
        group: connection
            .negotiated_key_exchange_group()
            .and_then(|group| group.name().as_str())
            .unwrap_or_default(),
        is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        ..scope::client_facts(chain, rules)
    }
}
