//! Certificates and the rules of their handshakes.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use regex::bytes::RegexSet;
use serde_json::Value;
use yumen_base::{Problem, ProblemLevel};
use yumen_config::decode;
use yumen_config::resource as config;

use super::foreign_members;
use super::names::ObjectName;
use super::references::{self, ReferenceValues, ResolvedText};
use super::validate::ObjectError;
use super::{Compiler, StageResult, invalid, scope, suspicious_values};
use crate::certificates::{ClientCertPolicy, CompiledCertificate};
use crate::route::ScopeIds;
use crate::scope::ScopeSlotId;

/// A value of the TLS implementation, which the compiler does not look into.
pub type Loaded = Arc<dyn Any + Send + Sync>;

/// Loads certificates.
pub type LoadCertificate = Arc<dyn TlsLoader>;

/// The TLS implementation, as far as the compiler uses it. Must do no I/O.
pub trait TlsLoader: Send + Sync {
    /// Loads a certificate chain and its key, both PEM; they must belong together.
    fn pair(&self, certificate: &str, key: &str) -> Result<Loaded, KeyPairError>;

    /// Loads the handshake rules of a certificate. An error has the field of the object and the message.
    fn rules(&self, written: &HandshakeRules<'_>) -> Result<Loaded, (&'static str, String)>;

    /// Loads the handshake rules of a scope. An error has the field of an ssl object with that rule, and the message.
    fn scope(&self, written: &ScopeTlsRules<'_>) -> Result<Loaded, (&'static str, String)>;

    /// Checks certificates of authorities, PEM.
    fn authorities(&self, pem: &str) -> Result<(), String>;
}

/// The reason for which a certificate and its key are refused. Reasons about keys are constants, so that no message can
/// contain a part of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPairError {
    /// A certificate of the chain cannot be used.
    Certificate(String),
    /// The key is not PEM.
    NotPemKey(&'static str),
    /// The algorithm or size of the key is not supported.
    UnknownKey,
    /// The key is valid but belongs to another certificate.
    KeyOfAnother,
    /// A reference cannot be resolved on this node.
    Unresolved {
        /// Whether the reference stands in place of the key.
        is_key: bool,
        /// The reason, without any resolved value.
        message: String,
        /// Whether the text is a secret whose value a trial does not wait for.
        is_awaited: bool,
    },
}

impl fmt::Display for KeyPairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyPairError::Certificate(message) | KeyPairError::Unresolved { message, .. } => f.write_str(message),
            KeyPairError::NotPemKey(why) => write!(f, "the private key is not PEM: {why}"),
            KeyPairError::UnknownKey => f.write_str(
                "the private key cannot be used: it is neither RSA of 2048 to 8192 bits, nor ECDSA, nor Ed25519",
            ),
            KeyPairError::KeyOfAnother => f.write_str("the private key is not that of the certificate"),
        }
    }
}

impl KeyPairError {
    /// Whether the key is at fault rather than the certificate.
    pub fn is_of_key(&self) -> bool {
        !matches!(self, KeyPairError::Certificate(_) | KeyPairError::Unresolved { is_key: false, .. })
    }

    /// The field of an ssl object that is at fault. `at` counts the pairs of the object from 0.
    fn path(&self, at: usize) -> String {
        field(at, self.is_of_key())
    }
}

/// The field of a certificate or key in an ssl object.
fn field(at: usize, is_key: bool) -> String {
    let name = if is_key { "key" } else { "cert" };
    // `cert` and `key` are pair 0; the arrays `certs` and `keys` continue from there.
    if at == 0 { name.to_owned() } else { format!("{name}s[{}]", at - 1) }
}

/// A loader that accepts all rules and authorities, for tests.
impl<F> TlsLoader for F
where
    F: Fn(&str, &str) -> Result<Loaded, KeyPairError> + Send + Sync,
{
    fn pair(&self, certificate: &str, key: &str) -> Result<Loaded, KeyPairError> {
        self(certificate, key)
    }

    fn rules(&self, _written: &HandshakeRules<'_>) -> Result<Loaded, (&'static str, String)> {
        Ok(Arc::new(()))
    }

    fn scope(&self, written: &ScopeTlsRules<'_>) -> Result<Loaded, (&'static str, String)> {
        Ok(Arc::new(written.scope.to_owned()))
    }

    fn authorities(&self, _pem: &str) -> Result<(), String> {
        Ok(())
    }
}

/// The handshake rules of a scope, with its identity: no session passes from one scope to another.
#[derive(Debug, Clone, Copy)]
pub struct ScopeTlsRules<'w> {
    /// The id of the scope.
    pub scope: &'w str,
    /// The slot of the scope in the snapshots of the compiler.
    pub slot: ScopeSlotId,
    /// The rules.
    pub rules: HandshakeRules<'w>,
    /// The effect of a client certificate that is absent or not valid.
    pub client_mode: Option<config::ClientCertMode>,
    /// Whether a server name without a certificate gets that of the node.
    pub default_certificate: bool,
}

/// Rules of the handshakes of a certificate, beyond the node's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeRules<'w> {
    /// Whether TLS 1.2 and whether TLS 1.3 is allowed; absent means the node's setting.
    pub versions: Option<(bool, bool)>,
    /// Cipher suites by name, in the order of preference; absent means the node's setting.
    pub ciphers: Option<&'w [String]>,
    /// Rules for client certificates.
    pub client: Option<ClientCertRules<'w>>,
}

/// Rules for client certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientCertRules<'w> {
    /// Authorities, PEM.
    pub ca: &'w str,
    /// The most intermediates between the client's certificate and an authority.
    pub depth: u8,
    /// Revocation lists, PEM.
    pub crl: Option<&'w str>,
    /// Whether the handshake succeeds without a certificate, because some paths need none.
    pub is_optional: bool,
}

/// Whether the text of an ssl object, valid or not, requires client certificates.
pub(super) fn requires_client_certificates(json: &str) -> bool {
    let value: Value = serde_json::from_str(json).unwrap_or_default();
    // An object that is not presented protects no name, so it must not hold one back.
    let is_in_force = value.get("status") != Some(&0.into()) && value.get("type") != Some(&"client".into());
    is_in_force && value.get("client").is_some_and(Value::is_object)
}

/// Whether the text of an ssl object, valid or not, has a certificate or key with a reference without a value.
pub(super) fn has_unresolved_pair(json: &str, values: &ReferenceValues<'_>) -> bool {
    let value: Value = serde_json::from_str(json).unwrap_or_default();
    let single = ["cert", "key"].into_iter().filter_map(|name| value.get(name));
    let several = ["certs", "keys"].into_iter().filter_map(|name| value.get(name)?.as_array()).flatten();
    let mut texts = single.chain(several).filter_map(Value::as_str);
    texts.any(|text| references::resolve_text(text, values, "").is_err())
}

/// A certificate chain and its key, PEM or references to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct PemPair<'w> {
    pub(super) certificate: &'w str,
    pub(super) key: &'w str,
}

/// The same after references were resolved.
pub(super) struct ResolvedPair<'w> {
    pub(super) certificate: Cow<'w, str>,
    pub(super) key: Cow<'w, str>,
}

impl<'w> PemPair<'w> {
    /// Resolves references. `at` counts the pairs of the object from 0.
    pub(super) fn resolve(
        self,
        values: &ReferenceValues<'_>,
        at: usize,
    ) -> Result<ResolvedPair<'w>, KeyPairError> {
        let resolve = |text, is_key| match references::resolve_text(text, values, &field(at, is_key)) {
            Ok(ResolvedText::Literal(text)) => Ok(Cow::Borrowed(text)),
            Ok(ResolvedText::Value(value)) => Ok(Cow::Owned(value)),
            Ok(ResolvedText::Awaited) => {
                let message = "checked when the value of the secret arrives".to_owned();
                Err(KeyPairError::Unresolved { is_key, message, is_awaited: true })
            }
            Err(message) => Err(KeyPairError::Unresolved { is_key, message, is_awaited: false }),
        };
        // Both before the first error, so that both secrets are fetched at once.
        let (certificate, key) = (resolve(self.certificate, false), resolve(self.key, true));
        Ok(ResolvedPair { certificate: certificate?, key: key? })
    }
}

fn pairs(written: &config::SslSpec) -> impl Iterator<Item = PemPair<'_>> {
    // The validation of the object has compared the lengths.
    let more = written.certs.iter().flatten().zip(written.keys.iter().flatten());
    let all = std::iter::once((&written.cert, &written.key)).chain(more);
    all.map(|(certificate, key)| PemPair { certificate, key })
}

/// A pair of an ssl object that was refused.
pub(super) struct RefusedPair {
    /// Counts the pairs of the object from 0.
    at: usize,
    error: KeyPairError,
}

/// The reason for which an ssl object is refused.
pub(super) enum CertificateError {
    Pair(RefusedPair),
    /// A handshake rule is not supported.
    Handshake {
        /// The field of the object.
        path: &'static str,
        message: String,
    },
}

impl CertificateError {
    fn problem(&self, name: &ObjectName) -> Problem {
        match self {
            CertificateError::Pair(pair) => pair.problem(name),
            CertificateError::Handshake { path, message } => {
                Problem::error(name.to_string(), *path, message.clone())
            }
        }
    }
}

impl From<CertificateError> for ObjectError {
    fn from(error: CertificateError) -> ObjectError {
        match error {
            CertificateError::Pair(RefusedPair { at, error: flaw }) => ObjectError::Certificate { at, flaw },
            CertificateError::Handshake { path, message } => ObjectError::Handshake { path, message },
        }
    }
}

impl RefusedPair {
    fn problem(&self, name: &ObjectName) -> Problem {
        let problem = Problem::error(name.to_string(), self.error.path(self.at), self.error.to_string());
        let hint = match &self.error {
            KeyPairError::KeyOfAnother => "give the key that the certificate was made with",
            KeyPairError::Certificate(message) if message.starts_with("no certificate") => {
                "paste the PEM text, from -----BEGIN CERTIFICATE-----: a path is not read, and a private key belongs into key"
            }
            KeyPairError::NotPemKey(_) => {
                "paste the PEM text, from -----BEGIN PRIVATE KEY-----: a path is not read, and a certificate belongs into cert"
            }
            _ => return problem,
        };
        Problem { allowed: Some(hint.to_owned()), ..problem }
    }
}

/// The parts of a compiled certificate.
pub(super) struct CertificateParts {
    keys: Box<[Loaded]>,
    rules: Option<Loaded>,
    client: Option<ClientCertPolicy>,
    /// The first pair with a reference that cannot be resolved.
    unresolved: Option<RefusedPair>,
}

/// Loads an ssl object. Pairs with unresolved references are left out: the validation of an object accepts them, since
/// another node may have the variable.
pub(super) fn load(
    loader: &LoadCertificate,
    values: &ReferenceValues<'_>,
    written: &config::SslSpec,
) -> Result<CertificateParts, CertificateError> {
    let (mut keys, mut unresolved) = (Vec::new(), None);
    for (at, pair) in pairs(written).enumerate() {
        match pair.resolve(values, at) {
            Ok(ResolvedPair { certificate, key }) => {
                let loaded = loader.pair(&certificate, &key);
                keys.push(loaded.map_err(|error| CertificateError::Pair(RefusedPair { at, error }))?);
            }
            // The first is enough to name the object; the loop goes on so that other pairs are still checked.
            Err(error) => drop(unresolved.get_or_insert(RefusedPair { at, error })),
        }
    }
    let rules = handshake_rules(written);
    let rules = rules.map(|rules| loader.rules(&rules)).transpose();
    let rules = rules.map_err(|(path, message)| CertificateError::Handshake { path, message })?;
    Ok(CertificateParts { keys: keys.into(), rules, client: client_policy(written)?, unresolved })
}

fn handshake_rules(written: &config::SslSpec) -> Option<HandshakeRules<'_>> {
    // Certificates without rules share the node's settings, so the handshake pays for nothing.
    if written.client.is_none() && written.ssl_protocols.is_none() && written.ssl_ciphers.is_none() {
        return None;
    }
    let allows = |version| move |all: &Vec<config::SslProtocol>| all.contains(&version);
    Some(HandshakeRules {
        versions: written
            .ssl_protocols
            .as_ref()
            .map(|all| (allows(config::SslProtocol::Tls12)(all), allows(config::SslProtocol::Tls13)(all))),
        ciphers: written.ssl_ciphers.as_deref(),
        client: written.client.as_ref().map(|client| ClientCertRules {
            ca: &client.ca,
            depth: client.depth,
            crl: client.crl.as_deref(),
            is_optional: client.skip_mtls_uri_regex.is_some(),
        }),
    })
}

fn client_policy(written: &config::SslSpec) -> Result<Option<ClientCertPolicy>, CertificateError> {
    let Some(client) = &written.client else { return Ok(None) };
    let patterns = client.skip_mtls_uri_regex.iter().flatten();
    let skip = RegexSet::new(patterns).map_err(|error| CertificateError::Handshake {
        path: "client.skip_mtls_uri_regex",
        message: error.to_string(),
    })?;
    Ok(Some(ClientCertPolicy { skip }))
}

impl Compiler {
    pub(super) fn stage_ssl(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let written: config::SslSpec = decode(json).map_err(|error| vec![invalid(name, error)])?;
        let values = self.context.reference_values();
        let loaded = load(&self.context.env.load_certificate, &values, &written);
        let mut parts = loaded.map_err(|error| vec![error.problem(name)])?;
        // Client certificates are used by upstreams, which read them from the object's text.
        let is_presented = written.kind == config::SslType::Server && written.status != 0;
        let foreign = [
            ("name", written.name.is_some()),
            ("validity_start", written.validity_start.is_some()),
            ("validity_end", written.validity_end.is_some()),
        ];
        let mut problems: Vec<Problem> = foreign_members::warnings(name, foreign).collect();
        if !is_presented {
            self.remove_certificate(name);
            return Ok(problems);
        }
        // Refused only here and not in `load`: another node may have the variable, but this one cannot present the pair.
        if let Some(unresolved) = parts.unresolved.take() {
            let problem = unresolved.problem(name);
            if !matches!(unresolved.error, KeyPairError::Unresolved { is_awaited: true, .. }) {
                return Err(vec![problem]);
            }
            problems.push(Problem { level: ProblemLevel::Warning, ..problem });
        }
        let protocols = written.ssl_protocols.as_deref().unwrap_or_default();
        // A warning and not an error: APISIX accepts the value, and the other versions still work.
        if protocols.contains(&config::SslProtocol::Tls11) {
            let message = "TLSv1.1 is obsolete (RFC 8996) and not supported";
            problems.push(Problem::warning(name.to_string(), "ssl_protocols", message));
        }
        let (sni, snis) = (written.sni.as_deref(), written.snis.as_deref());
        problems.extend(suspicious_values::of_server_names(name, sni, snis));
        let snis = server_names(name, &written, &mut problems);
        self.insert_certificate(name, parts, snis, ScopeIds::of(written.scopes.as_deref()));
        Ok(problems)
    }

    /// Keeps the server names of a broken object that requires client certificates, without a key. Otherwise another
    /// certificate would be presented for them, and admit clients without a certificate.
    pub(super) fn salvage_ssl(&mut self, name: &ObjectName, json: &str) {
        // Otherwise the next certificate may serve: no client loses a check.
        if !requires_client_certificates(json) {
            return;
        }
        let value: Value = serde_json::from_str(json).unwrap_or_default();
        let several = value.get("snis").and_then(Value::as_array).into_iter().flatten();
        let names = value.get("sni").into_iter().chain(several).filter_map(Value::as_str);
        let snis = names.map(|sni| sni.to_ascii_lowercase().into()).collect();
        // No exempt path: without a readable rule every request must be refused.
        let client = Some(ClientCertPolicy { skip: RegexSet::empty() });
        let parts = CertificateParts { keys: Box::default(), rules: None, client, unresolved: None };
        let scopes = value
            .get("scopes")
            .and_then(|ids| serde_json::from_value::<Vec<config::ResourceId>>(ids.clone()).ok());
        self.insert_certificate(name, parts, snis, ScopeIds::of(scopes.as_deref()));
    }

    fn insert_certificate(
        &mut self,
        name: &ObjectName,
        parts: CertificateParts,
        snis: Vec<Box<str>>,
        scopes: Option<Arc<ScopeIds>>,
    ) {
        self.remove_certificate(name);
        self.references.add_all(scope::references(&scopes), name);
        let CertificateParts { keys, rules, client, .. } = parts;
        let certificate = CompiledCertificate { id: Box::from(&*name.id), keys, rules, client };
        self.downstream.server_names.insert(&name.id, certificate, snis, scopes);
    }

    pub(super) fn remove_certificate(&mut self, name: &ObjectName) {
        let scopes = self.downstream.server_names.remove(&name.id);
        self.references.remove_all(scope::references(&scopes), name);
    }
}

/// The server names of an object, in lower case.
fn server_names(name: &ObjectName, written: &config::SslSpec, problems: &mut Vec<Problem>) -> Vec<Box<str>> {
    let mut snis: Vec<Box<str>> = Vec::new();
    for sni in written.snis().iter() {
        // A wildcard covers a whole label (RFC 9525 §6.3). An error would take the other names out of service.
        if sni.starts_with('*') && sni.len() > 1 && !sni.starts_with("*.") {
            let message = format!("{sni} is not a name or a wildcard of one label, and is left out");
            problems.push(Problem::warning(name.to_string(), "snis", message));
        } else {
            snis.push(sni.to_ascii_lowercase().into());
        }
    }
    snis
}

#[cfg(test)]
mod tests;
