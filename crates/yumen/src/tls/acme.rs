//! Certificates from an ACME server (RFC 8555): ordered, stored, published and renewed.
//!
//! They are objects of the node itself: no configuration contains them, and no request waits for them. The
//! nodes of a cluster share orders and certificates through the `coordinator`.

mod coordinator;
mod order;
mod orders;
mod proof;
mod storage;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use instant_acme::{Account, AccountBuilder, AccountCredentials, ExternalAccountKey, NewAccount};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use yumen_base::Problem;
use yumen_config::node::{AcmeCertificate, AcmeConfig};
use yumen_config::{Kind, NodeConfig, Resource};
use yumen_proxy::tls::TlsAlpnChallenges;
use yumen_snapshot::compile::ConfigChange;
use yumen_store::{EtcdStore, open_keyring};

use super::now_unix_s;
use crate::control::{ControlHandle, ControlMessage, ProblemSource};
use coordinator::{AcmeCoordinator, OrderLease, ProofFollower};
use order::{AcmeTransport, ChallengeProver};
use proof::ChallengeResponder;
use storage::{AcmeStorage, IssuedCertificate};

pub(crate) use coordinator::ACME_SHARED_KEYS;
pub(crate) use orders::AcmeOrders;

/// First and maximum pause after a failure, in seconds. ACME servers limit failures.
const RETRY_S: u64 = 60;
const RETRY_MAX_S: u64 = 6 * 60 * 60;
/// Time for which other nodes do not repeat an order that the server has rejected.
const HELD: Duration = Duration::from_secs(RETRY_S);
/// Minimum and maximum pause between two checks for due certificates.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60 * 60);
/// Problem type for an unknown account (RFC 8555 §6.7).
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Manager of the node's ACME certificates.
pub(crate) struct AcmeManager {
    settings: AcmeConfig,
    disk: AcmeStorage,
    screen: ChallengeResponder,
    /// Coordination with the nodes of a cluster, and the follower that serves their challenges.
    coordinator: Option<Arc<AcmeCoordinator>>,
    follower: Option<ProofFollower>,
    orders: Arc<AcmeOrders>,
    transport: AcmeTransport,
    certificates: Vec<WantedCertificate>,
    /// Problem of a stored account that cannot be read; stays until the next start.
    lost_account: Option<Problem>,
}

/// A configured certificate.
struct WantedCertificate {
    names: Vec<String>,
    /// Id on disk, and as an ssl object.
    id: String,
    due: RenewalDue,
    failures: u32,
    problem: Option<Problem>,
    /// End of the current certificate, in seconds since the Unix epoch.
    until_s: Option<i64>,
}

/// Permission of this node to order a certificate.
enum OrderPermission {
    /// No other node shares the store.
    Standalone,
    Granted(OrderLease),
    /// Another node is ordering, or was rejected.
    Denied,
}

/// Time of the next attempt for a certificate.
#[derive(Debug, Clone, Copy)]
enum RenewalDue {
    /// Wall clock time of the renewal, in seconds since the Unix epoch.
    At(i64),
    /// Monotonic time of a retry: a wrong wall clock may have caused the failure.
    Again(Instant),
    /// Monotonic time of a retry, after the new certificate was due for renewal at once by the wall clock.
    Late { renewal_unix_s: i64, again: Instant },
}

impl RenewalDue {
    /// Time left until the attempt; zero if it is due.
    fn left(self, unix_s: i64, now: Instant) -> Duration {
        match self {
            RenewalDue::At(at_unix_s) => Duration::from_secs(at_unix_s.saturating_sub(unix_s).max(0) as u64),
            RenewalDue::Again(at) | RenewalDue::Late { again: at, .. } => at.saturating_duration_since(now),
        }
    }
}

impl WantedCertificate {
    fn new(directory: &str, certificate: &AcmeCertificate) -> WantedCertificate {
        let names: Vec<String> = certificate.names.iter().map(|name| name.to_ascii_lowercase()).collect();
        let id = storage::id_of(directory, &names);
        WantedCertificate { names, id, due: RenewalDue::At(0), failures: 0, problem: None, until_s: None }
    }

    /// Records a certificate that was issued earlier.
    fn found(&mut self, validity: CertificateValidity) {
        (self.due, self.until_s) = (RenewalDue::At(validity.renewal()), Some(validity.until_s));
    }

    /// Records a certificate that was just issued, on any node.
    fn fetched(&mut self, validity: CertificateValidity, directory: &str) {
        (self.due, self.problem) = (validity.due(now_unix_s(), Instant::now()), None);
        (self.failures, self.until_s) = (0, Some(validity.until_s));
        if let RenewalDue::Late { again, .. } = self.due {
            let object = format!("ssls/{}", self.id);
            let message = format!(
                "the certificate just fetched from {directory} is due for renewal already, by this node's clock"
            );
            let pause_s = again.saturating_duration_since(Instant::now()).as_secs();
            let hint = format!("is the clock right? it is fetched again in {pause_s} s");
            self.problem = Some(Problem::warning(object, "cert", message).hint(hint));
        }
    }

    /// Pause after a further failure. `waited` is the time for which other nodes wait: the pause is clearly
    /// longer, so that another node makes the next attempt.
    fn pause(&self, waited: Duration) -> Duration {
        // The shift is bounded, so that many failures cannot overflow it.
        let pause_s = RETRY_S.saturating_mul(1 << self.failures.min(16)).min(RETRY_MAX_S);
        // Random offset: nodes that failed together must not retry together.
        let jitter_s = getrandom::u64().unwrap_or_default() % (RETRY_S / 2);
        waited + Duration::from_secs(pause_s + jitter_s)
    }

    fn is_due(&self) -> bool {
        self.due.left(now_unix_s(), Instant::now()).is_zero()
    }

    /// After a clock correction, a renewal that seemed late is scheduled by the wall clock again.
    fn adjust_after_clock_change(&mut self, unix_s: i64) {
        if let RenewalDue::Late { renewal_unix_s, .. } = self.due
            // The clock was ahead when the certificate was fetched.
            && unix_s < renewal_unix_s
        {
            (self.due, self.problem) = (RenewalDue::At(renewal_unix_s), None);
        }
    }
}

impl AcmeManager {
    /// Publishes the certificates stored on disk.
    pub(crate) fn open(
        node: &NodeConfig,
        control: &ControlHandle,
        challenges: &Arc<TlsAlpnChallenges>,
        orders: &Arc<AcmeOrders>,
    ) -> anyhow::Result<AcmeManager> {
        let data_dir = Path::new(&node.store.data_dir);
        let keyring = open_keyring(data_dir, &node.store.keyring)?;
        // Published from disk before the server is called: a start must not depend on the server.
        let mut manager = AcmeManager {
            disk: AcmeStorage::open(&data_dir.join("acme"), keyring)?,
            transport: AcmeTransport::new(&node.acme.ca)?,
            screen: ChallengeResponder { control: control.clone(), challenges: challenges.clone() },
            coordinator: None,
            follower: None,
            orders: orders.clone(),
            certificates: node
                .acme
                .certificates
                .iter()
                .map(|one| WantedCertificate::new(&node.acme.directory, one))
                .collect(),
            settings: node.acme.clone(),
            lost_account: None,
        };
        let mut changes = Vec::new();
        for certificate in &mut manager.certificates {
            // An unreadable certificate is ordered anew.
            let known = manager.disk.certificate(&certificate.id).inspect_err(|error| {
                tracing::warn!(
                    error = format!("{error:#}"),
                    id = certificate.id,
                    "stored certificate cannot be read"
                );
            });
            if let Some(issued) = known.ok().flatten() {
                certificate.found(CertificateValidity::of(&issued.cert)?);
                changes.push(put(certificate, &issued));
            }
        }
        if !changes.is_empty() {
            let _ = control.messages.send(ControlMessage::LocalObjects(changes, None));
        }
        Ok(manager)
    }

    /// Joins the coordination of the cluster: adopts its certificates and serves its challenges, then
    /// returns.
    pub(crate) fn share(
        &mut self,
        node: &NodeConfig,
        store: &EtcdStore,
        runtime: &Runtime,
    ) -> anyhow::Result<()> {
        let keyring = open_keyring(Path::new(&node.store.data_dir), &node.store.keyring)?;
        let seals = !node.store.keyring.is_empty();
        let coordinator = Arc::new(AcmeCoordinator::new(store.board(), &store.node_id()?, keyring, seals));
        let mut follower = ProofFollower::new(coordinator.clone(), self.screen.clone());
        self.coordinator = Some(coordinator);
        // Served before the first order of this node: other nodes may be waiting for its acknowledgement.
        runtime.block_on(async {
            follower.look().await;
            for at in 0..self.certificates.len() {
                self.adopt(at, |certificate, validity, _| certificate.found(validity)).await;
            }
        });
        self.follower = Some(follower);
        Ok(())
    }

    /// Orders missing certificates, renews due ones, and serves the challenges of other nodes; never returns.
    pub(crate) async fn tend(mut self) {
        match self.follower.take() {
            None => self.fetch_all().await,
            Some(follower) => {
                tokio::join!(follower.run(), self.fetch_all());
            }
        }
    }

    async fn fetch_all(mut self) {
        // Registered or loaded at the first order only: without due certificates the server is not called.
        let mut account = None;
        let mut moves = self.coordinator.as_ref().map(|coordinator| coordinator.moves());
        self.offer_saved().await;
        loop {
            for at in 0..self.certificates.len() {
                // Before the check: another node may have renewed the certificate.
                self.adopt(at, WantedCertificate::fetched).await;
                self.certificates[at].adjust_after_clock_change(now_unix_s());
                if self.certificates[at].is_due() {
                    self.process_certificate(at, &mut account).await;
                }
            }
            let _ = self
                .screen
                .control
                .messages
                .send(ControlMessage::Problems(ProblemSource::Acme, self.problems()));
            let (unix_s, now) = (now_unix_s(), Instant::now());
            let next = self.certificates.iter().map(|certificate| certificate.due.left(unix_s, now)).min();
            // The maximum bounds the effect of a changed wall clock, which no timer notices.
            let pause = next.unwrap_or(PAUSE_MAX).clamp(PAUSE_MIN, PAUSE_MAX);
            tokio::time::sleep(PAUSE_MIN).await;
            tokio::select! {
                () = tokio::time::sleep(pause - PAUSE_MIN) => {}
                () = moved(&mut moves) => {}
            }
        }
    }

    fn problems(&self) -> Vec<Problem> {
        let of_certificates = self.certificates.iter().filter_map(|certificate| certificate.problem.clone());
        self.lost_account.iter().cloned().chain(self.closed()).chain(of_certificates).collect()
    }

    /// Problem if this node cannot decrypt the shared data.
    fn closed(&self) -> Option<Problem> {
        let (coordinator, account) =
            (self.coordinator.as_ref()?, storage::id_of(&self.settings.directory, &[]));
        let mut ids = self.certificates.iter().map(|certificate| &certificate.id).chain([&account]);
        let error = ids.find_map(|id| coordinator.text(id).err())?;
        let hint = "it is left as it is and this node orders for itself; if no node can open it any more, delete it in etcd";
        Some(Problem::warning("acme", "", format!("{error:#}")).hint(hint))
    }

    /// Publishes local certificates and the account if the cluster has none: this node may have been
    /// standalone before.
    async fn offer_saved(&self) {
        let Some(coordinator) = &self.coordinator else { return };
        let account = storage::id_of(&self.settings.directory, &[]);
        for id in self.certificates.iter().map(|certificate| &certificate.id).chain([&account]) {
            // Only if the cluster has nothing: a text that cannot be opened may be good on other nodes.
            if let (Ok(Some(text)), Ok(None)) = (self.disk.text(id), coordinator.text(id))
                && let Err(error) = coordinator.keep_first(id, &text).await
            {
                tracing::warn!(
                    error = format!("{error:#}"),
                    id,
                    "certificate cannot be shared with other nodes"
                );
            }
        }
    }

    /// Adopts the shared certificate if it is valid for longer than the current one; records it through
    /// `note`.
    async fn adopt(
        &mut self,
        at: usize,
        note: impl FnOnce(&mut WantedCertificate, CertificateValidity, &str),
    ) {
        let (Some(coordinator), certificate) = (&self.coordinator, &mut self.certificates[at]) else {
            return;
        };
        let Some(text) = coordinator.text(&certificate.id).ok().flatten() else { return };
        let read = IssuedCertificate::read(&text)
            .and_then(|issued| Ok((CertificateValidity::of(&issued.cert)?, issued)));
        let Ok((validity, issued)) = read else { return };
        // The certificate with the later end wins, so two nodes never exchange theirs back and forth.
        if certificate.until_s.is_some_and(|until_s| until_s >= validity.until_s) {
            return;
        }
        // A failure is no reason to serve without it; the copy on disk serves the next start only.
        if let Err(error) = self.disk.keep_certificate(&certificate.id, &issued) {
            tracing::warn!(error = format!("{error:#}"), "certificate of another node cannot be stored");
        }
        tracing::info!(names = ?certificate.names, "certificate received from another node");
        note(certificate, validity, &self.settings.directory);
        let change = put(certificate, &issued);
        let _ = self.screen.apply_local_objects(vec![change]).await;
    }

    /// Requests the permission to order a certificate now.
    async fn leave(&mut self, at: usize) -> anyhow::Result<OrderPermission> {
        let Some(coordinator) = self.coordinator.clone() else { return Ok(OrderPermission::Standalone) };
        // Another node was rejected recently; a repetition would count towards the server's limits.
        if coordinator.is_refused_by_other(&self.certificates[at].id) {
            return Ok(OrderPermission::Denied);
        }
        let Some(lease) = coordinator.acquire_order_lease().await? else {
            return Ok(OrderPermission::Denied);
        };
        // The previous holder of the lease may have fetched this certificate.
        self.adopt(at, WantedCertificate::fetched).await;
        if self.certificates[at].is_due() {
            return Ok(OrderPermission::Granted(lease));
        }
        lease.end().await;
        Ok(OrderPermission::Denied)
    }

    async fn process_certificate(&mut self, at: usize, account: &mut Option<Account>) {
        // During a handover no order begins; the certificate stays due in either process.
        let Some(_under_way) = self.orders.begin() else { return };
        let mut waited = Duration::ZERO;
        let outcome = match self.leave(at).await {
            // The certificate stays due and is looked at again with the next change of the shared keys.
            Ok(OrderPermission::Denied) => return,
            Ok(OrderPermission::Standalone) => self.fetch(at, account, None).await,
            Ok(OrderPermission::Granted(lease)) => {
                let outcome = self.fetch(at, account, Some(&lease)).await;
                // A network failure of this node may not affect others, so it does not make them wait.
                if outcome.as_ref().is_err_and(|error| !order::is_unanswered(error)) {
                    waited = HELD;
                    self.announce_failure(at).await;
                }
                lease.end().await;
                outcome
            }
            Err(error) => Err(error),
        };
        let certificate = &mut self.certificates[at];
        match outcome {
            Ok(validity) => {
                tracing::info!(names = ?certificate.names, "certificate issued");
                certificate.fetched(validity, &self.settings.directory);
            }
            Err(error) => {
                // The account caches the directory, whose URLs may have changed: load it again next time.
                *account = None;
                let message = format!("no certificate from {}: {error:#}", self.settings.directory);
                tracing::error!(names = ?certificate.names, error = format!("{error:#}"), "certificate order failed");
                let pause = certificate.pause(waited);
                certificate.failures += 1;
                certificate.due = RenewalDue::Again(Instant::now() + pause);
                let object = format!("ssls/{}", certificate.id);
                let hint = format!("tried again in {} s", pause.as_secs());
                certificate.problem = Some(Problem::warning(object, "cert", message).hint(hint));
            }
        }
    }

    /// Makes the other nodes wait before they try this order.
    async fn announce_failure(&self, at: usize) {
        let Some(coordinator) = &self.coordinator else { return };
        if let Err(error) = coordinator.publish_failure(&self.certificates[at].id, HELD).await {
            tracing::debug!(error = format!("{error:#}"), "order failure not published to other nodes");
        }
    }

    /// Orders one certificate, stores and publishes it; returns its validity.
    async fn fetch(
        &mut self,
        at: usize,
        account: &mut Option<Account>,
        lease: Option<&OrderLease>,
    ) -> anyhow::Result<CertificateValidity> {
        let known = match account {
            Some(account) => account,
            None => account.insert(self.account().await.context("the account")?),
        };
        let certificate = &self.certificates[at];
        let prover = ChallengeProver { challenge: self.settings.challenge, screen: &self.screen, lease };
        let mut issued = order::certificate(known, &certificate.names, &prover).await;
        // Once per attempt: the replacement is known to the server (decision 23).
        if let Err(error) = &issued
            && has_no_account(error)
        {
            let (directory, error) = (&self.settings.directory, format!("{error:#}"));
            tracing::warn!(directory, error, "ACME account unknown to the server, registering a new one");
            let other =
                self.replacement_account().await.context("another account, as the one kept is unknown")?;
            issued = order::certificate(account.insert(other), &certificate.names, &prover).await;
        }
        let issued = issued?;
        // Stored before it is published: a crash must not lose a certificate that counts towards the server's limits.
        self.disk.keep_certificate(&certificate.id, &issued)?;
        self.screen.apply_local_objects(vec![put(certificate, &issued)]).await?;
        if let Some(coordinator) = &self.coordinator
            && let Err(error) = coordinator.keep(&certificate.id, &issued.text()).await
        {
            tracing::warn!(error = format!("{error:#}"), "certificate not published to other nodes");
        }
        CertificateValidity::of(&issued.cert)
    }

    /// Loads the stored account, or registers a new one.
    async fn account(&mut self) -> anyhow::Result<Account> {
        match self.credentials() {
            Ok(Some(credentials)) => Ok(self.builder().from_credentials(credentials).await?),
            Ok(None) => self.register().await,
            // The keyring is lost. Waiting would let all certificates expire (decision 23).
            Err(error) if storage::is_damage(&error) => {
                self.report_lost_account(&error);
                self.register().await
            }
            Err(error) => Err(error),
        }
    }

    /// Credentials from the disk, or else from the cluster.
    fn credentials(&self) -> anyhow::Result<Option<AccountCredentials>> {
        let saved = self.disk.text(&storage::id_of(&self.settings.directory, &[]));
        // This node may be new to the cluster.
        let saved = match (saved, self.shared_account()) {
            (Ok(None), Some(shared)) => Some(shared),
            (Err(error), Some(shared)) if storage::is_damage(&error) => Some(shared),
            (saved, _) => saved?,
        };
        Ok(saved.map(|saved| serde_json::from_str(&saved)).transpose()?)
    }

    fn shared_account(&self) -> Option<String> {
        self.coordinator.as_ref()?.text(&storage::id_of(&self.settings.directory, &[])).ok()?
    }

    /// Replacement for an account that the server does not know: the account of the cluster if it differs, or
    /// a new one.
    async fn replacement_account(&self) -> anyhow::Result<Account> {
        let id = storage::id_of(&self.settings.directory, &[]);
        let saved = self.disk.text(&id)?;
        // Another node may have registered the replacement already.
        match self.shared_account().filter(|shared| saved.as_ref() != Some(shared)) {
            None => self.register().await,
            Some(shared) => {
                self.disk.set_aside(&id)?;
                self.disk.keep(&id, &shared)?;
                Ok(self.builder().from_credentials(serde_json::from_str(&shared)?).await?)
            }
        }
    }

    fn report_lost_account(&mut self, error: &anyhow::Error) {
        let (directory, error) = (&self.settings.directory, format!("{error:#}"));
        tracing::warn!(directory, error, "ACME account cannot be read, registering a new one");
        let message = format!("the account kept for {directory} cannot be read: {error}");
        let hint = "a new account is registered; the old one is renamed to `.before`";
        self.lost_account = Some(Problem::warning("acme", "", message).hint(hint));
    }

    /// Registers a new account. The file of an earlier one is renamed only after that.
    async fn register(&self) -> anyhow::Result<Account> {
        let id = storage::id_of(&self.settings.directory, &[]);
        let contact: Vec<&str> = self.settings.contact.iter().map(String::as_str).collect();
        let new =
            NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let tied = order::external_account(&self.settings.external_account)?;
        let tied: Option<ExternalAccountKey> = tied;
        let made = self.builder().create(&new, self.settings.directory.clone(), tied.as_ref()).await;
        let (account, credentials) = made?;
        // The old account is renamed and not deleted: its keyring may be found again.
        self.disk.set_aside(&id)?;
        let text = serde_json::to_string(&credentials)?;
        // Stored before it is shared, so that this node never uses an account that it could lose.
        self.disk.keep(&id, &text)?;
        if let Some(coordinator) = &self.coordinator {
            coordinator.keep(&id, &text).await?;
        }
        Ok(account)
    }

    fn builder(&self) -> AccountBuilder {
        Account::builder_with_http(Box::new(self.transport.clone()))
    }
}

/// Waits for a change of the shared keys; for ever without a cluster.
async fn moved(news: &mut Option<watch::Receiver<u64>>) {
    if let Some(news) = news
        && news.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Ids of the ssl objects that a node with these settings orders.
pub(crate) fn fetched(node: &NodeConfig) -> Arc<[Box<str>]> {
    let all = node.acme.certificates.iter();
    all.map(|one| WantedCertificate::new(&node.acme.directory, one).id.into()).collect()
}

/// Whether the server does not know the account, for instance after it was rebuilt. A deactivated account has
/// another error (RFC 8555 §7.3.6) and stays deactivated.
fn has_no_account(error: &anyhow::Error) -> bool {
    // The library's error may be anywhere in the chain of contexts.
    let mut errors = error.chain().filter_map(|error| error.downcast_ref::<instant_acme::Error>());
    errors.any(|error| match error {
        instant_acme::Error::Api(problem) => problem.r#type.as_deref() == Some(NO_ACCOUNT),
        _ => false,
    })
}

/// The certificate as an ssl object of the node.
fn put(certificate: &WantedCertificate, issued: &IssuedCertificate) -> ConfigChange {
    let value = json!({ "snis": certificate.names, "cert": issued.cert, "key": issued.key });
    ConfigChange::Put(Resource::new(Kind::Ssls, &certificate.id, &value))
}

/// Validity of a certificate, in seconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
struct CertificateValidity {
    from_s: i64,
    until_s: i64,
}

impl CertificateValidity {
    fn of(pem: &str) -> anyhow::Result<CertificateValidity> {
        // The first certificate of the chain is the server's.
        let leaf =
            CertificateDer::from_pem_slice(pem.as_bytes()).ok().context("the certificate is not PEM")?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&leaf)?;
        let validity = parsed.validity();
        Ok(CertificateValidity {
            from_s: validity.not_before.timestamp(),
            until_s: validity.not_after.timestamp(),
        })
    }

    fn life_s(self) -> i64 {
        self.until_s.saturating_sub(self.from_s).max(0)
    }

    /// Time of renewal: after two thirds of the lifetime.
    fn renewal(self) -> i64 {
        // A third of the lifetime leaves time for retries.
        self.until_s - self.life_s() / 3
    }

    /// Time of the next attempt after a certificate was issued: at the renewal time, but not before a third
    /// of the remaining validity. If the renewal is due at once, either the clock is wrong or the server
    /// issues such certificates, so the retry uses the monotonic clock.
    fn due(self, unix_s: i64, now: Instant) -> RenewalDue {
        let (renewal_unix_s, left_s) = (self.renewal(), self.until_s.saturating_sub(unix_s));
        if unix_s < renewal_unix_s {
            return RenewalDue::At(renewal_unix_s.max(unix_s + left_s / 3));
        }
        let third_s = |span_s: i64| (span_s / 3) as u64;
        // If it seems expired, only the clock can be wrong: count from its whole lifetime.
        let pause_s = third_s(if left_s > 0 { left_s } else { self.life_s() });
        let least_s = third_s(self.life_s()).clamp(RETRY_S, RETRY_MAX_S);
        RenewalDue::Late { renewal_unix_s, again: now + Duration::from_secs(pause_s.max(least_s)) }
    }
}

#[cfg(test)]
mod tests;
