//! OCSP (RFC 6960): requests for the status of a certificate, and the verification of responses.
//!
//! Performs no I/O. Responses are untrusted input.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::certificate_key_pair::responder;
use super::der::{DerReader, DerValue, tag, value};
use super::provider::provider;

/// A request for the status of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OcspRequest {
    /// The URL of the responder, `http://host/path`.
    pub url: String,
    /// The DER request.
    pub body: Vec<u8>,
    /// The CertID in request and response.
    id: Vec<u8>,
}

/// A verified response with status good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OcspGoodResponse {
    /// `thisUpdate`, in seconds since the Unix epoch.
    pub this_update_unix_s: i64,
    /// `nextUpdate`, in seconds since the Unix epoch; `None` if newer information is always available.
    pub next_update_unix_s: Option<i64>,
}

impl OcspRequest {
    /// Creates the request for `leaf`, issued by `issuer`; `None` if the certificate names no responder.
    pub fn about(leaf: &[u8], issuer: &[u8]) -> Option<OcspRequest> {
        let (_, leaf) = X509Certificate::from_der(leaf).ok()?;
        let (_, issuer) = X509Certificate::from_der(issuer).ok()?;
        let url = responder(&leaf)?.to_owned();
        let key = &issuer.public_key().subject_public_key.data;
        let sha1 = |bytes: &[u8]| digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes);
        // RFC 5019 §2.1.1 requires SHA-1, which every responder supports; security does not depend on it.
        let algorithm = [value(tag::OID, &[0x2b, 0x0e, 3, 2, 26]), vec![5, 0]].concat();
        let id = [
            value(tag::SEQUENCE, &algorithm),
            value(tag::OCTET_STRING, sha1(leaf.issuer().as_raw()).as_ref()),
            value(tag::OCTET_STRING, sha1(key).as_ref()),
            value(tag::INTEGER, leaf.raw_serial()),
        ];
        let id = value(tag::SEQUENCE, &id.concat());
        // The four levels: Request, requestList, TBSRequest, OCSPRequest.
        let body = (0..4).fold(id.clone(), |inner, _| value(tag::SEQUENCE, &inner));
        Some(OcspRequest { url, body, id })
    }

    /// Verifies a response: signed by the issuer, status good, valid at `now_unix_s`. The error is the reason
    /// why it must not be stapled.
    pub fn check(&self, answer: &[u8], issuer: &[u8], now_unix_s: i64) -> Result<OcspGoodResponse, String> {
        /// Tolerance for clock skew, in seconds.
        const SKEW_S: i64 = 300;
        let broken = || "not an OCSP response".to_owned();
        let basic = basic_response(answer)?;
        let mut parts = DerReader(basic).enter(tag::SEQUENCE).ok_or_else(broken)?;
        let signed = parts.take(tag::SEQUENCE).ok_or_else(broken)?;
        let algorithm = parts.take(tag::SEQUENCE).ok_or_else(broken)?;
        let signature = parts.take(tag::BIT_STRING).ok_or_else(broken)?;
        let certificates = parts.enter(tag::context(0)).and_then(|mut all| all.enter(tag::SEQUENCE));
        let signature = SignedData { signed, algorithm, bits: signature.content };
        // The signature is verified before any content is used.
        signature.check(issuer, certificates, now_unix_s)?;
        let good = self.find(signed.content).ok_or_else(broken)??;
        if good.this_update_unix_s > now_unix_s + SKEW_S {
            return Err("it is from the future".into());
        }
        match good.next_update_unix_s {
            Some(until) if until < now_unix_s => Err("it is out of date".into()),
            _ => Ok(good),
        }
    }

    /// Finds the status of the certificate among the entries of a response.
    fn find(&self, signed: &[u8]) -> Option<Result<OcspGoodResponse, String>> {
        let mut data = DerReader(signed);
        // Version, responder and time of production precede the entries (RFC 6960 §4.2.1).
        data.take(tag::context(0));
        data.next()?;
        data.take(tag::GENERALIZED_TIME)?;
        let mut all = data.enter(tag::SEQUENCE)?;
        while let Some(mut one) = all.enter(tag::SEQUENCE) {
            let id = one.take(tag::SEQUENCE)?;
            let status = one.next()?;
            let this_update_unix_s = time(one.take(tag::GENERALIZED_TIME)?.content)?;
            let until = one.enter(tag::context(0));
            let next_update_unix_s = match until {
                Some(mut until) => Some(time(until.take(tag::GENERALIZED_TIME)?.content)?),
                None => None,
            };
            if !is_same(id.whole, &self.id) {
                continue;
            }
            return Some(match status.tag & 0x1f {
                0 => Ok(OcspGoodResponse { this_update_unix_s, next_update_unix_s }),
                1 => Err("the certificate is revoked".into()),
                _ => Err("the responder does not know the certificate".into()),
            });
        }
        Some(Err("it is about another certificate".into()))
    }
}

/// Whether two CertIDs are equal. The parameters of the hash algorithm may be NULL or absent.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let parts = |id| {
        let mut id = DerReader(id).enter(tag::SEQUENCE)?;
        let algorithm = id.enter(tag::SEQUENCE)?.take(tag::OID)?;
        Some((algorithm.content, id.0))
    };
    parts(one).is_some() && parts(one) == parts(other)
}

fn basic_response(answer: &[u8]) -> Result<&[u8], String> {
    let broken = || "not an OCSP response".to_owned();
    let mut response = DerReader(answer).enter(tag::SEQUENCE).ok_or_else(broken)?;
    match response.take(tag::ENUMERATED).ok_or_else(broken)?.content {
        [0] => {}
        [3] => return Err("the OCSP responder is busy (tryLater)".into()),
        other => return Err(format!("the responder failed with status {other:?}")),
    }
    let basic = response.enter(tag::context(0)).and_then(|mut bytes| {
        let mut bytes = bytes.enter(tag::SEQUENCE)?;
        bytes.take(tag::OID)?;
        bytes.take(tag::OCTET_STRING)
    });
    basic.map(|basic| basic.content).ok_or_else(broken)
}

struct SignedData<'a> {
    signed: DerValue<'a>,
    algorithm: DerValue<'a>,
    bits: &'a [u8],
}

impl SignedData<'_> {
    /// Verifies the signature, by the issuer or by a delegated responder (RFC 6960 §4.2.2.2).
    fn check(
        &self,
        issuer: &[u8],
        certificates: Option<DerReader<'_>>,
        now_unix_s: i64,
    ) -> Result<(), String> {
        let (_, parsed) = X509Certificate::from_der(issuer).map_err(|error| error.to_string())?;
        if self.is_by(parsed.public_key().raw) {
            return Ok(());
        }
        let mut certificates = certificates.unwrap_or(DerReader(&[]));
        while let Some(delegate) = certificates.take(tag::SEQUENCE) {
            let Ok((_, delegate)) = X509Certificate::from_der(delegate.whole) else { continue };
            let may_sign = delegate
                .extended_key_usage()
                .is_ok_and(|usage| usage.is_some_and(|usage| usage.value.ocsp_signing));
            let holds = delegate.validity().not_before.timestamp() <= now_unix_s
                && delegate.validity().not_after.timestamp() >= now_unix_s;
            if may_sign && holds && is_issued_by(&delegate, &parsed) && self.is_by(delegate.public_key().raw)
            {
                return Ok(());
            }
        }
        Err("it is not signed by the certificate's issuer".into())
    }

    fn is_by(&self, public_key: &[u8]) -> bool {
        let bits = self.bits.split_first().map_or(&[][..], |(_, bits)| bits);
        is_signature(public_key, self.algorithm.content, self.signed.whole, bits)
    }
}

/// Whether `bits` is a signature of `message` under a SubjectPublicKeyInfo.
fn is_signature(public_key: &[u8], algorithm: &[u8], message: &[u8], bits: &[u8]) -> bool {
    let split = || {
        let mut info = DerReader(public_key).enter(tag::SEQUENCE)?;
        let kind = info.take(tag::SEQUENCE)?.content;
        Some((kind, info.take(tag::BIT_STRING)?.content.split_first()?.1))
    };
    let Some((kind, key)) = split() else { return false };
    let known = provider();
    let mut fitting = known.signature_verification_algorithms.all.iter().filter(|one| {
        let (of_key, of_signature) = (one.public_key_alg_id(), one.signature_alg_id());
        of_key.as_ref() == kind && of_signature.as_ref() == algorithm
    });
    fitting.any(|one| one.verify_signature(key, message, bits).is_ok())
}

fn is_issued_by(delegate: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> bool {
    let names_it = delegate.issuer().as_raw() == issuer.subject().as_raw();
    let certificate = delegate.as_raw();
    let mut parts = DerReader(certificate).enter(tag::SEQUENCE).unwrap_or(DerReader(&[]));
    let (Some(signed), Some(algorithm), Some(bits)) =
        (parts.take(tag::SEQUENCE), parts.take(tag::SEQUENCE), parts.take(tag::BIT_STRING))
    else {
        return false;
    };
    let bits = bits.content.split_first().map_or(&[][..], |(_, bits)| bits);
    names_it && is_signature(issuer.public_key().raw, algorithm.content, signed.whole, bits)
}

/// Parses `YYYYMMDDHHMMSSZ` to seconds since the Unix epoch.
fn time(text: &[u8]) -> Option<i64> {
    let (digits, b"Z") = text.split_at_checked(14)? else { return None };
    let number = |from: usize, to: usize| {
        digits[from..to]
            .iter()
            .try_fold(0i64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days of the proleptic Gregorian calendar, with years that start in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

impl super::CertificateKeyPair {
    /// The OCSP request for this certificate; `None` without issuer or responder.
    pub fn ocsp_request(&self) -> Option<OcspRequest> {
        OcspRequest::about(self.leaf(), self.issuer()?)
    }
}

#[cfg(test)]
mod tests;
