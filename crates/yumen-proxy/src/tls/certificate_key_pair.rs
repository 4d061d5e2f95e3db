//! A certificate with its key: parsed when it is configured, prepared for signing at its first handshake.
//!
//! Of a hundred thousand certificates few are ever used. Parsing therefore makes only the checks that need no
//! public-key arithmetic: PEM, X.509, and that key and certificate match.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use rustls::InconsistentKeys;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use tokio::sync::mpsc::UnboundedSender;
use x509_parser::prelude::{FromDer, ParsedExtension, X509Certificate};

use yumen_snapshot::compile::KeyPairError;

use super::der::{DerReader, tag};

/// A certificate chain and its key.
pub struct CertificateKeyPair {
    leaf: Box<[u8]>,
    /// The issuers; certificates that share an issuer share its copy.
    above: Box<[Arc<[u8]>]>,
    key: PrivateKeyDer<'static>,
    not_before_unix_s: i64,
    not_after_unix_s: i64,
    staple: StapleRequirement,
    ready: ArcSwapOption<ReadyKey>,
    /// Queue of the certificates that need an OCSP staple.
    staple_requests: Option<UnboundedSender<Weak<CertificateKeyPair>>>,
    me: Weak<CertificateKeyPair>,
}

/// The state that handshakes use.
struct ReadyKey {
    key: Arc<CertifiedKey>,
    /// The end of the staple's validity in seconds since the Unix epoch; `i64::MAX` without a staple.
    until_unix_s: i64,
}

/// Whether the certificate names an OCSP responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StapleRequirement {
    /// It names none.
    None,
    /// It names a responder.
    Able,
    /// It names a responder, and clients reject it without a staple (RFC 7633).
    Must,
}

impl std::fmt::Debug for CertificateKeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("staple", &self.staple).finish_non_exhaustive()
    }
}

impl CertificateKeyPair {
    /// The leaf certificate, DER.
    pub fn leaf(&self) -> &[u8] {
        &self.leaf
    }

    /// The issuer of the leaf, DER, if the chain contains it.
    pub fn issuer(&self) -> Option<&[u8]> {
        self.above.first().map(|issuer| &**issuer)
    }

    /// Start and end of the validity, in seconds since the Unix epoch.
    pub fn validity_unix_s(&self) -> (i64, i64) {
        (self.not_before_unix_s, self.not_after_unix_s)
    }

    /// Whether the certificate names an OCSP responder, and requires its staple.
    pub fn staple_requirement(&self) -> StapleRequirement {
        self.staple
    }

    /// Whether the key is prepared for signing, which the first handshake does.
    pub fn is_ready(&self) -> bool {
        self.ready.load().is_some()
    }

    /// Staples this OCSP response until it expires or is replaced.
    pub fn staple(&self, response: Vec<u8>, until_unix_s: i64) {
        if let Ok(ready) = self.ready_key() {
            self.ready.store(Some(ready.with(Some(response), until_unix_s)));
        }
    }

    /// Returns the key prepared for signing. An expired staple is removed here, so that no handshake presents
    /// one past its end (RFC 6960 §4.2.2.1), even if the next is late.
    pub(super) fn ready(&self, now_unix_s: i64) -> Result<Arc<CertifiedKey>, String> {
        let ready = self.ready_key()?;
        if ready.until_unix_s > now_unix_s {
            return Ok(ready.key.clone());
        }
        let bare = ready.with(None, i64::MAX);
        // Keeps a new staple that was set meanwhile.
        self.ready.compare_and_swap(&ready, Some(bare.clone()));
        Ok(bare.key.clone())
    }

    fn ready_key(&self) -> Result<Arc<ReadyKey>, String> {
        if let Some(ready) = self.ready.load_full() {
            return Ok(ready);
        }
        let above = self.above.iter().map(|issuer| issuer.to_vec());
        let chain = std::iter::once(self.leaf.to_vec()).chain(above).map(CertificateDer::from).collect();
        let key = signing_key(&self.key).map_err(|flaw| flaw.to_string())?;
        let key = Arc::new(CertifiedKey::new(chain, key));
        let ready = Arc::new(ReadyKey { key, until_unix_s: i64::MAX });
        // Two workers may prepare the key at once; either result is valid.
        self.ready.store(Some(ready.clone()));
        // A certificate with must-staple has requested its staple when it was loaded.
        if self.staple == StapleRequirement::Able {
            self.request_staple();
        }
        Ok(ready)
    }

    fn request_staple(&self) {
        if let Some(staple_requests) = &self.staple_requests {
            // Without a receiver no staple is fetched.
            let _ = staple_requests.send(self.me.clone());
        }
    }

    /// Parses PEM. `share` deduplicates issuers that appear in many chains.
    pub(super) fn read(
        certificate: &str,
        key: &str,
        share: impl Fn(&[u8]) -> Arc<[u8]>,
        staple_requests: Option<UnboundedSender<Weak<CertificateKeyPair>>>,
    ) -> Result<Arc<CertificateKeyPair>, KeyPairError> {
        let chain = chain(certificate).map_err(KeyPairError::Certificate)?;
        let key = private_key(key)?;
        let (leaf, above) =
            chain.split_first().ok_or_else(|| KeyPairError::Certificate(NO_CERTIFICATE.into()))?;
        let not_x509 =
            |what| move |error| KeyPairError::Certificate(format!("the {what} is not X.509: {error}"));
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(not_x509("certificate"))?;
        // Other keys are compared by the library, with public-key arithmetic.
        if !is_plainly_of(&key, parsed.public_key().raw) {
            certified(chain.clone(), &key)?;
        }
        for issuer in above {
            X509Certificate::from_der(issuer).map_err(not_x509("chain"))?;
        }
        let pair = Arc::new_cyclic(|me| CertificateKeyPair {
            leaf: leaf.as_ref().into(),
            above: above.iter().map(|issuer| share(issuer)).collect(),
            key,
            not_before_unix_s: parsed.validity().not_before.timestamp(),
            not_after_unix_s: parsed.validity().not_after.timestamp(),
            staple: staple_requirement(&parsed),
            ready: ArcSwapOption::empty(),
            staple_requests,
            me: me.clone(),
        });
        if pair.staple == StapleRequirement::Must {
            pair.request_staple();
        }
        Ok(pair)
    }
}

impl ReadyKey {
    fn with(&self, staple: Option<Vec<u8>>, until_unix_s: i64) -> Arc<ReadyKey> {
        let key = Arc::new(CertifiedKey { ocsp: staple, ..(*self.key).clone() });
        Arc::new(ReadyKey { key, until_unix_s })
    }
}

const NO_CERTIFICATE: &str = "no certificate in the PEM text";

/// Parses a PEM key. Errors of the library are dropped, because they quote the key.
fn private_key(pem: &str) -> Result<PrivateKeyDer<'static>, KeyPairError> {
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes());
    key.map_err(|_| KeyPairError::NotPemKey(yumen_base::pem::flaw(pem.as_bytes())))
}

fn signing_key(key: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, KeyPairError> {
    any_supported_type(key).map_err(|_| KeyPairError::UnknownKey)
}

/// A chain with its key, prepared for signing.
fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: &PrivateKeyDer<'_>,
) -> Result<CertifiedKey, KeyPairError> {
    let pair = CertifiedKey::new(chain, signing_key(key)?);
    match pair.keys_match() {
        // A key that does not expose its public half cannot be compared.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(pair),
        Err(rustls::Error::InconsistentKeys(_)) => Err(KeyPairError::KeyOfAnother),
        Err(error) => Err(KeyPairError::Certificate(format!("the certificate cannot be used: {error}"))),
    }
}

/// Parses a PEM chain. Errors quote nothing of the text, which may contain a private key.
pub(super) fn chain(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    let flaw = || format!("the certificate is not PEM: {}", yumen_base::pem::flaw(pem.as_bytes()));
    let chain = chain.map_err(|_| flaw())?;
    match chain.is_empty() {
        true => Err(NO_CERTIFICATE.into()),
        false => Ok(chain),
    }
}

/// Parses and prepares a complete pair.
pub(super) fn load(certificate: &str, key: &str) -> Result<Arc<CertifiedKey>, KeyPairError> {
    let chain = chain(certificate).map_err(KeyPairError::Certificate)?;
    certified(chain, &private_key(key)?).map(Arc::new)
}

/// Like [`load`], without the comparison of key and certificate, which fails at the critical extension of a
/// challenge certificate (RFC 8737 §3).
pub(super) fn load_unchecked(certificate: &str, key: &str) -> Result<Arc<CertifiedKey>, KeyPairError> {
    let chain = chain(certificate).map_err(KeyPairError::Certificate)?;
    Ok(Arc::new(CertifiedKey::new(chain, signing_key(&private_key(key)?)?)))
}

fn staple_requirement(parsed: &X509Certificate<'_>) -> StapleRequirement {
    // RFC 7633 §6: a sequence of TLS extension numbers; 5 is status_request.
    const TLS_FEATURE: &str = "1.3.6.1.5.5.7.1.24";
    let features = parsed.extensions().iter().find(|one| one.oid.to_id_string() == TLS_FEATURE);
    let must = features.is_some_and(|one| one.value.windows(3).any(|part| part == [tag::INTEGER, 1, 5]));
    match responder(parsed) {
        None => StapleRequirement::None,
        Some(_) if must => StapleRequirement::Must,
        Some(_) => StapleRequirement::Able,
    }
}

/// The URL of the OCSP responder of a certificate (RFC 5280 §4.2.2.1).
pub(super) fn responder<'a>(parsed: &'a X509Certificate<'_>) -> Option<&'a str> {
    const OCSP: &str = "1.3.6.1.5.5.7.48.1";
    parsed.extensions().iter().find_map(|extension| {
        let ParsedExtension::AuthorityInfoAccess(access) = extension.parsed_extension() else { return None };
        access.accessdescs.iter().find_map(|one| match &one.access_location {
            x509_parser::extensions::GeneralName::URI(uri)
                if one.access_method.to_id_string() == OCSP && uri.starts_with("http://") =>
            {
                Some(*uri)
            }
            _ => None,
        })
    })
}

/// Whether the key holds the certificate's public key, in an encoding that needs no arithmetic to compare.
/// `false` decides nothing: the library checks the pair.
fn is_plainly_of(key: &PrivateKeyDer<'_>, public: &[u8]) -> bool {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
    const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
    let split = || {
        let mut info = DerReader(public).enter(tag::SEQUENCE)?;
        let mut algorithm = info.enter(tag::SEQUENCE)?;
        let kind = algorithm.take(tag::OID)?.content;
        Some((kind, algorithm.next().map(|curve| curve.content), info.take(tag::BIT_STRING)?.content))
    };
    let Some((kind, curve, bits)) = split() else { return false };
    // The first byte is the number of unused bits.
    let Some((0, bits)) = bits.split_first() else { return false };
    let inner = match key {
        PrivateKeyDer::Pkcs8(key) => match private_of_pkcs8(key.secret_pkcs8_der(), kind) {
            Some(inner) => inner,
            None => return false,
        },
        PrivateKeyDer::Pkcs1(key) => key.secret_pkcs1_der(),
        PrivateKeyDer::Sec1(key) => key.secret_sec1_der(),
        _ => return false,
    };
    match kind {
        RSA => rsa_public(inner).is_some_and(|public_key| {
            DerReader(bits).enter(tag::SEQUENCE).is_some_and(|all| all.0 == public_key)
        }),
        EC => curve.is_some_and(is_known_curve) && ec_public(inner) == Some(bits),
        _ => false,
    }
}

/// Whether the curve is NIST P-256 or P-384.
fn is_known_curve(oid: &[u8]) -> bool {
    oid == [0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7] || oid == [0x2b, 0x81, 4, 0, 34]
}

/// The private key in a PKCS #8 structure (RFC 5958 §2), if its algorithm is `kind`.
fn private_of_pkcs8<'a>(der: &'a [u8], kind: &[u8]) -> Option<&'a [u8]> {
    let mut info = DerReader(der).enter(tag::SEQUENCE)?;
    info.take(tag::INTEGER)?;
    let found = info.enter(tag::SEQUENCE)?.take(tag::OID)?;
    let inner = info.take(tag::OCTET_STRING)?;
    (found.content == kind).then_some(inner.content)
}

/// Modulus and exponent of a key (RFC 8017 §A.1.2), encoded as in the public key. `None` if one of the nine
/// numbers is missing or the modulus has an unusual length.
fn rsa_public(der: &[u8]) -> Option<&[u8]> {
    let mut numbers = DerReader(der).enter(tag::SEQUENCE)?;
    numbers.take(tag::INTEGER)?;
    let public = numbers.0;
    let (modulus, exponent) = (numbers.take(tag::INTEGER)?, numbers.take(tag::INTEGER)?);
    for _ in 0..6 {
        numbers.take(tag::INTEGER).filter(|number| !number.content.is_empty())?;
    }
    // A modulus of 2048 to 4096 bits has 256 to 512 bytes behind a zero byte.
    let is_usual = (257..=513).contains(&modulus.content.len()) && numbers.0.is_empty();
    is_usual.then(|| &public[..modulus.whole.len() + exponent.whole.len()])
}

/// The public point of a key (RFC 5915 §3), if the key contains it.
fn ec_public(der: &[u8]) -> Option<&[u8]> {
    let mut key = DerReader(der).enter(tag::SEQUENCE)?;
    key.take(tag::INTEGER)?;
    key.take(tag::OCTET_STRING)?;
    // The curve parameters are optional (RFC 5915 §3).
    key.take(tag::context(0));
    let point = key.enter(tag::context(1))?.take(tag::BIT_STRING)?;
    point.content.split_first().filter(|(unused, _)| **unused == 0).map(|(_, point)| point)
}
