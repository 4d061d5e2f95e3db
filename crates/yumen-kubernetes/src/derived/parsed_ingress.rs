//! An Ingress with its annotations read, as the units of hosts and upstreams see it.

use std::sync::Arc;

use crate::ingress_nginx::IngressSettings;
use crate::model::{IngressObject, ObjectKey};

/// A served Ingress.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ParsedIngress {
    pub(crate) key: ObjectKey,
    pub(crate) object: Arc<IngressObject>,
    pub(crate) settings: IngressSettings,
    /// Why this version is not taken. Its routes are marked, so that their last good versions stay in force.
    pub(crate) refusal: Option<String>,
}

impl ParsedIngress {
    pub(crate) fn is_canary(&self) -> bool {
        self.settings.canary.is_some()
    }

    /// Whether the hosts of the Ingress have TLS: the certificate may be missing.
    pub(crate) fn has_tls(&self) -> bool {
        !self.object.spec.tls.is_empty()
    }
}
