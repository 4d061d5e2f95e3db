//! Certificates by server name, and what their handshakes ask of clients.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use regex::bytes::RegexSet;
use serde_json::Value;
use yumen_base::Problem;
use yumen_config::decode;
use yumen_config::resource as config;

use super::validate::ObjectError;
use super::{Compiler, LoadCertificate, ObjectName, StageResult, Variables, invalid, references};
use crate::snapshot::{Certificates, ClientCertPolicy, CompiledCertificate, find_certificate};

/// Something of the door that speaks TLS.
pub type Loaded = Arc<dyn Any + Send + Sync>;

/// The door that speaks TLS, as the compiler asks it. Must do no I/O.
pub trait TlsLoader: Send + Sync {
    /// Reads a certificate chain and its key, both PEM; they must belong together.
    fn pair(&self, certificate: &str, key: &str) -> Result<Loaded, KeyPairError>;

    /// Reads what the handshakes of a certificate ask beyond the node's settings. An error names the
    /// field of the object and says what is wrong with it.
    fn rules(&self, written: &HandshakeRules<'_>) -> Result<Loaded, (&'static str, String)>;

    /// Says whether authorities, PEM, can be used.
    fn authorities(&self, pem: &str) -> Result<(), String>;
}

/// Why a certificate and its key are refused. What is wrong with a key is a constant: nothing of one can get into
/// a message, whatever a library would say of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPairError {
    /// The certificate or one above it cannot be used, and why.
    Certificate(String),
    /// The key is not PEM, and why.
    NotPemKey(&'static str),
    /// The key is of no kind known here.
    UnknownKey,
    /// The key is good, and not that of the certificate.
    KeyOfAnother,
    /// The certificate, or its key, refers to what there is not here.
    Unresolved {
        /// Whether it is the key.
        is_key: bool,
        /// What is not there; never what is.
        message: String,
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
    /// Whether the key is at fault, and not the certificate.
    pub fn is_of_key(&self) -> bool {
        !matches!(self, KeyPairError::Certificate(_) | KeyPairError::Unresolved { is_key: false, .. })
    }

    /// The field of an ssl object that is at fault. `at` counts its pairs from 0.
    fn path(&self, at: usize) -> String {
        let name = if self.is_of_key() { "key" } else { "cert" };
        if at == 0 { name.to_owned() } else { format!("{name}s[{}]", at - 1) }
    }
}

/// A door that takes certificates and asks nothing more, for tests.
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

    fn authorities(&self, _pem: &str) -> Result<(), String> {
        Ok(())
    }
}

/// What the handshakes of a certificate ask beyond the node's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeRules<'w> {
    /// The versions allowed, as `TLSv1.2`; none are the node's.
    pub versions: Option<(bool, bool)>,
    /// Cipher suites by name, the most liked first; none are the node's.
    pub ciphers: Option<&'w [String]>,
    /// What clients must show.
    pub client: Option<ClientCertRules<'w>>,
}

/// What clients must show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientCertRules<'w> {
    /// Authorities, PEM.
    pub ca: &'w str,
    /// How many certificates may stand between the client's and an authority.
    pub depth: u8,
    /// Lists of revoked certificates, PEM.
    pub crl: Option<&'w str>,
    /// Whether the handshake lets everybody in, since some paths need no certificate.
    pub is_optional: bool,
}

/// What is kept of an ssl object.
pub(super) struct StagedSsl {
    certificate: Arc<CompiledCertificate>,
    snis: Vec<Box<str>>,
}

impl StagedSsl {
    /// Whether it has something to show.
    pub(super) fn is_good(&self) -> bool {
        !self.certificate.keys.is_empty()
    }
}

/// Whether an object, broken or not, asks clients for certificates.
pub(super) fn asks_clients(json: &str) -> bool {
    let value: Value = serde_json::from_str(json).unwrap_or_default();
    let is_in_force = value.get("status") != Some(&0.into()) && value.get("type") != Some(&"client".into());
    is_in_force && value.get("client").is_some_and(Value::is_object)
}

fn pairs(written: &config::SslSpec) -> impl Iterator<Item = (&str, &str)> {
    let more = written.certs.iter().flatten().zip(written.keys.iter().flatten());
    let all = std::iter::once((&written.cert, &written.key)).chain(more);
    all.map(|(cert, key)| (cert.as_str(), key.as_str()))
}

/// A pair with what it refers to; the error tells what cannot be resolved.
pub(super) fn resolved<'w>(
    (cert, key): (&'w str, &'w str),
    variables: &Variables,
) -> Result<(Cow<'w, str>, Cow<'w, str>), KeyPairError> {
    let resolve = |text, is_key| {
        let meant = references::resolve_text(text, variables);
        meant.map_err(|message| KeyPairError::Unresolved { is_key, message })
    };
    Ok((resolve(cert, false)?, resolve(key, true)?))
}

/// What an object gives to the snapshot.
pub(super) struct CertificateParts {
    keys: Box<[Loaded]>,
    rules: Option<Loaded>,
    client: Option<ClientCertPolicy>,
    /// The first pair that refers to what there is not here, and why.
    unresolved: Option<(usize, KeyPairError)>,
}

/// Loads all of an object; what refers to nothing there is here is left out and told.
pub(super) fn load(
    with: &LoadCertificate,
    variables: &Variables,
    written: &config::SslSpec,
) -> Result<CertificateParts, ObjectError> {
    let (mut keys, mut unresolved) = (Vec::new(), None);
    for (at, pair) in pairs(written).enumerate() {
        match resolved(pair, variables) {
            Ok((cert, key)) => {
                keys.push(with.pair(&cert, &key).map_err(|flaw| ObjectError::Certificate { at, flaw })?);
            }
            Err(flaw) => drop(unresolved.get_or_insert((at, flaw))),
        }
    }
    let rules = handshake_rules(written);
    let rules = rules.map(|rules| with.rules(&rules)).transpose();
    let rules = rules.map_err(|(path, message)| ObjectError::Handshake { path, message })?;
    Ok(CertificateParts { keys: keys.into(), rules, client: client_policy(written)?, unresolved })
}

fn handshake_rules(written: &config::SslSpec) -> Option<HandshakeRules<'_>> {
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

fn client_policy(written: &config::SslSpec) -> Result<Option<ClientCertPolicy>, ObjectError> {
    let Some(client) = &written.client else { return Ok(None) };
    let patterns = client.skip_mtls_uri_regex.iter().flatten();
    let skip = RegexSet::new(patterns).map_err(|error| ObjectError::Handshake {
        path: "client.skip_mtls_uri_regex",
        message: error.to_string(),
    })?;
    Ok(Some(ClientCertPolicy { skip }))
}

impl Compiler {
    pub(super) fn stage_ssl(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let written: config::SslSpec = decode(json).map_err(|error| vec![invalid(name, error)])?;
        let of_pair = |(at, flaw): (usize, KeyPairError)| {
            vec![Problem::error(name.to_string(), flaw.path(at), flaw.to_string())]
        };
        let loaded = load(&self.env.load_certificate, &self.env.variables, &written);
        let mut parts = loaded.map_err(|flaw| match flaw {
            ObjectError::Certificate { at, flaw } => of_pair((at, flaw)),
            ObjectError::Handshake { path, message } => vec![Problem::error(name.to_string(), path, message)],
            other => vec![Problem::error(name.to_string(), "", format!("{other:?}"))],
        })?;
        let shown = written.kind == config::SslType::Server && written.status != 0;
        if !shown {
            self.remove_ssl(name);
            return Ok(Vec::new());
        }
        if let Some(unresolved) = parts.unresolved.take() {
            return Err(of_pair(unresolved));
        }
        let mut problems = Vec::new();
        let protocols = written.ssl_protocols.as_deref().unwrap_or_default();
        if protocols.contains(&config::SslProtocol::Tls11) {
            let message = "TLSv1.1 is obsolete (RFC 8996) and not supported";
            problems.push(Problem::warning(name.to_string(), "ssl_protocols", message));
        }
        let snis = server_names(name, &written, &mut problems);
        self.store_staged_ssl(name, parts, snis);
        Ok(problems)
    }

    /// A new object that is broken and asks clients for certificates still claims its names, with nothing
    /// to show: left out, it would leave them open to everybody.
    pub(super) fn salvage_ssl(&mut self, name: &ObjectName, json: &str) {
        if !asks_clients(json) {
            return;
        }
        let value: Value = serde_json::from_str(json).unwrap_or_default();
        let several = value.get("snis").and_then(Value::as_array).into_iter().flatten();
        let names = value.get("sni").into_iter().chain(several).filter_map(Value::as_str);
        let snis = names.map(|sni| sni.to_ascii_lowercase().into()).collect();
        let client = Some(ClientCertPolicy { skip: RegexSet::empty() });
        self.store_staged_ssl(
            name,
            CertificateParts { keys: Box::default(), rules: None, client, unresolved: None },
            snis,
        );
    }

    fn store_staged_ssl(&mut self, name: &ObjectName, parts: CertificateParts, snis: Vec<Box<str>>) {
        self.remove_ssl(name);
        let CertificateParts { keys, rules, client, .. } = parts;
        let certificate = Arc::new(CompiledCertificate { id: Box::from(&*name.id), keys, rules, client });
        for sni in &snis {
            let claims = self.sni_claims.entry(sni.clone()).or_default();
            claims.insert(name.id.clone());
            if claims.len() > 1 {
                self.contested_snis.insert(sni.clone());
            }
        }
        self.client_policies += usize::from(certificate.client.is_some());
        self.ssls.insert(name.id.clone(), StagedSsl { certificate, snis });
        self.assign_server_names(name);
    }

    pub(super) fn remove_ssl(&mut self, name: &ObjectName) {
        let Some(held) = self.ssls.get(&name.id) else { return };
        for sni in held.snis.clone() {
            if let Some(claims) = self.sni_claims.get_mut(&sni) {
                claims.remove(&name.id);
                if claims.len() < 2 {
                    self.contested_snis.remove(&sni);
                }
            }
        }
        self.assign_server_names(name);
        if let Some(held) = self.ssls.remove(&name.id) {
            self.client_policies -= usize::from(held.certificate.client.is_some());
        }
    }

    /// Gives each server name of an object to the last of those that claim it, but for those the node fetched.
    fn assign_server_names(&mut self, name: &ObjectName) {
        let snis = self.ssls.get(&name.id).map(|held| held.snis.clone()).unwrap_or_default();
        for sni in snis {
            let claims = self.sni_claims.get(&sni);
            let winner = claims.and_then(|claims| claims.iter().rfind(|id| !self.is_fetched(id)));
            match winner.and_then(|id| self.ssls.get(id)) {
                Some(held) => drop(self.certificates.insert(sni, held.certificate.clone())),
                None => {
                    if claims.is_some_and(BTreeSet::is_empty) {
                        self.sni_claims.remove(&sni);
                    }
                    self.certificates.remove(&sni);
                }
            }
        }
    }

    fn is_fetched(&self, id: &str) -> bool {
        self.env.fetched.iter().any(|fetched| **fetched == *id)
    }

    /// All certificates by name. One that the node fetched is shown for its names whatever else claims them, under the
    /// rules of the object that claims them: no certificate may open what somebody has closed.
    pub(super) fn shown_certificates(&self) -> Certificates {
        let mut shown = self.certificates.clone();
        for held in self.env.fetched.iter().filter_map(|id| self.ssls.get(&**id)) {
            for sni in &held.snis {
                let ruling = find_certificate(&self.certificates, sni);
                let certificate = match ruling {
                    Some((_, ruling)) => Arc::new(held.certificate.under_rules_of(ruling)),
                    None => held.certificate.clone(),
                };
                shown.insert(sni.clone(), certificate);
            }
        }
        shown
    }

    /// Warnings of names that another object's certificate is shown for: a fetched one, or that of the last object.
    pub(super) fn sni_problems(&self, name: &ObjectName) -> Vec<Problem> {
        let Some(held) = self.ssls.get(&name.id) else { return Vec::new() };
        let taken = held.snis.iter().filter_map(|sni| {
            let claims = self.sni_claims.get(sni)?;
            let fetched = self.env.fetched.iter().rev().find_map(|id| claims.get(&**id));
            let shown = fetched.or_else(|| claims.last()).filter(|shown| **shown != name.id)?;
            let ruling = self.certificates.get(sni);
            let lifts =
                held.certificate.client.is_some() && ruling.is_some_and(|ruling| ruling.client.is_none());
            let more =
                if lifts { ": clients are not asked for certificates, as this object wants" } else { "" };
            let message = format!("the certificate for {sni} is that of ssls/{shown}{more}");
            Some(Problem::warning(name.to_string(), "snis", message))
        });
        taken.collect()
    }
}

/// The names an object is for, in lower case.
fn server_names(name: &ObjectName, written: &config::SslSpec, problems: &mut Vec<Problem>) -> Vec<Box<str>> {
    let mut snis: Vec<Box<str>> = Vec::new();
    for sni in written.snis().iter() {
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
