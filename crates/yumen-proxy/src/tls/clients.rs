//! Certificates of clients: which authorities they must lead to, and what they say of the client.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use webpki::{
    CertRevocationList, EndEntityCert, KeyUsage, OwnedCertRevocationList, RevocationOptionsBuilder,
    UnknownStatusPolicy,
};
use x509_parser::asn1_rs::{Any, Tag, ToDer};
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};
use yumen_plugin::{ClientCertificate, ClientVerdict};
use yumen_snapshot::compile::ClientRules;

use super::provider::provider;

/// Decides which certificates of clients hold.
pub(super) struct ClientCheck {
    anchors: Vec<TrustAnchor<'static>>,
    hints: Vec<DistinguishedName>,
    revoked: Vec<CertRevocationList<'static>>,
    depth: usize,
    is_optional: bool,
    provider: Arc<CryptoProvider>,
}

impl std::fmt::Debug for ClientCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientCheck").field("anchors", &self.anchors.len()).finish_non_exhaustive()
    }
}

impl ClientCheck {
    /// Reads authorities and lists of the revoked; an error names the field of the ssl object.
    pub(super) fn new(rules: &ClientRules<'_>) -> Result<ClientCheck, (&'static str, String)> {
        let roots = roots(rules.ca).map_err(|error| ("client.ca", error))?;
        let revoked = rules.crl.map(revoked).transpose().map_err(|error| ("client.crl", error))?;
        Ok(ClientCheck {
            hints: roots.subjects(),
            anchors: roots.roots,
            revoked: revoked.unwrap_or_default(),
            depth: rules.depth.into(),
            is_optional: rules.is_optional,
            provider: provider(),
        })
    }

    /// Whether a chain holds now, its own certificate first.
    pub(super) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        let lists: Vec<&CertRevocationList<'_>> = self.revoked.iter().collect();
        // What no list speaks of is not revoked: lists are given for some authorities and not for others.
        let revocation = RevocationOptionsBuilder::new(&lists)
            .ok()
            .map(|options| options.with_status_policy(UnknownStatusPolicy::Allow).build());
        let certificate = EndEntityCert::try_from(leaf)?;
        let path = certificate.verify_for_usage(
            self.provider.signature_verification_algorithms.all,
            &self.anchors,
            above,
            now,
            KeyUsage::client_auth(),
            revocation,
            None,
        )?;
        match path.intermediate_certificates().count() > self.depth {
            true => Err(webpki::Error::PathLenConstraintViolated),
            false => Ok(()),
        }
    }

    /// What is told of a chain that was shown.
    pub(super) fn verdict(&self, chain: &[CertificateDer<'_>]) -> ClientVerdict {
        let Some((leaf, above)) = chain.split_first() else { return ClientVerdict::Absent };
        match self.verify(leaf, above, UnixTime::now()) {
            Ok(()) => ClientVerdict::Verified,
            Err(error) => ClientVerdict::Failed(reason(&error).into()),
        }
    }
}

/// In words that end up in `$ssl_client_verify`.
fn reason(error: &webpki::Error) -> &'static str {
    match error {
        webpki::Error::CertExpired { .. } => "certificate has expired",
        webpki::Error::CertNotValidYet { .. } => "certificate is not yet valid",
        webpki::Error::CertRevoked => "certificate revoked",
        webpki::Error::UnknownIssuer => "unable to get local issuer certificate",
        webpki::Error::PathLenConstraintViolated => "certificate chain too long",
        webpki::Error::RequiredEkuNotFoundContext(_) => "unsuitable certificate purpose",
        webpki::Error::UnsupportedCertVersion => "certificate is not X.509 version 3",
        _ => "certificate cannot be verified",
    }
}

fn as_rustls(error: &webpki::Error) -> rustls::Error {
    let of_certificate = match error {
        webpki::Error::CertExpired { .. } => CertificateError::Expired,
        webpki::Error::CertNotValidYet { .. } => CertificateError::NotValidYet,
        webpki::Error::CertRevoked => CertificateError::Revoked,
        webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
        webpki::Error::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        webpki::Error::BadDer => CertificateError::BadEncoding,
        _ => CertificateError::ApplicationVerificationFailure,
    };
    rustls::Error::InvalidCertificate(of_certificate)
}

/// Authorities, PEM.
pub(super) fn roots(pem: &str) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate
            .map_err(|_| format!("the CA is not PEM: {}", yumen_base::pem::flaw(pem.as_bytes())))?;
        store.add(certificate).map_err(|error| format!("the CA cannot be used: {error}"))?;
    }
    if store.is_empty() { Err("there is no trusted CA in the PEM text".into()) } else { Ok(store) }
}

fn revoked(pem: &str) -> Result<Vec<CertRevocationList<'static>>, String> {
    let lists = CertificateRevocationListDer::pem_slice_iter(pem.as_bytes());
    let lists = lists.map(|list| {
        let flaw = || yumen_base::pem::flaw(pem.as_bytes());
        let list = list.map_err(|_| format!("the list of revoked certificates is not PEM: {}", flaw()))?;
        let list = OwnedCertRevocationList::from_der(&list);
        let list =
            list.map_err(|error| format!("the list of revoked certificates cannot be used: {error}"))?;
        Ok(CertRevocationList::from(list))
    });
    let lists = lists.collect::<Result<Vec<_>, String>>()?;
    match lists.is_empty() {
        true => Err("there is no list of revoked certificates in the PEM text".into()),
        false => Ok(lists),
    }
}

/// What the certificate of a chain says of its owner.
pub(super) fn describe(chain: &[CertificateDer<'_>]) -> Option<ClientCertificate> {
    let (_, parsed) = X509Certificate::from_der(chain.first()?).ok()?;
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

/// Without the zero that keeps a number positive.
fn significant(serial: &[u8]) -> &[u8] {
    match serial {
        [0, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    }
}

/// As in `Nov  1 15:00:00 2026 GMT`.
fn openssl_time(time: x509_parser::time::ASN1Time) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let time = time.to_datetime();
    let month = MONTHS[usize::from(u8::from(time.month()) - 1)];
    let (hour, minute, second) = time.to_hms();
    format!("{month} {:2} {hour:02}:{minute:02}:{second:02} {} GMT", time.day(), time.year())
}

/// A name, last part first (RFC 2253 §2.1), its values escaped (§2.4).
fn rfc2253(name: &X509Name<'_>) -> String {
    let parts = name.iter_rdn().map(|part| {
        let pairs = part.iter().map(|pair| {
            let id = pair.attr_type().to_id_string();
            let key = SHORT_NAMES.iter().find(|(oid, _)| *oid == id).map_or(id.as_str(), |(_, name)| name);
            format!("{key}={}", value(pair.attr_value()))
        });
        pairs.collect::<Vec<_>>().join("+")
    });
    let mut parts: Vec<String> = parts.collect();
    parts.reverse();
    parts.join(",")
}

/// A value as text, or as `#` and its DER in hex where it is none (RFC 4514 §2.4): two that differ never look alike.
fn value(value: &Any<'_>) -> String {
    let bytes = value.data;
    let text = match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::NumericString | Tag::VisibleString => {
            std::str::from_utf8(bytes).ok().map(str::to_owned)
        }
        // UTF-16 without surrogates, big-endian (X.690 §8.23.7); surrogates are taken as everybody does.
        Tag::BmpString => utf16(bytes),
        // Meant to switch between sets of characters (T.61), and written as Latin-1 by all that wrote it.
        Tag::TeletexString => Some(bytes.iter().copied().map(char::from).collect()),
        Tag::UniversalString => utf32(bytes),
        _ => None,
    };
    match text {
        Some(text) => escaped(&text),
        None => value
            .to_der_vec()
            .unwrap_or_else(|_| bytes.to_vec())
            .iter()
            .fold("#".to_owned(), |hex, byte| hex + &format!("{byte:02X}")),
    }
}

fn utf16(bytes: &[u8]) -> Option<String> {
    let (units, rest) = bytes.as_chunks::<2>();
    let units = units.iter().copied().map(u16::from_be_bytes);
    char::decode_utf16(units).collect::<Result<_, _>>().ok().filter(|_| rest.is_empty())
}

fn utf32(bytes: &[u8]) -> Option<String> {
    let (units, rest) = bytes.as_chunks::<4>();
    let units = units.iter().copied().map(|unit| char::from_u32(u32::from_be_bytes(unit)));
    units.collect::<Option<String>>().filter(|_| rest.is_empty())
}

const SHORT_NAMES: [(&str, &str); 13] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.42", "GN"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// Control bytes are escaped too: the text goes into fields.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (at, each) in value.chars().enumerate() {
        let is_edge_space = each == ' ' && (at == 0 || at == last);
        match each {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => out.extend(['\\', each]),
            '#' if at == 0 => out.push_str("\\#"),
            _ if is_edge_space => out.push_str("\\ "),
            _ if each.is_control() => out.push_str(&format!("\\{:02X}", u32::from(each))),
            _ => out.push(each),
        }
    }
    out
}

impl ClientCertVerifier for ClientCheck {
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
            Err(error) if !self.is_optional => Err(as_rustls(&error)),
            // Each exchange asks for the verdict.
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

#[cfg(test)]
mod tests {
    use super::{Any, Tag, value};

    #[test]
    fn a_name_is_told_in_whichever_characters_it_is_written() {
        let check = |tag: Tag, bytes: &[u8], expected: &str| {
            assert_eq!(value(&Any::from_tag_and_data(tag, bytes)), expected, "{tag:?} {bytes:?}");
        };
        check(Tag::Utf8String, "zoë".as_bytes(), "zoë");
        check(Tag::PrintableString, b"bob", "bob");
        check(Tag::BmpString, b"\0b\0o\0b", "bob");
        check(Tag::BmpString, b"\x01\x61", "š");
        check(Tag::BmpString, b"\0,\0\n", r"\,\0A");
        check(Tag::TeletexString, b"M\xfcller", "Müller");
        check(Tag::UniversalString, b"\0\0\0b\0\x01\xf6\0", "b\u{1f600}");
        check(Tag::Utf8String, b"#a", r"\#a");
        check(Tag::Utf8String, b"", "");
        // What is no text is told apart all the same.
        check(Tag::Utf8String, b"\xff", "#0C01FF");
        check(Tag::BmpString, b"\0b\0", "#1E03006200");
        check(Tag::BmpString, b"\xd8\x00", "#1E02D800");
        check(Tag::UniversalString, b"\0\x11\0\0", "#1C0400110000");
        check(Tag::OctetString, b"ab", "#04026162");
    }
}
