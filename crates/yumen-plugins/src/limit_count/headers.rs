//! Response fields with the quota of the client.

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{FieldName, Fields, PluginBuildContext};

use super::window::WindowDecision;

/// Plugin metadata of `limit-count`: names of the quota fields.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct LimitCountMetadata {
    /// Name of the field with the limit.
    #[schemars(extend("default" = "X-RateLimit-Limit"))]
    pub limit_header: String,
    /// Name of the field with the remaining requests.
    #[schemars(extend("default" = "X-RateLimit-Remaining"))]
    pub remaining_header: String,
    /// Name of the field with the seconds until the window ends.
    #[schemars(extend("default" = "X-RateLimit-Reset"))]
    pub reset_header: String,
}

impl Default for LimitCountMetadata {
    fn default() -> Self {
        LimitCountMetadata {
            limit_header: "X-RateLimit-Limit".to_owned(),
            remaining_header: "X-RateLimit-Remaining".to_owned(),
            reset_header: "X-RateLimit-Reset".to_owned(),
        }
    }
}

impl LimitCountMetadata {
    /// The current metadata.
    pub(crate) fn of(setup: &PluginBuildContext<'_>) -> Result<LimitCountMetadata, InvalidSettings> {
        match setup.metadata {
            Some(value) => serde_json::from_value(value.clone()).map_err(InvalidSettings::from_serde),
            None => Ok(LimitCountMetadata::default()),
        }
    }

    /// The names, with the prefix of a rule if it has one.
    pub(crate) fn names(&self, prefix: Option<&str>) -> QuotaHeaderNames {
        let name = |name: &str| {
            let name = match prefix {
                Some(prefix) => name.replacen("RateLimit-", &format!("{prefix}-RateLimit-"), 1),
                None => name.to_owned(),
            };
            // Names may come from settings: characters outside `token` (RFC 9110 §5.6.2) become dashes.
            let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            let name: String = name.chars().map(|c| if is_token(c) { c } else { '-' }).collect();
            FieldName::new(&name)
        };
        QuotaHeaderNames {
            limit: name(&self.limit_header),
            remaining: name(&self.remaining_header),
            reset: name(&self.reset_header),
        }
    }
}

/// Names of the three fields; `None` for a name that the metadata set to the empty string.
#[derive(Debug)]
pub(crate) struct QuotaHeaderNames {
    limit: Option<FieldName>,
    remaining: Option<FieldName>,
    reset: Option<FieldName>,
}

impl QuotaHeaderNames {
    /// Sets the quota fields for the response, also for a local one.
    pub(crate) fn set(&self, fields: &mut Fields, limit: u64, verdict: &WindowDecision) {
        let mut put =
            |name: &Option<FieldName>, value: &[u8]| name.iter().for_each(|name| fields.put(name, value));
        let mut digits = itoa::Buffer::new();
        put(&self.limit, digits.format(limit).as_bytes());
        put(&self.remaining, digits.format(verdict.remaining).as_bytes());
        // The largest value has 21 characters.
        put(&self.reset, seconds(verdict.reset_cs, &mut [0; 24]));
    }
}

/// Formats hundredths of a second as seconds without trailing zeros: `60`, `59.9`, `0.05`.
fn seconds(hundredths: u64, text: &mut [u8; 24]) -> &[u8] {
    let mut digits = itoa::Buffer::new();
    let whole = digits.format(hundredths / 100).as_bytes();
    let (tenths, rest) = (hundredths / 10 % 10, hundredths % 10);
    let mut length = whole.len();
    text[..length].copy_from_slice(whole);
    if tenths + rest > 0 {
        text[length] = b'.';
        text[length + 1] = b'0' + tenths as u8;
        text[length + 2] = b'0' + rest as u8;
        length += if rest > 0 { 3 } else { 2 };
    }
    &text[..length]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_no_needless_zeros() {
        for (hundredths, expected) in [(6000, "60"), (5990, "59.9"), (5, "0.05"), (0, "0"), (123, "1.23")] {
            assert_eq!(seconds(hundredths, &mut [0; 24]), expected.as_bytes());
        }
        assert_eq!(seconds(u64::MAX, &mut [0; 24]), b"184467440737095516.15");
    }
}
