//! Conditions on the client certificate of a connection.

use yumen_config::InvalidSettings;
use yumen_config::resource::ClientCertificateSpec;
use yumen_plugin::{ClientCertVerdict, Exchange, LocalResponse, PatternOptions, RegexPattern};

/// Compiled conditions.
#[derive(Debug)]
pub(crate) struct CertificateRules {
    is_required: bool,
    subject: Option<RegexPattern>,
    error_page: Option<Box<str>>,
}

impl CertificateRules {
    /// Compiles the conditions.
    pub(crate) fn build(written: &ClientCertificateSpec) -> Result<CertificateRules, InvalidSettings> {
        let subject = written.subject_pattern.as_ref().map(|pattern| {
            RegexPattern::new(pattern, PatternOptions::default()).map_err(|reason| {
                let path = "access.client_certificate.subject_pattern";
                InvalidSettings::at(path, format!("\"{pattern}\": {reason}"))
            })
        });
        Ok(CertificateRules {
            is_required: written.required,
            subject: subject.transpose()?,
            error_page: written.error_page.as_deref().map(Box::from),
        })
    }

    /// The refusal of a request; `None` if its connection fulfils the conditions. A connection without TLS has no
    /// certificate.
    pub(crate) fn refusal(&self, ex: &Exchange<'_>) -> Option<LocalResponse> {
        let tls = ex.client.tls();
        let is_valid = tls.is_some_and(|tls| tls.verdict == ClientCertVerdict::Verified);
        if self.is_required && !is_valid {
            if let Some(page) = &self.error_page {
                return Some(LocalResponse::status(302).field("Location", page));
            }
            let message = match tls.map(|tls| &tls.verdict) {
                Some(ClientCertVerdict::Failed(_)) => "the SSL certificate error",
                _ => "no required SSL certificate was sent",
            };
            return Some(LocalResponse::error_msg(400, message));
        }
        let pattern = self.subject.as_ref()?;
        let certificate = tls.and_then(|tls| tls.certificate.as_deref());
        let subject = certificate.map_or("", |certificate| &certificate.subject);
        let is_match = ex.decided(pattern.is_match(subject.as_bytes(), ex.budget()));
        (!is_match).then(|| LocalResponse::error_msg(403, "client certificate unauthorized"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use yumen_base::Now;
    use yumen_config::resource::AccessSpec;
    use yumen_plugin::{ClientCertificate, ClientInfo, ConsumerIndex, RequestHead, TlsInfo};

    use super::*;
    use crate::testing::CountingHost;

    /// Checks status and location of the refusal of a connection with this verdict; 0 admits it.
    fn check(rules: Value, verdict: Option<ClientCertVerdict>, expected: (u16, &str)) {
        let access: AccessSpec = serde_json::from_value(json!({ "client_certificate": rules })).unwrap();
        let compiled = CertificateRules::build(&access.client_certificate.unwrap()).unwrap();
        let is_presented = verdict.as_ref().is_some_and(|verdict| *verdict != ClientCertVerdict::Absent);
        let certificate =
            ClientCertificate { subject: "CN=ada,O=Shop".into(), ..ClientCertificate::default() };
        let tls = verdict.clone().map(|verdict| TlsInfo {
            verdict,
            certificate: is_presented.then(|| Arc::new(certificate)),
            ..TlsInfo::default()
        });
        let client = ClientInfo {
            peer: "192.0.2.7:4711".parse().unwrap(),
            local: "198.51.100.1:443".parse().unwrap(),
            tls,
            connection_id: 1,
            listener: Default::default(),
            mapped_port: 0,
        };
        let (host, consumers) = (CountingHost::default(), ConsumerIndex::default());
        let ex = Exchange::new(RequestHead::default(), &client, Now::default(), &host, &consumers);
        let refused = compiled.refusal(&ex);
        let location = refused.as_ref().and_then(|response| response.fields().get("Location"));
        let location = String::from_utf8_lossy(location.unwrap_or_default()).into_owned();
        let status = refused.as_ref().map_or(0, |response| response.status);
        assert_eq!((status, &*location), expected, "{rules} {verdict:?}");
    }

    #[test]
    fn a_connection_without_the_required_certificate_is_refused_or_led_elsewhere() {
        let failed = || Some(ClientCertVerdict::Failed("expired".into()));
        for (verdict, expected) in [
            (None, 400),
            (Some(ClientCertVerdict::Absent), 400),
            (failed(), 400),
            (Some(ClientCertVerdict::Verified), 0),
        ] {
            check(json!({ "required": true }), verdict, (expected, ""));
        }
        let page = json!({ "required": true, "error_page": "https://a.example/cert" });
        check(page.clone(), failed(), (302, "https://a.example/cert"));
        check(page, Some(ClientCertVerdict::Verified), (0, ""));
    }

    #[test]
    fn the_subject_has_to_match() {
        let rules = json!({ "subject_pattern": "CN=(ada|bob)" });
        check(rules.clone(), Some(ClientCertVerdict::Verified), (0, ""));
        check(json!({ "subject_pattern": "CN=eve" }), Some(ClientCertVerdict::Verified), (403, ""));
        check(rules.clone(), Some(ClientCertVerdict::Absent), (403, ""));
        check(rules, None, (403, ""));
    }
}
