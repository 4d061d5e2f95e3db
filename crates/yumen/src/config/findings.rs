//! Lint findings of a configuration, for the `lint` command, plans and the Admin API.

use x509_parser::pem::Pem;
use x509_parser::public_key::PublicKey;
use yumen_base::Problem;
use yumen_config::Resource;
use yumen_snapshot::{CertificateFacts, KeyFacts, LintInput, Snapshot, lint};

use crate::tls::trusted_problems;

/// Warning time before an expiry, in days, as for certificates.
const SOON_DAYS: u32 = 30;

/// Lint findings of resources, and trust anchors and CRLs that expire soon.
pub(crate) fn of(resources: &[Resource], snapshot: &Snapshot, strict: bool) -> Vec<Problem> {
    let now_unix_s = yumen_proxy::clock::exact().unix_s();
    let mut problems =
        lint(&LintInput { resources, snapshot, now_unix_s, certificate: &certificate, strict });
    problems.extend(trusted_problems(snapshot, SOON_DAYS, now_unix_s as i64));
    problems
}

/// Parses the first certificate of a PEM text.
pub(crate) fn certificate(text: &str) -> Result<CertificateFacts, String> {
    let first = Pem::iter_from_buffer(text.as_bytes()).next().ok_or("there is no PEM block")?;
    let block = first.map_err(|error| error.to_string())?;
    let certificate = block.parse_x509().map_err(|error| error.to_string())?;
    let key = match certificate.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => KeyFacts::Rsa { bits: key.key_size() },
        _ => KeyFacts::Other,
    };
    let validity = certificate.validity();
    Ok(CertificateFacts {
        not_before_unix_s: validity.not_before.timestamp(),
        not_after_unix_s: validity.not_after.timestamp(),
        key,
    })
}
