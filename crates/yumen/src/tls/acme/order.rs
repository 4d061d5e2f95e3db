//! One ACME order: challenges, finalization, certificate.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use instant_acme::{
    Account, AuthorizationStatus, BodyWrapper, BytesResponse, ChallengeType, ExternalAccountKey, HttpClient,
    Identifier, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use yumen_config::node::{AcmeChallenge, ExternalAccount};

use super::coordinator::OrderLease;
use super::proof::{ChallengeProof, ChallengeResponder, ServedChallenge};
use super::storage::IssuedCertificate;
use crate::fetch;

/// HTTP transport to the ACME server.
#[derive(Clone)]
pub(super) struct AcmeTransport {
    tls: Arc<ClientConfig>,
}

impl AcmeTransport {
    /// Trusts the authorities in the file `ca`, or the system's if it is empty.
    pub(super) fn new(ca: &str) -> anyhow::Result<AcmeTransport> {
        let mut roots = RootCertStore::empty();
        match ca.is_empty() {
            // Some authorities in system stores do not parse; they must not disable the rest.
            true => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
            false => {
                let pem = std::fs::read(ca).with_context(|| format!("acme.ca: cannot read {ca}"))?;
                for certificate in CertificateDer::pem_slice_iter(&pem) {
                    roots.add(certificate.ok().with_context(|| format!("acme.ca: {ca} is not PEM"))?)?;
                }
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(AcmeTransport { tls: Arc::new(config) })
    }
}

impl HttpClient for AcmeTransport {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let tls = self.tls.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(never) => match never {},
            };
            let sent = fetch::send(
                Request::from_parts(head, Full::new(body)),
                Some(&tls),
                fetch::FetchBounds::SMALL,
            )
            .await;
            sent.map(BytesResponse::from)
                .map_err(|error| instant_acme::Error::Other(Box::new(AcmeRequestError(format!("{error:#}")))))
        })
    }
}

/// Error of a request without a response.
#[derive(Debug)]
struct AcmeRequestError(String);

impl fmt::Display for AcmeRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AcmeRequestError {}

/// Whether the server could not be reached or did not respond.
pub(super) fn is_unanswered(error: &anyhow::Error) -> bool {
    let mut errors = error.chain().filter_map(|error| error.downcast_ref::<instant_acme::Error>());
    errors.any(|error| matches!(error, instant_acme::Error::Other(inner) if inner.is::<AcmeRequestError>()))
}

/// External account binding key (RFC 8555 §7.3.4), if configured.
pub(super) fn external_account(settings: &ExternalAccount) -> anyhow::Result<Option<ExternalAccountKey>> {
    if settings.key_id.is_empty() {
        return Ok(None);
    }
    // Accepts both base64 alphabets, with or without padding.
    let key = settings.key.0.trim_end_matches('=').replace('+', "-").replace('/', "_");
    // The error of the library would quote a character of the key.
    let key = URL_SAFE_NO_PAD.decode(key).ok().context("acme.external_account.key is not base64")?;
    Ok(Some(ExternalAccountKey::new(settings.key_id.clone(), &key)))
}

/// Performs challenges.
pub(super) struct ChallengeProver<'k> {
    pub(super) challenge: AcmeChallenge,
    pub(super) screen: &'k ChallengeResponder,
    /// Order lease in a cluster: all nodes serve the challenge.
    pub(super) lease: Option<&'k OrderLease>,
}

/// A challenge that is being served, for its removal.
enum PublishedChallenge {
    Here(ServedChallenge),
    Everywhere(String),
}

/// Orders a certificate for these names.
pub(super) async fn certificate(
    account: &Account,
    names: &[String],
    prover: &ChallengeProver<'_>,
) -> anyhow::Result<IssuedCertificate> {
    let identifiers: Vec<Identifier> = names.iter().cloned().map(Identifier::Dns).collect();
    let mut order = account.new_order(&NewOrder::new(&identifiers)).await.context("the order")?;
    // Filled by `prove` even if it fails, so that all challenges are withdrawn.
    let mut shown = Vec::new();
    let proved = prove(&mut order, prover, &mut shown).await;
    // Withdraw the challenges even after a failure.
    prover.clear(shown).await;
    proved?;
    let mut params = CertificateParams::new(names)?;
    // The CSR must contain exactly the ordered identifiers (RFC 8555 §7.4): remove rcgen's default common
    // name.
    params.distinguished_name = DistinguishedName::new();
    // A new key for each certificate bounds the use of a stolen one.
    let key = KeyPair::generate()?;
    let request = params.serialize_request(&key)?;
    order.finalize_csr(request.der()).await.context("the signing request")?;
    let cert = order.poll_certificate(&RetryPolicy::default()).await.context("the certificate")?;
    Ok(IssuedCertificate { cert, key: key.serialize_pem() })
}

/// Completes the challenges of an order; records the served ones in `shown`.
async fn prove(
    order: &mut Order,
    prover: &ChallengeProver<'_>,
    shown: &mut Vec<PublishedChallenge>,
) -> anyhow::Result<()> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.context("an authorization")?;
        let name = authorization.identifier().to_string();
        match authorization.status {
            // The server may reuse a valid authorization of an earlier order.
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            other => bail!("the authorization of {name} is {other:?}"),
        }
        let kind = match prover.challenge {
            AcmeChallenge::Http01 => ChallengeType::Http01,
            AcmeChallenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
        };
        let mut challenge = authorization
            .challenge(kind)
            .with_context(|| format!("the server does not offer this challenge for {name}"))?;
        let proof = ChallengeProof {
            challenge: prover.challenge,
            name: name.clone(),
            token: challenge.token.clone(),
            key: challenge.key_authorization().as_str().to_owned(),
        };
        // Served before the server is asked to validate.
        prover.show(&proof, shown).await?;
        challenge.set_ready().await.with_context(|| format!("the challenge for {name}"))?;
    }
    match order.poll_ready(&RetryPolicy::default()).await {
        Ok(OrderStatus::Ready | OrderStatus::Valid) => Ok(()),
        Ok(other) => {
            let why = failure(order).await;
            bail!("the order is {other:?}{why}")
        }
        Err(error) => Err(error).context("the order"),
    }
}

/// Errors of the challenges, as reported by the server.
async fn failure(order: &mut Order) -> String {
    let mut text = String::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let name = authorization.identifier().to_string();
        let Ok(state) = authorization.refresh().await else { continue };
        for problem in state.challenges.iter().filter_map(|challenge| challenge.error.as_ref()) {
            text.push_str(&format!("; {name}: {problem}"));
        }
    }
    text
}

impl ChallengeProver<'_> {
    async fn show(&self, proof: &ChallengeProof, shown: &mut Vec<PublishedChallenge>) -> anyhow::Result<()> {
        match self.lease {
            None => shown.push(PublishedChallenge::Here(self.screen.show(proof).await?)),
            Some(lease) => {
                // Recorded before the wait, so that a failure withdraws the challenge as well.
                shown.push(PublishedChallenge::Everywhere(proof.token.clone()));
                lease.pin(proof).await?;
            }
        }
        Ok(())
    }

    async fn clear(&self, shown: Vec<PublishedChallenge>) {
        let mut here = Vec::new();
        for one in shown {
            match (one, self.lease) {
                (PublishedChallenge::Here(shown), _) => here.push(shown),
                (PublishedChallenge::Everywhere(token), Some(lease)) => lease.unpin(&token).await,
                (PublishedChallenge::Everywhere(_), None) => {}
            }
        }
        self.screen.clear(&here).await;
    }
}
