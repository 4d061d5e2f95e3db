//! TLS inside QUIC: the same certificates, rules, tickets and provider.
//!
//! The library wants to know the settings of a handshake before the client's hello. So a session of ours takes
//! the hello, and only then begins the library's. Knows no stream.

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
use yumen_plugin::TlsInfo;

use super::loader::CompiledTlsRules;
use super::tickets::BoundTickets;
use super::{DownstreamTlsAcceptor, SharedTls, asked_name, clients, provider};

/// How HTTP/3 is called in a handshake (RFC 9114 §3.1).
const HTTP3: &[u8] = b"h3";
/// The longest hello that is read, in bytes.
const HELLO_BYTES_MAX: usize = 16 * 1024;
/// What stands before a message and before a record.
const MESSAGE_HEADER_BYTES: usize = 4;
const RECORD_BYTES_MAX: usize = 16 * 1024;

impl DownstreamTlsAcceptor {
    /// The same, telling clients where else they may connect.
    ///
    /// `line` is the whole line of the answers' heads.
    pub fn telling(&self, line: Vec<u8>) -> DownstreamTlsAcceptor {
        DownstreamTlsAcceptor { alt_svc: Some(line.into()), ..self.clone() }
    }

    /// What answers tell clients that were greeted under these rules.
    pub(super) fn alt_svc(&self, rules: Option<&CompiledTlsRules>) -> Option<Arc<[u8]>> {
        self.alt_svc.clone().filter(|_| admits_quic(rules))
    }

    /// How clients of HTTP/3 are answered.
    ///
    /// What comes before the handshake is over can be sent again by anybody. So `early_data` is taken only with
    /// sessions that are remembered here and forgotten as they are used (RFC 8446 §8.1).
    pub(crate) fn quic(&self, early_data: bool) -> Result<QuicTls, String> {
        let sessions_max = self.shared.settings.sessions_max;
        let sessions: Arc<dyn StoresServerSessions> = match early_data && sessions_max > 0 {
            true => ServerSessionMemoryCache::new(sessions_max),
            false => Arc::new(NoServerSessionStorage {}),
        };
        let shared = self.shared.clone();
        let plain = Arc::new(shared.quic_config(early_data, &sessions, None)?);
        Ok(QuicTls { shared, sessions, early_data, plain })
    }
}

impl SharedTls {
    /// How to answer under these rules, or the node's settings where there are none.
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
        // Whoever must show a certificate has shown none in what comes early.
        let takes_early = early_data && check.is_none();
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(match check {
                Some(check) => check,
                None => WebPkiClientVerifier::no_client_auth(),
            });
        let mut config = builder.with_cert_resolver(self.resolver.clone());
        config.ignore_client_order = true;
        config.send_tls13_tickets = 1;
        config.alpn_protocols = vec![HTTP3.to_vec()];
        // QUIC has its own bounds: here it is all or nothing.
        config.max_early_data_size = if takes_early { u32::MAX } else { 0 };
        config.session_storage = match takes_early {
            true => sessions.clone(),
            false => Arc::new(NoServerSessionStorage {}),
        };
        if let Some(keys) = settings.tickets.as_ref().filter(|_| !early_data) {
            // Tickets given out here open sessions here only.
            let binding = !rules.map_or(0, |rules| rules.id);
            config.ticketer = Arc::new(BoundTickets { keys: keys.clone(), binding });
        }
        // The first packets are always sealed with it, whatever is offered for the rest (RFC 9001 §5.2).
        let initial = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite());
        let initial = initial.ok_or("QUIC cannot be spoken by this library")?;
        QuicServerConfig::with_initial(Arc::new(config), initial).map_err(|error| error.to_string())
    }
}

/// Whether QUIC may be spoken under these rules, or the node's settings where there are none.
fn admits_quic(rules: Option<&CompiledTlsRules>) -> bool {
    rules.and_then(|rules| rules.versions).is_none_or(|versions| versions.tls13)
}

/// What the handshakes of HTTP/3 share.
pub(crate) struct QuicTls {
    shared: Arc<SharedTls>,
    sessions: Arc<dyn StoresServerSessions>,
    early_data: bool,
    /// Where the certificate asks for nothing of its own.
    plain: Arc<QuicServerConfig>,
}

impl QuicTls {
    /// How to answer under these rules; made once.
    fn config(&self, rules: Option<&CompiledTlsRules>) -> Result<Arc<QuicServerConfig>, String> {
        let Some(rules) = rules else { return Ok(self.plain.clone()) };
        if let Some(config) = rules.quic.get() {
            return Ok(config.clone());
        }
        let made = Arc::new(self.shared.quic_config(self.early_data, &self.sessions, Some(rules))?);
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

/// A handshake.
struct QuicHandshake {
    tls: Arc<QuicTls>,
    version: u32,
    params: TransportParameters,
    state: QuicHandshakeState,
}

enum QuicHandshakeState {
    /// The hello, as far as it has come.
    Hello(Vec<u8>),
    /// The library's session under the rules of the name that was asked for.
    Begun { session: Box<dyn Session>, rules: Option<Arc<CompiledTlsRules>> },
}

/// What a handshake told before it was over.
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

    /// Begins under the rules of the name in the hello, if all of it is here.
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
    /// The rules of the name a hello asks for, read by the library that will judge it: what two readers could
    /// read differently would lead around the rules.
    fn rules(&self, hello: &[u8]) -> Result<Option<Arc<CompiledTlsRules>>, TransportError> {
        let mut records = Vec::with_capacity(hello.len() + 16);
        for piece in hello.chunks(RECORD_BYTES_MAX) {
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
            Ok(Some(accepted)) => Ok(self.shared.rules(asked_name(accepted.client_hello().server_name()))),
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

/// Whether a handshake, of which this was told so far, still waits for a certificate of the client.
pub(crate) fn asks_client(told: &dyn Any) -> bool {
    told.downcast_ref::<QuicHandshakeInfo>()
        .and_then(|told| told.rules.as_deref())
        .is_some_and(|rules| rules.client.is_some())
}

/// What a handshake told. The library does not tell suite and group.
pub(crate) fn quic_info(connection: &quinn::Connection) -> TlsInfo {
    let told = connection.handshake_data().and_then(|told| told.downcast::<QuicHandshakeInfo>().ok());
    let chain = connection.peer_identity();
    let chain = chain.and_then(|chain| chain.downcast::<Vec<CertificateDer<'static>>>().ok());
    let chain = chain.map(|chain| *chain).unwrap_or_default();
    let rules = told.as_ref().and_then(|told| told.rules.as_deref());
    let check = rules.and_then(|rules| rules.client.as_deref());
    TlsInfo {
        version: "TLSv1.3",
        verdict: check.map(|check| check.verdict(&chain)).unwrap_or_default(),
        certificate: clients::describe(&chain).map(Arc::new),
        rules: check.and(rules).map_or(0, |rules| rules.id),
        sni: told.and_then(|told| told.server_name).map(|sni| asked_name(Some(&sni)).into()),
        ..TlsInfo::default()
    }
}
