//! Verdicts on BackendTLSPolicies. The units of `policy` write them, those of `routes` and `upstreams` read them.

use std::sync::Arc;

/// The result of one policy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PolicyOutput {
    pub(crate) verdict: PolicyVerdict,
}

/// Whether backends get TLS by a policy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PolicyVerdict {
    Valid(Arc<BackendTlsRules>),
    /// The policy targets the backend and cannot be followed: requests are refused, never sent in clear text.
    Invalid(String),
}

/// TLS towards a backend.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BackendTlsRules {
    /// PEM; `None`: the trust anchors of the system.
    pub(crate) authorities: Option<Arc<str>>,
    /// Server name to send, and to verify unless `names` has entries.
    pub(crate) server_name: Arc<str>,
    /// Names of which the certificate must have one: `dns:` or `uri:` and the value.
    pub(crate) names: Vec<Arc<str>>,
}
