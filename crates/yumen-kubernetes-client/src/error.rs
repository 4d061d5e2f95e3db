//! Errors of requests to the API server, with the path and the repair in their text.

use thiserror::Error;

/// A failed request. Every text names the verb and the path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ApiError {
    /// No response: connection, TLS, timeout, or a body that ended early.
    #[error("{0}")]
    Unreachable(String),
    /// 401: the API server does not accept the credentials.
    #[error("{0}")]
    Unauthenticated(String),
    /// 403: the text names the RBAC rule that is missing.
    #[error("{0}")]
    Denied(String),
    /// 404: the object, or its kind, does not exist.
    #[error("{0}")]
    NotFound(String),
    /// 409: another writer changed the object, or it exists already.
    #[error("{0}")]
    Conflict(String),
    /// 410: the version or the page of the request is older than the history of the API server.
    #[error("{0}")]
    Gone(String),
    /// 429, or 503 with `Retry-After`.
    #[error("API server asks to retry after {after_ms} ms: {message}")]
    Throttled {
        /// Milliseconds from `Retry-After`, at most 300 000; 1 000 without the field.
        after_ms: u64,
        /// Verb, path and message.
        message: String,
    },
    /// Any other status.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// Verb, path and the message of the API server.
        message: String,
    },
    /// A response that is not the JSON of the Kubernetes API.
    #[error("{0}")]
    Malformed(String),
    /// Client settings that cannot work: kubeconfig, service account, certificate files.
    #[error("{0}")]
    Unusable(String),
}

/// The longest pause that a `Retry-After` causes, in milliseconds.
const RETRY_AFTER_MAX_MS: u64 = 300_000;
/// The most bytes of a response that an error text quotes.
const QUOTE_BYTES: usize = 512;

/// An RBAC verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiVerb {
    /// One object.
    Get,
    /// A collection.
    List,
    /// Changes of a collection.
    Watch,
    /// A new object.
    Create,
    /// A change of an object, or of its status.
    Patch,
    /// The removal of an object.
    Delete,
}

impl ApiVerb {
    /// The verb as RBAC rules spell it.
    pub fn name(self) -> &'static str {
        match self {
            ApiVerb::Get => "get",
            ApiVerb::List => "list",
            ApiVerb::Watch => "watch",
            ApiVerb::Create => "create",
            ApiVerb::Patch => "patch",
            ApiVerb::Delete => "delete",
        }
    }
}

/// The subject of a request, for error texts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestSubject<'s> {
    pub(crate) verb: ApiVerb,
    /// The path without query.
    pub(crate) path: &'s str,
    /// The API group; empty for core kinds.
    pub(crate) group: &'s str,
    /// The resource with its subresource, `gateways/status`; empty for discovery.
    pub(crate) resource: &'s str,
    /// The namespace, if the rule may be granted in one.
    pub(crate) namespace: Option<&'s str>,
}

impl RequestSubject<'_> {
    /// An error without a response.
    pub(crate) fn unreachable(&self, cause: &str) -> ApiError {
        ApiError::Unreachable(format!("{} {}: {cause}", self.verb.name(), self.path))
    }

    /// An error for a response body that is not understood.
    pub(crate) fn malformed(&self, cause: &str) -> ApiError {
        ApiError::Malformed(format!("{} {}: {cause}", self.verb.name(), self.path))
    }

    /// The error of a response with status `code`.
    ///
    /// `retry_after` is the field `Retry-After`; `body` is a `Status` object or any text of a proxy.
    pub(crate) fn refused(&self, code: u16, retry_after: Option<&str>, body: &[u8]) -> ApiError {
        let reason = status_message(body);
        let message = format!("{} {}: {code}: {reason}", self.verb.name(), self.path);
        match code {
            401 => ApiError::Unauthenticated(format!(
                "{message}; check the token or client certificate of the kubeconfig user or service account"
            )),
            403 => ApiError::Denied(format!("{message}; {}", self.missing_rule())),
            404 => ApiError::NotFound(message),
            409 => ApiError::Conflict(message),
            410 => ApiError::Gone(message),
            429 => ApiError::Throttled { after_ms: retry_after_ms(retry_after).unwrap_or(1000), message },
            503 => match retry_after_ms(retry_after) {
                Some(after_ms) => ApiError::Throttled { after_ms, message },
                None => ApiError::Refused { code, message },
            },
            _ => ApiError::Refused { code, message },
        }
    }

    fn missing_rule(&self) -> String {
        if self.resource.is_empty() {
            return "bind the ClusterRole system:discovery to this identity".to_owned();
        }
        let role = match self.namespace {
            Some(namespace) => format!("a Role in namespace {namespace} or a ClusterRole"),
            None => "a ClusterRole".to_owned(),
        };
        format!(
            "grant verb \"{}\" on resource \"{}\" of API group \"{}\" in {role}",
            self.verb.name(),
            self.resource,
            self.group
        )
    }
}

/// The member `message` of a `Status` object, else the start of the body.
fn status_message(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct StatusText {
        message: String,
    }
    if let Ok(status) = serde_json::from_slice::<StatusText>(body) {
        return status.message;
    }
    let quoted = &body[..body.len().min(QUOTE_BYTES)];
    let text = String::from_utf8_lossy(quoted);
    let text = text.trim();
    if text.is_empty() { "no message".to_owned() } else { text.escape_debug().to_string() }
}

/// Seconds of `Retry-After` as bounded milliseconds. A date counts as absent: API servers send seconds.
fn retry_after_ms(field: Option<&str>) -> Option<u64> {
    let seconds: u64 = field?.trim().parse().ok()?;
    Some(seconds.saturating_mul(1000).clamp(100, RETRY_AFTER_MAX_MS))
}

#[cfg(test)]
mod tests {
    use super::{ApiError, ApiVerb, RequestSubject};

    const SUBJECT: RequestSubject<'static> = RequestSubject {
        verb: ApiVerb::Patch,
        path: "/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways/edge/status",
        group: "gateway.networking.k8s.io",
        resource: "gateways/status",
        namespace: Some("shop"),
    };

    fn check(code: u16, retry_after: Option<&str>, body: &str, expected: &str) {
        assert_eq!(SUBJECT.refused(code, retry_after, body.as_bytes()).to_string(), expected);
    }

    #[test]
    fn denials_name_the_missing_rule() {
        check(
            403,
            None,
            r#"{"kind":"Status","message":"gateways is forbidden"}"#,
            "patch /apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways/edge/status: 403: gateways is forbidden; \
             grant verb \"patch\" on resource \"gateways/status\" of API group \"gateway.networking.k8s.io\" in a Role in \
             namespace shop or a ClusterRole",
        );
    }

    #[test]
    fn other_bodies_are_quoted() {
        check(
            502,
            None,
            "<html>\nbad\u{7} gateway",
            "patch /apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways/edge/status: 502: <html>\\nbad\\u{7} gateway",
        );
    }

    #[test]
    fn retry_after_is_bounded() {
        let after = |code, field| match SUBJECT.refused(code, field, b"") {
            ApiError::Throttled { after_ms, .. } => Some(after_ms),
            _ => None,
        };
        assert_eq!(after(429, Some("7")), Some(7000));
        assert_eq!(after(429, None), Some(1000));
        assert_eq!(after(429, Some("99999999999999999999")), Some(1000));
        assert_eq!(after(429, Some("18446744073709551615")), Some(300_000));
        assert_eq!(after(503, Some("2")), Some(2000));
        assert_eq!(after(503, None), None);
    }
}
