//! Certificates that clients refuse now or soon, and protocols that are obsolete.

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::Kind;

use super::{LintInput, ResourceTexts};

/// The properties of a certificate that the linter needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Start of its validity, in seconds since the Unix epoch.
    pub not_before_unix_s: i64,
    /// End of its validity, in seconds since the Unix epoch.
    pub not_after_unix_s: i64,
    /// Its public key.
    pub key: KeyFacts,
}

/// The kind of a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFacts {
    /// RSA.
    Rsa {
        /// Bits of the modulus.
        bits: usize,
    },
    /// Any other.
    Other,
}

const DAY_S: i64 = 24 * 60 * 60;
/// Days before its end from which a certificate is reported.
const SOON_DAYS: i64 = 30;
/// CA/Browser Forum baseline requirements §6.1.5.
const RSA_BITS_MIN: usize = 2048;

pub(super) fn check(input: &LintInput<'_>, texts: &ResourceTexts<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (one, value) in texts.iter().filter(|(one, _)| one.kind == Kind::Ssls) {
        let object = one.to_string();
        if value.get("status").and_then(Value::as_u64) == Some(0) {
            continue;
        }
        for (path, pem) in chains(value) {
            // The compiler reports unreadable texts, and references are not resolved here.
            if let Ok(facts) = (input.certificate)(pem) {
                problems.extend(expiry_problems(&object, &path, &facts, input.now_unix_s as i64));
            }
        }
        let protocols = value.get("ssl_protocols").and_then(Value::as_array).into_iter().flatten();
        if protocols.into_iter().any(|version| version.as_str() == Some("TLSv1.1")) {
            let message = "TLSv1.1 is obsolete (RFC 8996)";
            problems.push(
                Problem::warning(object, "ssl_protocols", message).hint("TLSv1.2 and TLSv1.3 are safe"),
            );
        }
    }
    problems
}

fn chains(ssl: &Value) -> Vec<(String, &str)> {
    let more = ssl.get("certs").and_then(Value::as_array).into_iter().flatten().enumerate();
    let more = more.filter_map(|(at, pem)| Some((format!("certs[{at}]"), pem.as_str()?)));
    let first = ssl.get("cert").and_then(Value::as_str).map(|pem| ("cert".to_owned(), pem));
    first.into_iter().chain(more).collect()
}

fn expiry_problems(object: &str, path: &str, facts: &CertificateFacts, now_unix_s: i64) -> Vec<Problem> {
    let mut problems = Vec::new();
    let left_s = facts.not_after_unix_s - now_unix_s;
    let days = (left_s.abs() / DAY_S).to_string();
    let renew = "renew it: clients refuse it afterwards";
    if left_s < 0 {
        let message = format!("the certificate expired {days} days ago: clients refuse it");
        problems.push(Problem::error(object, path, message).hint("renew it"));
    } else if left_s < SOON_DAYS * DAY_S {
        problems.push(
            Problem::warning(object, path, format!("the certificate expires in {days} days")).hint(renew),
        );
    }
    if facts.not_before_unix_s > now_unix_s {
        let message = "the certificate is not valid yet: clients refuse it";
        problems.push(Problem::error(object, path, message));
    }
    if let KeyFacts::Rsa { bits } = facts.key
        && bits < RSA_BITS_MIN
    {
        let message = format!("the RSA key has {bits} bits, at least {RSA_BITS_MIN} are safe");
        problems.push(Problem::warning(object, path, message).hint("make a new key"));
    }
    problems
}
