//! What proves a name to an ACME server, and where this node shows it.

use std::sync::Arc;

use anyhow::{Context, bail};
use aws_lc_rs::digest::{SHA256, digest};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::oneshot;
use yumen_config::node::AcmeChallenge;
use yumen_config::{Kind, Resource};
use yumen_proxy::tls::{Challenge, Challenges};
use yumen_snapshot::compile::Change;

use crate::control::{Control, Message};

/// What the server looks for; no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Proof {
    pub(super) challenge: AcmeChallenge,
    pub(super) name: String,
    pub(super) token: String,
    /// The key authorization.
    pub(super) key: String,
}

/// What is shown, to be taken away again.
#[derive(Debug)]
pub(super) enum Shown {
    Route(String),
    Certificate(Challenge),
}

/// Where this node shows proofs.
#[derive(Clone)]
pub(super) struct Screen {
    pub(super) control: Control,
    pub(super) challenges: Arc<Challenges>,
}

impl Proof {
    /// Refuses what could not be shown: its token becomes part of a path.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if self.token.is_empty() || !self.token.bytes().all(is_plain) {
            bail!("the server's token for {} is none", self.name);
        }
        Ok(())
    }
}

impl Screen {
    /// Puts objects of the node in force.
    pub(super) async fn put_in_force(&self, changes: Vec<Change>) -> anyhow::Result<()> {
        let (tell, told) = oneshot::channel();
        let sent = self.control.messages.send(Message::Own(changes, Some(tell)));
        sent.ok().context("the gateway is ending")?;
        told.await.context("the gateway is ending")
    }

    pub(super) async fn show(&self, proof: &Proof) -> anyhow::Result<Shown> {
        proof.check()?;
        let Proof { name, token, key, .. } = proof;
        match proof.challenge {
            AcmeChallenge::Http01 => {
                let id = format!("acme-challenge-{token}");
                let route = json!({
                    "uri": format!("/.well-known/acme-challenge/{token}"),
                    "hosts": [name],
                    "priority": i32::MAX,
                    // They may ask for keys, send elsewhere or refuse addresses; the server of ACME follows nothing.
                    "skip_global_rules": true,
                    "plugins": { "mocking": {
                        "content_type": "text/plain",
                        "response_example": key,
                        "with_mock_header": false,
                    } },
                });
                self.put_in_force(vec![Change::Put(Resource::new(Kind::Routes, &id, &route))]).await?;
                Ok(Shown::Route(id))
            }
            AcmeChallenge::TlsAlpn01 => {
                let mut params = CertificateParams::new(vec![name.clone()])?;
                // RFC 8737 §3: the digest of the key authorization.
                let told = digest(&SHA256, key.as_bytes());
                params.custom_extensions = vec![CustomExtension::new_acme_identifier(told.as_ref())];
                let own = KeyPair::generate()?;
                let certificate = params.self_signed(&own)?;
                let put = self.challenges.put(name, &certificate.pem(), &own.serialize_pem());
                put.map(Shown::Certificate).map_err(|error| anyhow::anyhow!(error))
            }
        }
    }

    pub(super) async fn clear(&self, shown: &[Shown]) {
        let mut gone = Vec::new();
        for one in shown {
            match one {
                Shown::Route(id) => gone.push(Change::Delete(Kind::Routes, id.as_str().into())),
                Shown::Certificate(challenge) => self.challenges.remove(challenge),
            }
        }
        if !gone.is_empty() {
            // It fails only when the gateway ends, and with it what was shown.
            let _ = self.put_in_force(gone).await;
        }
    }
}
