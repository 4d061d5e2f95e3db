//! TLS 1.3 of QUIC, with the same certificates, rules, tickets and provider as TLS over TCP.
//!
//! quinn requires the TLS configuration before the client hello. [`QuicHandshake`] therefore buffers the
//! hello, selects the rules, and then starts quinn's session. Independent of streams.

use std::any::Any;
use std::sync::Arc;

use quinn::ConnectionId;
use quinn::crypto::rustls::{HandshakeData, QuicServerConfig};
use quinn::crypto::{
    self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{Side, TransportError, TransportErrorCode};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::CertificateDer;
use rustls::server::{Acceptor as HelloReader, NoServerSessionStorage, ServerSessionMemoryCache};
use rustls::server::{StoresServerSessions, WebPkiClientVerifier};
use rustls::{AlertDescription, ServerConfig};
use yumen_plugin::{ListenerNumber, TlsInfo};

use super::loader::CompiledTlsRules;
use super::scope::BoundSessions;
use super::tickets::BoundTickets;
use super::{DownstreamTlsAcceptor, SharedTls, provider, requested_name, scope};

/// ALPN name of HTTP/3 (RFC 9114 §3.1).
const HTTP3: &[u8] = b"h3";
/// The longest client hello, in bytes.
const HELLO_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a handshake message header, and the longest TLS record.
const MESSAGE_HEADER_BYTES: usize = 4;
const RECORD_BYTES_MAX: usize = 16 * 1024;

impl DownstreamTlsAcceptor {
    /// An acceptor whose connections advertise HTTP/3.
    ///
    /// `line` is the complete `Alt-Svc` field line.
    pub fn with_alt_svc(&self, line: Vec<u8>) -> DownstreamTlsAcceptor {
        DownstreamTlsAcceptor { alt_svc: Some(line.into()), ..self.clone() }
    }

    /// The `Alt-Svc` field line for connections under these rules.
    pub(super) fn alt_svc(&self, rules: Option<&CompiledTlsRules>) -> Option<Arc<[u8]>> {
        self.alt_svc.clone().filter(|_| admits_quic(rules))
    }

    /// The TLS configuration of HTTP/3.
    ///
    /// Early data can be replayed. `early_data` is therefore accepted only with sessions that are cached in
    /// this process and removed on use (RFC 8446 §8.1).
    pub(crate) fn quic(&self, early_data: bool) -> Result<QuicTls, String> {
        let sessions_max = self.shared.settings.sessions_max;
        let sessions: Arc<dyn StoresServerSessions> = match early_data && sessions_max > 0 {
            true => ServerSessionMemoryCache::new(sessions_max),
            false => Arc::new(NoServerSessionStorage {}),
        };
        let shared = self.shared.clone();
        let plain = Arc::new(shared.quic_config(early_data, &sessions, None)?);
        Ok(QuicTls { shared, sessions, listener: self.listener, early_data, plain })
    }
}

impl SharedTls {
    /// Builds a configuration from `rules`, or else from the settings of the node.
    fn quic_config(
        &self,
        early_data: bool,
        sessions: &Arc<dyn StoresServerSessions>,
        rules: Option<&CompiledTlsRules>,
    ) -> Result<QuicServerConfig, String> {
        let settings = &self.settings;
        if !admits_quic(rules) {
            return Err("QUIC is spoken with TLS 1.3 only (RFC 9001 §4.2)".into());
        }
        let of_node = || match settings.ciphers.is_empty() {
            true => Ok(None),
            false => provider::suites(&settings.ciphers).map(Some),
        };
        let suites = match rules.and_then(|rules| rules.suites.clone()) {
            Some(suites) => Some(suites),
            None => of_node().map_err(|error| format!("tls.ciphers: {error}"))?,
        };
        let provider = suites.map_or_else(provider::provider, |suites| provider::with_suites(&suites));
        let check = rules.and_then(|rules| rules.client.clone());
        // A client that must present a certificate has not done so when early data arrives.
        let takes_early = early_data && check.is_none();
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(match check {
                Some(check) => check,
                None => WebPkiClientVerifier::no_client_auth(),
            });
        let mut config = builder.with_cert_resolver(self.resolver_of(rules));
        config.ignore_client_order = true;
        config.send_tls13_tickets = 1;
        config.alpn_protocols = vec![HTTP3.to_vec()];
        // QUIC limits early data by flow control: this value is 0 or 2^32-1 (RFC 9001 §4.6.1).
        config.max_early_data_size = if takes_early { u32::MAX } else { 0 };
        config.session_storage = match takes_early {
            true => BoundSessions::of(sessions, rules),
            false => Arc::new(NoServerSessionStorage {}),
        };
        // A stateless ticket cannot be limited to one use, so it permits replays of early data (RFC 8446
        // §8.1).
        if let Some(keys) = settings.tickets.as_ref().filter(|_| !early_data) {
            // A distinct binding: tickets of QUIC resume no TCP sessions, and conversely.
            let binding = !rules.map_or(0, |rules| rules.id);
            config.ticketer = Arc::new(BoundTickets { keys: keys.clone(), binding });
        }
        // Initial packets always use AES-128-GCM (RFC 9001 §5.2).
        let initial = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite());
        let initial = initial.ok_or("QUIC cannot be spoken by this library")?;
        QuicServerConfig::with_initial(Arc::new(config), initial).map_err(|error| error.to_string())
    }
}

/// Whether the TLS versions of `rules`, or of the node, include 1.3.
fn admits_quic(rules: Option<&CompiledTlsRules>) -> bool {
    rules.and_then(|rules| rules.versions).is_none_or(|versions| versions.tls13)
}

/// TLS state that all QUIC handshakes of a listener share.
pub(crate) struct QuicTls {
    shared: Arc<SharedTls>,
    sessions: Arc<dyn StoresServerSessions>,
    listener: ListenerNumber,
    early_data: bool,
    /// The configuration for certificates without rules.
    plain: Arc<QuicServerConfig>,
}

impl QuicTls {
    /// The configuration for `rules`, built on first use.
    fn config(&self, rules: Option<&CompiledTlsRules>) -> Result<Arc<QuicServerConfig>, String> {
        let Some(rules) = rules else { return Ok(self.plain.clone()) };
        if let Some(config) = rules.quic.get() {
            return Ok(config.clone());
        }
        let made = Arc::new(self.shared.quic_config(self.early_data, &self.sessions, Some(rules))?);
        // Two workers may build the configuration at once; the first one stays.
        Ok(rules.quic.get_or_init(|| made).clone())
    }
}

impl crypto::ServerConfig for QuicTls {
    fn initial_keys(&self, version: u32, dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.plain.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.plain.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(self: Arc<Self>, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        Box::new(QuicHandshake {
            tls: self,
            version,
            params: *params,
            state: QuicHandshakeState::Hello(Vec::new()),
        })
    }
}

/// One QUIC handshake.
struct QuicHandshake {
    tls: Arc<QuicTls>,
    version: u32,
    params: TransportParameters,
    state: QuicHandshakeState,
}

enum QuicHandshakeState {
    /// The bytes of the client hello received so far.
    Hello(Vec<u8>),
    /// The session of quinn, and the rules of the requested server name.
    Begun { session: Box<dyn Session>, rules: Option<Arc<CompiledTlsRules>> },
}

/// Facts of a handshake before its end.
struct QuicHandshakeInfo {
    server_name: Option<String>,
    rules: Option<Arc<CompiledTlsRules>>,
}

fn refuse(alert: AlertDescription, reason: impl ToString) -> TransportError {
    TransportError { code: TransportErrorCode::crypto(alert.into()), frame: None, reason: reason.to_string() }
}

impl QuicHandshake {
    fn session(&self) -> Option<&dyn Session> {
        match &self.state {
            QuicHandshakeState::Hello(_) => None,
            QuicHandshakeState::Begun { session, .. } => Some(&**session),
        }
    }

    fn session_mut(&mut self) -> Option<&mut Box<dyn Session>> {
        match &mut self.state {
            QuicHandshakeState::Hello(_) => None,
            QuicHandshakeState::Begun { session, .. } => Some(session),
        }
    }

    /// Starts the session once the client hello is complete.
    fn begin(&mut self) -> Result<bool, TransportError> {
        let QuicHandshakeState::Hello(hello) = &self.state else { return Ok(false) };
        let Some([_, length @ ..]) = hello.first_chunk::<MESSAGE_HEADER_BYTES>() else { return Ok(false) };
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        if length > HELLO_BYTES_MAX {
            return Err(refuse(AlertDescription::DecodeError, "the client hello is too long"));
        }
        if hello.len() < MESSAGE_HEADER_BYTES + length {
            return Ok(false);
        }
        let rules = self.tls.rules(hello)?;
        let config = self.tls.config(rules.as_deref());
        let config = config.map_err(|error| refuse(AlertDescription::ProtocolVersion, error))?;
        let session = crypto::ServerConfig::start_session(config, self.version, &self.params);
        let QuicHandshakeState::Hello(hello) =
            std::mem::replace(&mut self.state, QuicHandshakeState::Begun { session, rules })
        else {
            return Ok(false);
        };
        self.session_mut().map_or(Ok(false), |session| session.read_handshake(&hello))
    }
}

impl QuicTls {
    /// The rules for the server name of a client hello. The hello is parsed by rustls, which also verifies
    /// it: a second parser that disagreed could be used to bypass the rules.
    fn rules(&self, hello: &[u8]) -> Result<Option<Arc<CompiledTlsRules>>, TransportError> {
        let mut records = Vec::with_capacity(hello.len() + 16);
        for piece in hello.chunks(RECORD_BYTES_MAX) {
            // The record header that a client sends over TCP: handshake, legacy version 0x0301 (RFC 8446
            // §5.1).
            records.extend_from_slice(&[22, 3, 1]);
            records.extend_from_slice(&(piece.len() as u16).to_be_bytes());
            records.extend_from_slice(piece);
        }
        let mut reader = HelloReader::default();
        let mut records = &records[..];
        while !records.is_empty() {
            reader.read_tls(&mut records).map_err(|error| refuse(AlertDescription::DecodeError, error))?;
        }
        match reader.accept() {
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                let sni = requested_name(hello.server_name());
                if self.listener.is_static() {
                    return Ok(self.shared.rules(sni));
                }
                let unknown = || refuse(AlertDescription::UnrecognisedName, "no scope has the server name");
                self.shared.rules_on(self.listener, sni).map(Some).ok_or_else(unknown)
            }
            Ok(None) => Err(refuse(AlertDescription::DecodeError, "the client hello is not whole")),
            Err((error, _)) => Err(refuse(AlertDescription::DecodeError, error)),
        }
    }
}

impl Session for QuicHandshake {
    fn initial_keys(&self, dst_cid: &ConnectionId, _side: Side) -> Keys {
        let keys = crypto::ServerConfig::initial_keys(&*self.tls.plain, self.version, dst_cid);
        keys.unwrap_or_else(|_| unreachable!("no session is started for a version without keys"))
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let QuicHandshakeState::Begun { session, rules } = &self.state else { return None };
        let data = session.handshake_data()?.downcast::<HandshakeData>().ok()?;
        Some(Box::new(QuicHandshakeInfo { server_name: data.server_name, rules: rules.clone() }))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.session()?.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.session()?.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.session()?.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.session().is_none_or(|session| session.is_handshaking())
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        match &mut self.state {
            QuicHandshakeState::Begun { session, .. } => session.read_handshake(bytes),
            QuicHandshakeState::Hello(hello) => {
                hello.extend_from_slice(bytes);
                self.begin()
            }
        }
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.session().map_or(Ok(None), |session| session.transport_parameters())
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        self.session_mut()?.write_handshake(out)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.session_mut()?.next_1rtt_keys()
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.session().is_some_and(|session| session.is_valid_retry(orig_dst_cid, header, payload))
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let session = self.session().ok_or(ExportKeyingMaterialError)?;
        session.export_keying_material(output, label, context)
    }
}

/// Whether a handshake with these facts still waits for a client certificate.
pub(crate) fn requests_client_certificate(handshake: &dyn Any) -> bool {
    handshake
        .downcast_ref::<QuicHandshakeInfo>()
        .and_then(|handshake| handshake.rules.as_deref())
        .is_some_and(|rules| rules.client.is_some())
}

/// The facts of a finished handshake. quinn exposes neither cipher suite nor group.
pub(crate) fn quic_info(connection: &quinn::Connection) -> TlsInfo {
    let handshake =
        connection.handshake_data().and_then(|handshake| handshake.downcast::<QuicHandshakeInfo>().ok());
    let chain = connection.peer_identity();
    let chain = chain.and_then(|chain| chain.downcast::<Vec<CertificateDer<'static>>>().ok());
    let chain = chain.map(|chain| *chain).unwrap_or_default();
    let rules = handshake.as_ref().and_then(|handshake| handshake.rules.as_deref());
    let facts = scope::client_facts(&chain, rules);
    let sni = handshake.and_then(|handshake| handshake.server_name);
    let sni = sni.map(|sni| requested_name(Some(&sni)).into());
    TlsInfo { version: "TLSv1.3", sni, ..facts }
}
