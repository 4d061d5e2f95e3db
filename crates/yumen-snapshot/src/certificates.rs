//! Compiled certificates, and the search for the one of a server name.

use std::any::Any;
use std::sync::Arc;

use regex::bytes::RegexSet;

/// A compiled certificate object.
pub struct CompiledCertificate {
    /// The id of the object.
    pub id: Box<str>,
    /// Key pairs in the order written, loaded by the TLS implementation.
    pub keys: Box<[Arc<dyn Any + Send + Sync>]>,
    /// Handshake rules beyond the node's settings, loaded by the TLS implementation.
    pub rules: Option<Arc<dyn Any + Send + Sync>>,
    /// The requests that need a client certificate.
    pub client: Option<ClientCertPolicy>,
}

impl CompiledCertificate {
    /// The same keys under the handshake rules and client policy of another object.
    pub(crate) fn under_rules_of(&self, ruling: &CompiledCertificate) -> CompiledCertificate {
        CompiledCertificate {
            id: self.id.clone(),
            keys: self.keys.clone(),
            rules: ruling.rules.clone(),
            client: ruling.client.clone(),
        }
    }
}

/// The requests that need a valid client certificate.
#[derive(Debug, Clone)]
pub struct ClientCertPolicy {
    /// Patterns of the paths that need none. Without patterns the handshake itself requires the certificate.
    pub(crate) skip: RegexSet,
}

impl ClientCertPolicy {
    /// Whether a request for this path is served without a certificate.
    pub fn skips(&self, path: &[u8]) -> bool {
        self.skip.is_match(path)
    }
}

/// By name in lower case; a wildcard as `*.example.com`, the default as `*`.
pub(crate) type Certificates = imbl::GenericHashMap<
    Box<str>,
    Arc<CompiledCertificate>,
    foldhash::fast::RandomState,
    imbl::shared_ptr::DefaultSharedPtr,
>;

/// The certificate for a server name in lower case, with the name that matched.
pub(crate) fn find_certificate<'c>(
    all: &'c Certificates,
    sni: &str,
) -> Option<(&'c str, &'c Arc<CompiledCertificate>)> {
    let wildcard = || {
        // Only the first label is replaced: a wildcard stands for one label.
        let (_, parent) = sni.split_once('.')?;
        all.get_key_value(format!("*.{parent}").as_str())
    };
    let found = all.get_key_value(sni).or_else(wildcard).or_else(|| all.get_key_value("*"));
    found.map(|(name, certificate)| (&**name, certificate))
}
