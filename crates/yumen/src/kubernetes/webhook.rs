//! The admission webhook: its listener, its certificate, and the queue of reviews for the controller.
//!
//! The listener decodes reviews; the controller judges each between two changes of the cluster, on the translation in
//! force. Nothing is stored or published.

mod certificate_keeper;
mod issued_identity;
mod resource_checker;
mod served_identity;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::time::Instant;
use yumen_admin::{WebhookAnswer, WebhookHandler, serve_webhook};
use yumen_base::Now;
use yumen_config::NodeConfig;
use yumen_config::node::{WebhookConfig, listen_address};
use yumen_kubernetes::ingress_nginx::WebhookFlags;
use yumen_kubernetes::{AdmissionFindings, ClusterTranslator, ReviewSubject, ReviewedObject, read_review};
use yumen_kubernetes_client::{ApiClient, LeaseView};

use super::controller_status::WritesEnd;

pub(super) use certificate_keeper::CertificateKeeper;
use resource_checker::ResourceChecker;
use served_identity::ServedIdentity;

/// Reviews that wait for the controller.
const REVIEWS_MAX: usize = 64;
/// Bound on the wait for the controller, below the `timeoutSeconds` of 3 that the chart sets.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(2500);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A review that waits for the controller. Without an answer, the objects of the cluster are not known yet.
pub(super) struct PendingReview {
    pub(super) reviewed: Box<ReviewedObject>,
    pub(super) answer: oneshot::Sender<AdmissionFindings>,
}

/// The reviews for the controller. A controller that follows another one takes over the queue.
pub(super) type ReviewQueue = Arc<Mutex<mpsc::Receiver<PendingReview>>>;

/// The parts of the webhook that the controller uses.
#[derive(Clone)]
pub(super) struct WebhookParts {
    pub(super) reviews: ReviewQueue,
    checker: Arc<ResourceChecker>,
    /// `None` while the webhook is off.
    served: Option<ServedWebhook>,
}

impl WebhookParts {
    /// Judges a review on the translation in force.
    pub(super) fn answer(&self, pending: PendingReview, translator: &mut ClusterTranslator, now: Now) {
        let PendingReview { reviewed, answer } = pending;
        let findings = translator.review(&reviewed, now, &|kind, value| self.checker.check(kind, value));
        if !findings.refusals.is_empty() {
            tracing::info!(object = %reviewed.object.key(), reasons = ?findings.refusals, "object refused");
        }
        // The API server may have given up.
        let _ = answer.send(findings);
    }

    /// Starts the task that keeps the certificate, if the webhook is served.
    pub(super) fn keep_certificate(
        &self,
        client: &ApiClient,
        lease: &LeaseView,
        namespace: &str,
    ) -> Option<CertificateKeeper> {
        let webhook = self.served.as_ref()?;
        Some(CertificateKeeper::start(webhook, client.clone(), lease.clone(), namespace.to_owned()))
    }
}

/// The webhook that is served.
#[derive(Clone)]
pub(super) struct ServedWebhook {
    settings: WebhookConfig,
    identity: Arc<ServedIdentity>,
}

/// Waits for the next review, and not before `rested_at`.
pub(super) async fn next_review(
    reviews: &mut mpsc::Receiver<PendingReview>,
    rested_at: Instant,
) -> Option<PendingReview> {
    tokio::time::sleep_until(rested_at).await;
    reviews.recv().await
}

/// Starts the webhook if the settings or flags ask for it. The listener ends with the writes of this process, so that a
/// successor answers.
///
/// # Errors
///
/// The address cannot be bound.
pub(super) fn start(
    node: &NodeConfig,
    flags: &WebhookFlags,
    ended: watch::Receiver<Option<WritesEnd>>,
) -> anyhow::Result<WebhookParts> {
    let (sender, reviews) = mpsc::channel(REVIEWS_MAX);
    let settings = effective_settings(&node.kubernetes.webhook, flags);
    let mut parts = WebhookParts {
        reviews: Arc::new(Mutex::new(reviews)),
        checker: Arc::new(ResourceChecker::new(node)),
        served: None,
    };
    if !settings.enabled {
        return Ok(parts);
    }
    if !node.kubernetes.take_over {
        tracing::info!("admission webhook off while kubernetes.take_over is off");
        return Ok(parts);
    }
    let address = listen_address(&settings.listen)
        .with_context(|| format!("kubernetes.webhook.listen: \"{}\" is no address", settings.listen))?;
    let listener =
        bind(address).with_context(|| format!("cannot listen on {address} (kubernetes.webhook)"))?;
    let identity = Arc::new(ServedIdentity::default());
    let config = identity.server_config().context("kubernetes.webhook")?;
    tracing::info!(%address, "admission webhook listens");
    tokio::spawn(serve_webhook(listener, Arc::new(config), handler(sender), handed_over(ended)));
    parts.served = Some(ServedWebhook { settings, identity });
    Ok(parts)
}

/// The settings of the node, with those of ingress-nginx's flags.
fn effective_settings(written: &WebhookConfig, flags: &WebhookFlags) -> WebhookConfig {
    let mut settings = written.clone();
    if let Some(listen) = &flags.listen {
        settings.enabled = true;
        settings.listen = listen.to_string();
    }
    if let (Some(certificate), Some(key)) = (&flags.certificate, &flags.key) {
        (settings.certificate, settings.key) = (certificate.to_string(), key.to_string());
    }
    settings
}

/// A socket that a successor of this process can bind, too.
fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    // Without it an answer of several writes waits for the delayed ACK of the client.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Completes when a successor of this process answers.
async fn handed_over(mut ended: watch::Receiver<Option<WritesEnd>>) {
    if ended.wait_for(|end| *end == Some(WritesEnd::HandedOver)).await.is_err() {
        // Without a sender the process ends.
        std::future::pending::<()>().await;
    }
}

fn handler(reviews: mpsc::Sender<PendingReview>) -> WebhookHandler {
    Arc::new(move |body| {
        let reviews = reviews.clone();
        Box::pin(async move { answer(&body, &reviews).await })
    })
}

async fn answer(body: &Bytes, reviews: &mpsc::Sender<PendingReview>) -> WebhookAnswer {
    let mut question = match read_review(body) {
        Ok(question) => question,
        Err(defect) => return WebhookAnswer::Malformed(defect.to_string()),
    };
    let findings = match std::mem::replace(&mut question.subject, ReviewSubject::Exempt) {
        ReviewSubject::Exempt => AdmissionFindings::default(),
        ReviewSubject::Undecodable(reason) => AdmissionFindings::refused(reason),
        ReviewSubject::Object(reviewed) => match judge(reviewed, reviews).await {
            Ok(findings) => findings,
            Err(reason) => return WebhookAnswer::Unavailable(reason.to_owned()),
        },
    };
    WebhookAnswer::Review(findings.answer(&question))
}

/// Waits for the judgment of the controller.
async fn judge(
    reviewed: Box<ReviewedObject>,
    reviews: &mpsc::Sender<PendingReview>,
) -> Result<AdmissionFindings, &'static str> {
    let (answer, judged) = oneshot::channel();
    if reviews.try_send(PendingReview { reviewed, answer }).is_err() {
        return Err("too many reviews wait");
    }
    match tokio::time::timeout(ANSWER_TIMEOUT, judged).await {
        Ok(Ok(findings)) => Ok(findings),
        Ok(Err(_)) => Err("the objects of the cluster are not known yet"),
        Err(_) => Err("the controller is busy"),
    }
}
