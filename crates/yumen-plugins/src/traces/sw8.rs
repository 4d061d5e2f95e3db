//! Trace context of SkyWalking: the field `sw8` (SkyWalking Cross Process Propagation Headers Protocol, version 3).

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

pub(crate) const SW8: &str = "sw8";

/// Agents differ in their padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The context of a caller, or that for the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sw8Context {
    /// Whether the trace is sampled; a callee may ignore the context of other traces.
    pub(crate) is_sampled: bool,
    pub(crate) trace_id: String,
    pub(crate) segment_id: String,
    pub(crate) span_id: u32,
    pub(crate) service: String,
    pub(crate) instance: String,
    pub(crate) endpoint: String,
    /// The address of the callee, as the caller knows it.
    pub(crate) address: String,
}

impl Sw8Context {
    /// Parses the value of the field; `None` if it is malformed.
    pub(crate) fn parse(value: &[u8]) -> Option<Sw8Context> {
        let value = std::str::from_utf8(value).ok()?;
        let mut parts = value.split('-');
        let mut part = || parts.next();
        let is_sampled = match part()? {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        let text = |part: Option<&str>| String::from_utf8(BASE64.decode(part?).ok()?).ok();
        let context = Sw8Context {
            is_sampled,
            trace_id: text(part()).filter(|id| !id.is_empty())?,
            segment_id: text(part()).filter(|id| !id.is_empty())?,
            span_id: part()?.parse().ok()?,
            service: text(part())?,
            instance: text(part())?,
            endpoint: text(part())?,
            address: text(part())?,
        };
        part().is_none().then_some(context)
    }

    /// The value of the field.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from(if self.is_sampled { "1-" } else { "0-" });
        let mut append = |value: &str| {
            BASE64.encode_string(value, &mut text);
            text.push('-');
        };
        append(&self.trace_id);
        append(&self.segment_id);
        text.push_str(itoa::Buffer::new().format(self.span_id));
        for value in [&self.service, &self.instance, &self.endpoint, &self.address] {
            text.push('-');
            BASE64.encode_string(value, &mut text);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Sw8Context {
        Sw8Context {
            is_sampled: true,
            trace_id: "1".to_owned(),
            segment_id: "2.3>4".to_owned(),
            span_id: 3,
            service: "service".to_owned(),
            instance: "instance".to_owned(),
            endpoint: "/app".to_owned(),
            address: "127.0.0.1:8080".to_owned(),
        }
    }

    #[test]
    fn a_context_is_written_as_it_was_read() {
        // The example of the protocol page, with its padding.
        let text = "1-MQ==-Mi4zPjQ=-3-c2VydmljZQ==-aW5zdGFuY2U=-L2FwcA==-MTI3LjAuMC4xOjgwODA=";
        assert_eq!(context().text(), text);
        assert_eq!(Sw8Context::parse(text.as_bytes()), Some(context()));
        let unpadded = text.replace('=', "");
        assert_eq!(Sw8Context::parse(unpadded.as_bytes()), Some(context()));
        let unsampled = Sw8Context { is_sampled: false, ..context() };
        assert_eq!(Sw8Context::parse(unsampled.text().as_bytes()), Some(unsampled));
    }

    #[test]
    fn a_malformed_context_is_ignored() {
        let texts = [
            "",
            "-",
            "1",
            "1-MQ==-Mg==-3-cw==-aQ==-ZQ==",
            "1-MQ==-Mg==-3-cw==-aQ==-ZQ==-YQ==-more",
            "2-MQ==-Mg==-3-cw==-aQ==-ZQ==-YQ==",
            "1-MQ==-Mg==--3-cw==-aQ==-ZQ==-YQ==",
            "1-MQ==-Mg==-x-cw==-aQ==-ZQ==-YQ==",
            "1-MQ==-Mg==-99999999999-cw==-aQ==-ZQ==-YQ==",
            "1--Mg==-3-cw==-aQ==-ZQ==-YQ==",
            "1-MQ==--3-cw==-aQ==-ZQ==-YQ==",
            "1-!!-Mg==-3-cw==-aQ==-ZQ==-YQ==",
            "1-MQ==-Mg==-3-/w==-aQ==-ZQ==-YQ==",
        ];
        for text in texts {
            assert_eq!(Sw8Context::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Sw8Context::parse(b"1-\xff"), None);
    }
}
