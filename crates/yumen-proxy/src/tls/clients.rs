//! Client certificates: verification of their chains, and the facts that variables and plugins read.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use webpki::{KeyUsage, RequiredEkuNotFoundContext};
use x509_parser::prelude::{FromDer, X509Certificate};
use yumen_plugin::{ClientCertVerdict, ClientCertificate};
use yumen_snapshot::compile::ClientCertRules;

use super::authorities::{TrustedAuthorities, as_rustls, key_usage};
use super::names::rfc2253;
use super::provider::provider;
use super::revocation::RevocationLists;
use super::terms::{CA, CRL};

/// Verifies client certificates.
pub(super) struct ClientCertChecker {
    authorities: TrustedAuthorities,
    hints: Vec<DistinguishedName>,
    revoked: RevocationLists,
    depth: usize,
    is_optional: bool,
    provider: Arc<CryptoProvider>,
}

impl std::fmt::Debug for ClientCertChecker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientCheck").field("authorities", &self.authorities).finish_non_exhaustive()
    }
}

impl ClientCertChecker {
    /// Parses authorities and revocation lists; an error names the field of the ssl object.
    pub(super) fn new(rules: &ClientCertRules<'_>) -> Result<ClientCertChecker, (&'static str, String)> {
        let authorities = TrustedAuthorities::read(rules.ca).map_err(|error| (CA, error))?;
        let revoked = rules.crl.map(RevocationLists::read).transpose().map_err(|error| (CRL, error))?;
        Ok(ClientCertChecker {
            hints: authorities.hints(),
            authorities,
            revoked: revoked.unwrap_or_default(),
            depth: rules.depth.into(),
            is_optional: rules.is_optional,
            provider: provider(),
        })
    }

    /// Verifies a chain at `now`.
    pub(super) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        let usage = KeyUsage::client_auth();
        // As in OpenSSL: the key usage must allow signatures or key agreement, by which a client proves
        // possession of the key.
        if key_usage(leaf)?.is_some_and(|usage| !usage.digital_signature() && !usage.key_agreement()) {
            let context = RequiredEkuNotFoundContext { required: usage, present: Vec::new() };
            return Err(webpki::Error::RequiredEkuNotFoundContext(context));
        }
        // As in OpenSSL, the depth counts intermediate certificates.
        match self.authorities.verify(leaf, above, now, usage, &self.revoked)? > self.depth {
            true => Err(webpki::Error::PathLenConstraintViolated),
            false => Ok(()),
        }
    }

    /// The authorities and their revocation lists.
    pub(super) fn trusted(&self) -> (&TrustedAuthorities, &RevocationLists) {
        (&self.authorities, &self.revoked)
    }

    /// The verdict on the chain that a client has presented.
    pub(super) fn verdict(&self, chain: &[CertificateDer<'_>]) -> ClientCertVerdict {
        let Some((leaf, above)) = chain.split_first() else { return ClientCertVerdict::Absent };
        match self.verify(leaf, above, UnixTime::now()) {
            Ok(()) => ClientCertVerdict::Verified,
            Err(error) => ClientCertVerdict::Failed(reason(&error).into()),
        }
    }
}

/// The text of `$ssl_client_verify`, in the words of OpenSSL where it has some.
fn reason(error: &webpki::Error) -> &'static str {
    match error {
        webpki::Error::CertExpired { .. } => "certificate has expired",
        webpki::Error::CertNotValidYet { .. } => "certificate is not yet valid",
        webpki::Error::CertRevoked => "certificate revoked",
        webpki::Error::CrlExpired { .. } => "CRL has expired",
        webpki::Error::UnknownIssuer => "unable to get local issuer certificate",
        webpki::Error::PathLenConstraintViolated => "certificate chain too long",
        webpki::Error::RequiredEkuNotFoundContext(_) => "unsuitable certificate purpose",
        webpki::Error::EndEntityUsedAsCa => "invalid CA certificate",
        webpki::Error::CaUsedAsEndEntity => "certificate is an authority's (CA:TRUE) and not in client.ca",
        webpki::Error::UnsupportedCertVersion => "certificate is not X.509 version 3",
        _ => "certificate cannot be verified",
    }
}

/// The facts of the leaf certificate.
pub(super) fn describe(chain: &[CertificateDer<'_>]) -> Option<ClientCertificate> {
    let (_, parsed) = X509Certificate::from_der(chain.first()?).ok()?;
    // `$ssl_client_fingerprint` of NGINX is a SHA-1 digest.
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, chain.first()?);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let validity = parsed.validity();
    Some(ClientCertificate {
        chain: chain.iter().map(|one| Box::from(one.as_ref())).collect(),
        subject: rfc2253(parsed.subject()).into(),
        issuer: rfc2253(parsed.issuer()).into(),
        serial: hex(significant(parsed.raw_serial())).to_uppercase().into(),
        fingerprint: hex(digest.as_ref()).into(),
        valid_from: openssl_time(validity.not_before).into(),
        valid_until: openssl_time(validity.not_after).into(),
        not_after_unix_s: validity.not_after.timestamp(),
    })
}

/// Removes the leading zero byte of a positive integer (X.690 §8.3).
fn significant(serial: &[u8]) -> &[u8] {
    match serial {
        [0, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    }
}

/// Formats a time as OpenSSL does: `Nov 1 15:00:00 2026 GMT`.
fn openssl_time(time: x509_parser::time::ASN1Time) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let time = time.to_datetime();
    let month = MONTHS[usize::from(u8::from(time.month()) - 1)];
    let (hour, minute, second) = time.to_hms();
    format!("{month} {:2} {hour:02}:{minute:02}:{second:02} {} GMT", time.day(), time.year())
}

impl ClientCertVerifier for ClientCertChecker {
    fn client_auth_mandatory(&self) -> bool {
        !self.is_optional
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match self.verify(end_entity, intermediates, now) {
            Err(error) if !self.is_optional => Err(as_rustls(error)),
            // An optional certificate never fails the handshake; each exchange evaluates the verdict.
            _ => Ok(ClientCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
