//! Challenge proofs, and how this node serves them.

use std::sync::Arc;

use anyhow::{Context, bail};
use aws_lc_rs::digest::{SHA256, digest};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::oneshot;
use yumen_config::node::AcmeChallenge;
use yumen_config::{Kind, Resource};
use yumen_proxy::tls::{TlsAlpnChallenge, TlsAlpnChallenges};
use yumen_snapshot::compile::ConfigChange;

use crate::control::{ControlHandle, ControlMessage};

/// Challenge data as the server expects it; not secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChallengeProof {
    pub(super) challenge: AcmeChallenge,
    pub(super) name: String,
    pub(super) token: String,
    /// Key authorization (RFC 8555 §8.1).
    pub(super) key: String,
}

/// A served challenge, for its removal.
#[derive(Debug)]
pub(super) enum ServedChallenge {
    Route(String),
    Certificate(TlsAlpnChallenge),
}

/// Serves challenges on this node.
#[derive(Clone)]
pub(super) struct ChallengeResponder {
    pub(super) control: ControlHandle,
    pub(super) challenges: Arc<TlsAlpnChallenges>,
}

impl ChallengeProof {
    /// Rejects a token with characters outside base64url: it becomes part of a path.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if self.token.is_empty() || !self.token.bytes().all(is_plain) {
            bail!("invalid ACME token for {}", self.name);
        }
        Ok(())
    }
}

impl ChallengeResponder {
    /// Publishes objects of the node and waits until they are active.
    pub(super) async fn apply_local_objects(&self, changes: Vec<ConfigChange>) -> anyhow::Result<()> {
        let (done, published) = oneshot::channel();
        let sent = self.control.messages.send(ControlMessage::LocalObjects(changes, Some(done)));
        sent.ok().context("the gateway is ending")?;
        published.await.context("the gateway is ending")
    }

    pub(super) async fn show(&self, proof: &ChallengeProof) -> anyhow::Result<ServedChallenge> {
        proof.check()?;
        let ChallengeProof { name, token, key, .. } = proof;
        match proof.challenge {
            AcmeChallenge::Http01 => {
                let id = format!("acme-challenge-{token}");
                let route = json!({
                    "uri": format!("/.well-known/acme-challenge/{token}"),
                    "hosts": [name],
                    "priority": i32::MAX,
                    // Global rules may require keys, redirect or block addresses, and the ACME server must
                    // get the response as is.
                    "skip_global_rules": true,
                    "plugins": { "mocking": {
                        "content_type": "text/plain",
                        "response_example": key,
                        "with_mock_header": false,
                    } },
                });
                self.apply_local_objects(vec![ConfigChange::Put(Resource::new(Kind::Routes, &id, &route))])
                    .await?;
                Ok(ServedChallenge::Route(id))
            }
            AcmeChallenge::TlsAlpn01 => {
                let mut params = CertificateParams::new(vec![name.clone()])?;
                // RFC 8737 §3: the acmeIdentifier extension contains the digest of the key authorization.
                let key_digest = digest(&SHA256, key.as_bytes());
                params.custom_extensions = vec![CustomExtension::new_acme_identifier(key_digest.as_ref())];
                let own = KeyPair::generate()?;
                let certificate = params.self_signed(&own)?;
                let put = self.challenges.put(name, &certificate.pem(), &own.serialize_pem());
                put.map(ServedChallenge::Certificate).map_err(|error| anyhow::anyhow!(error))
            }
        }
    }

    pub(super) async fn clear(&self, shown: &[ServedChallenge]) {
        let mut withdrawn = Vec::new();
        for one in shown {
            match one {
                ServedChallenge::Route(id) => {
                    withdrawn.push(ConfigChange::Delete(Kind::Routes, id.as_str().into()))
                }
                ServedChallenge::Certificate(challenge) => self.challenges.remove(challenge),
            }
        }
        if !withdrawn.is_empty() {
            // Fails only if the gateway is ending, which also ends the routes.
            let _ = self.apply_local_objects(withdrawn).await;
        }
    }
}
