//! TLS inside QUIC: the same certificates, tickets and provider, under the node's settings alone.
//!
//! The handshake of QUIC cannot read a client's hello before its settings are chosen. So names whose
//! certificates ask for settings of their own are not served there, and clients fall back to TCP.

use std::sync::Arc;

use quinn::crypto::rustls::QuicServerConfig;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::server::{ClientHello, ResolvesServerCert, ServerSessionMemoryCache};
use rustls::sign::CertifiedKey;

use super::tickets::BoundTickets;
use super::{Acceptor, Resolver, provider};

/// How HTTP/3 is called in a handshake (RFC 9114 §3.1).
const HTTP3: &[u8] = b"h3";
/// Tickets given out here open sessions here only.
const TICKET_BINDING: u128 = u128::MAX;

impl Acceptor {
    /// The same, telling clients where else they may connect.
    ///
    /// `line` is the whole line of the answers' heads.
    pub fn telling(&self, line: Vec<u8>) -> Acceptor {
        Acceptor { alt_svc: Some(line.into()), ..self.clone() }
    }

    /// What answers tell clients.
    pub(crate) fn alt_svc(&self) -> Option<Arc<[u8]>> {
        self.alt_svc.clone()
    }

    /// How clients of HTTP/3 are answered.
    ///
    /// What comes before the handshake is over can be sent again by anybody. So `early_data` is taken only with
    /// sessions that are remembered here and forgotten as they are used (RFC 8446 §8.1).
    pub(crate) fn quic(&self, early_data: bool) -> Result<QuicServerConfig, String> {
        let settings = &self.shared.settings;
        let suites = match settings.ciphers.is_empty() {
            true => provider::provider(),
            false => {
                let suites = provider::suites(&settings.ciphers);
                provider::with_suites(&suites.map_err(|error| format!("tls.ciphers: {error}"))?)
            }
        };
        let builder = ServerConfig::builder_with_provider(suites)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| error.to_string())?
            .with_no_client_auth();
        let mut config = builder.with_cert_resolver(Arc::new(WithoutRules(self.shared.resolver.clone())));
        config.ignore_client_order = true;
        config.send_tls13_tickets = 1;
        config.alpn_protocols = vec![HTTP3.to_vec()];
        // QUIC has its own bounds: here it is all or nothing.
        config.max_early_data_size = if early_data { u32::MAX } else { 0 };
        config.session_storage = match early_data && settings.sessions_max > 0 {
            true => ServerSessionMemoryCache::new(settings.sessions_max),
            false => Arc::new(rustls::server::NoServerSessionStorage {}),
        };
        if let Some(keys) = settings.tickets.as_ref().filter(|_| !early_data) {
            config.ticketer = Arc::new(BoundTickets { keys: keys.clone(), binding: TICKET_BINDING });
        }
        // The first packets are always sealed with it, whatever is offered for the rest (RFC 9001 §5.2).
        let initial = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite());
        let initial = initial.ok_or("QUIC cannot be spoken by this library")?;
        QuicServerConfig::with_initial(Arc::new(config), initial).map_err(|error| error.to_string())
    }
}

/// Certificates that leave the handshake as it is.
#[derive(Debug)]
struct WithoutRules(Arc<Resolver>);

impl ResolvesServerCert for WithoutRules {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let snapshot = self.0.publisher.load();
        let certificate = snapshot.certificate(hello.server_name().unwrap_or_default());
        match certificate.is_some_and(|certificate| certificate.rules.is_some()) {
            true => None,
            false => self.0.resolve(hello),
        }
    }
}
