//! Signatures of AWS requests, version 4 (AWS Signature Version 4, "Create a signed AWS API request").

use aws_lc_rs::{digest, hmac};

/// Credentials and scope of a signature.
pub(super) struct SigningScope<'s> {
    pub(super) access_key_id: &'s str,
    pub(super) secret_access_key: &'s str,
    pub(super) region: &'s str,
    pub(super) service: &'s str,
    /// The time as `20150830T123600Z`.
    pub(super) time: &'s str,
}

impl SigningScope<'_> {
    /// The value of `Authorization`. `fields` are the signed fields, names in lower case and in ascending order; `path`
    /// is percent-encoded, and there is no query.
    pub(super) fn authorization(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> String {
        let names = fields.iter().map(|(name, _)| *name).collect::<Vec<&str>>().join(";");
        let lines: String = fields.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let canonical = format!("{method}\n{path}\n\n{lines}\n{names}\n{}", hex_digest(body));
        let date = self.time.get(..8).unwrap_or_default();
        let scope = format!("{date}/{}/{}/aws4_request", self.region, self.service);
        let signed =
            format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{}", self.time, hex_digest(canonical.as_bytes()));
        let mut key = format!("AWS4{}", self.secret_access_key).into_bytes();
        for part in [date, self.region, self.service, "aws4_request"] {
            key = sign(&key, part.as_bytes());
        }
        let signature = hex(&sign(&key, signed.as_bytes()));
        let credential = format!("{}/{scope}", self.access_key_id);
        format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}")
    }
}

/// A time in seconds since 1970 as `20150830T123600Z`.
pub(super) fn time_text(unix_s: u64) -> String {
    let text = yumen_base::utc_text(unix_s);
    text.chars().filter(|c| c.is_ascii_digit() || matches!(c, 'T' | 'Z')).collect()
}

fn sign(key: &[u8], data: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data).as_ref().to_vec()
}

fn hex_digest(data: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, data).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
