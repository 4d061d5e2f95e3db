//! Certificates from an ACME server (RFC 8555): fetched, kept on disk, put in force, renewed.
//!
//! They are objects of the node itself: no configuration holds them, and no request waits for any of this. Nodes of a
//! cluster fetch them together (`commons`).

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

pub(crate) use coordinator::BOARD;
pub(crate) use orders::AcmeOrders;

/// After a failure, at first and at most. Authorities count failures and refuse those who insist.
const RETRY_S: u64 = 60;
const RETRY_MAX_S: u64 = 6 * 60 * 60;
/// So long other nodes do not try what the authority has refused one of them.
const HELD: Duration = Duration::from_secs(RETRY_S);
/// What is due is looked for at most and at least so often.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60 * 60);
/// What a server answers that has no such account (RFC 8555 §6.7).
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Keeps the node's ACME certificates.
pub(crate) struct AcmeManager {
    settings: AcmeConfig,
    disk: AcmeStorage,
    screen: ChallengeResponder,
    /// What the nodes of a cluster share, and what shows here what they pin up.
    commons: Option<Arc<AcmeCoordinator>>,
    follower: Option<ProofFollower>,
    orders: Arc<AcmeOrders>,
    transport: AcmeTransport,
    wanted: Vec<WantedCertificate>,
    /// That an account was kept and cannot be read, until the next start.
    lost_account: Option<Problem>,
}

/// A certificate of the configuration.
struct WantedCertificate {
    names: Vec<String>,
    /// Its id on disk and as an ssl object.
    id: String,
    due: RenewalDue,
    failures: u32,
    problem: Option<Problem>,
    /// When the one in force ends, in seconds since the Unix epoch.
    until_s: Option<i64>,
}

/// Whether this node may order.
enum OrderPermission {
    /// There is nobody else.
    Standalone,
    Granted(OrderLease),
    /// Another node does, or has.
    Denied,
}

/// When to see to a certificate next.
#[derive(Debug, Clone, Copy)]
enum RenewalDue {
    /// By the wall clock, as its own dates are, in seconds since the Unix epoch.
    At(i64),
    /// After a failure, by the clock that nobody sets: it may have failed because the other one was wrong.
    Again(Instant),
    /// After a certificate was fetched that is due already, for the same reason.
    Late { renewal_unix_s: i64, again: Instant },
}

impl RenewalDue {
    /// How long that is from now; nothing where it is due.
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

    /// Notes that it was fetched some time ago.
    fn found(&mut self, validity: CertificateValidity) {
        (self.due, self.until_s) = (RenewalDue::At(validity.renewal()), Some(validity.until_s));
    }

    /// Notes that it was fetched just now, by whichever node.
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

    /// How long to wait after one more failure, which holds other nodes for so long: clearly longer than they do, since
    /// the next try is theirs.
    fn pause(&self, held: Duration) -> Duration {
        let pause_s = RETRY_S.saturating_mul(1 << self.failures.min(16)).min(RETRY_MAX_S);
        // Nodes that failed together do not try again together.
        let apart_s = getrandom::u64().unwrap_or_default() % (RETRY_S / 2);
        held + Duration::from_secs(pause_s + apart_s)
    }

    fn is_due(&self) -> bool {
        self.due.left(now_unix_s(), Instant::now()).is_zero()
    }

    /// What seemed late is not where the clock was wrong and has been set since.
    fn adjust_after_clock_change(&mut self, unix_s: i64) {
        if let RenewalDue::Late { renewal_unix_s, .. } = self.due
            && unix_s < renewal_unix_s
        {
            (self.due, self.problem) = (RenewalDue::At(renewal_unix_s), None);
        }
    }
}

impl AcmeManager {
    /// Puts in force what was fetched before.
    pub(crate) fn open(
        node: &NodeConfig,
        control: &ControlHandle,
        challenges: &Arc<TlsAlpnChallenges>,
        orders: &Arc<AcmeOrders>,
    ) -> anyhow::Result<AcmeManager> {
        let data_dir = Path::new(&node.store.data_dir);
        let keyring = open_keyring(data_dir, &node.store.keyring)?;
        let mut keeper = AcmeManager {
            disk: AcmeStorage::open(&data_dir.join("acme"), keyring)?,
            transport: AcmeTransport::new(&node.acme.ca)?,
            screen: ChallengeResponder { control: control.clone(), challenges: challenges.clone() },
            commons: None,
            follower: None,
            orders: orders.clone(),
            wanted: node
                .acme
                .certificates
                .iter()
                .map(|one| WantedCertificate::new(&node.acme.directory, one))
                .collect(),
            settings: node.acme.clone(),
            lost_account: None,
        };
        let mut changes = Vec::new();
        for wanted in &mut keeper.wanted {
            // What cannot be read is fetched anew.
            let known = keeper.disk.certificate(&wanted.id).inspect_err(|error| {
                tracing::warn!(
                    error = format!("{error:#}"),
                    id = wanted.id,
                    "stored certificate cannot be read"
                );
            });
            if let Some(issued) = known.ok().flatten() {
                wanted.found(CertificateValidity::of(&issued.cert)?);
                changes.push(put(wanted, &issued));
            }
        }
        if !changes.is_empty() {
            let _ = control.messages.send(ControlMessage::LocalObjects(changes, None));
        }
        Ok(keeper)
    }

    /// Has it fetch together with the other nodes of the store. What they have, and what they show, is in force then.
    pub(crate) fn share(
        &mut self,
        node: &NodeConfig,
        store: &EtcdStore,
        runtime: &Runtime,
    ) -> anyhow::Result<()> {
        let keyring = open_keyring(Path::new(&node.store.data_dir), &node.store.keyring)?;
        let seals = !node.store.keyring.is_empty();
        let commons = Arc::new(AcmeCoordinator::new(store.board(), &store.node_id()?, keyring, seals));
        let mut follower = ProofFollower::new(commons.clone(), self.screen.clone());
        self.commons = Some(commons);
        runtime.block_on(async {
            follower.look().await;
            for at in 0..self.wanted.len() {
                self.adopt(at, |wanted, validity, _| wanted.found(validity)).await;
            }
        });
        self.follower = Some(follower);
        Ok(())
    }

    /// Fetches what is missing and renews what is due, and shows what other nodes want shown; for ever.
    pub(crate) async fn tend(mut self) {
        match self.follower.take() {
            None => self.fetch_all().await,
            Some(follower) => {
                tokio::join!(follower.run(), self.fetch_all());
            }
        }
    }

    async fn fetch_all(mut self) {
        let mut account = None;
        let mut moves = self.commons.as_ref().map(|commons| commons.moves());
        self.offer_kept().await;
        loop {
            for at in 0..self.wanted.len() {
                self.adopt(at, WantedCertificate::fetched).await;
                self.wanted[at].adjust_after_clock_change(now_unix_s());
                if self.wanted[at].is_due() {
                    self.process_certificate(at, &mut account).await;
                }
            }
            // The control thread ends with the process.
            let _ = self
                .screen
                .control
                .messages
                .send(ControlMessage::Problems(ProblemSource::Acme, self.problems()));
            let (unix_s, now) = (now_unix_s(), Instant::now());
            let next = self.wanted.iter().map(|wanted| wanted.due.left(unix_s, now)).min();
            let pause = next.unwrap_or(PAUSE_MAX).clamp(PAUSE_MIN, PAUSE_MAX);
            tokio::time::sleep(PAUSE_MIN).await;
            tokio::select! {
                () = tokio::time::sleep(pause - PAUSE_MIN) => {}
                () = moved(&mut moves) => {}
            }
        }
    }

    fn problems(&self) -> Vec<Problem> {
        let of_certificates = self.wanted.iter().filter_map(|wanted| wanted.problem.clone());
        self.lost_account.iter().cloned().chain(self.closed()).chain(of_certificates).collect()
    }

    /// That what the nodes share cannot be opened here.
    fn closed(&self) -> Option<Problem> {
        let (commons, account) = (self.commons.as_ref()?, storage::id_of(&self.settings.directory, &[]));
        let mut ids = self.wanted.iter().map(|wanted| &wanted.id).chain([&account]);
        let error = ids.find_map(|id| commons.text(id).err())?;
        let hint = "it is left as it is and this node orders for itself; if no node can open it any more, delete it in etcd";
        Some(Problem::warning("acme", "", format!("{error:#}")).hint(hint))
    }

    /// Gives the other nodes what this one has, where they have nothing: it was alone before.
    async fn offer_kept(&self) {
        let Some(commons) = &self.commons else { return };
        let account = storage::id_of(&self.settings.directory, &[]);
        for id in self.wanted.iter().map(|wanted| &wanted.id).chain([&account]) {
            if let (Ok(Some(text)), Ok(None)) = (self.disk.text(id), commons.text(id))
                && let Err(error) = commons.keep_first(id, &text).await
            {
                tracing::warn!(
                    error = format!("{error:#}"),
                    id,
                    "certificate cannot be shared with other nodes"
                );
            }
        }
    }

    /// Takes over what another node has fetched, where it holds longer than what is in force here; `note` notes it.
    async fn adopt(
        &mut self,
        at: usize,
        note: impl FnOnce(&mut WantedCertificate, CertificateValidity, &str),
    ) {
        let (Some(commons), wanted) = (&self.commons, &mut self.wanted[at]) else { return };
        // What cannot be opened is told as a problem.
        let Some(text) = commons.text(&wanted.id).ok().flatten() else { return };
        let read = IssuedCertificate::read(&text)
            .and_then(|issued| Ok((CertificateValidity::of(&issued.cert)?, issued)));
        let Ok((validity, issued)) = read else { return };
        if wanted.until_s.is_some_and(|until_s| until_s >= validity.until_s) {
            return;
        }
        if let Err(error) = self.disk.keep_certificate(&wanted.id, &issued) {
            tracing::warn!(error = format!("{error:#}"), "certificate of another node cannot be stored");
        }
        tracing::info!(names = ?wanted.names, "certificate received from another node");
        note(wanted, validity, &self.settings.directory);
        let change = put(wanted, &issued);
        // It fails only when the gateway ends.
        let _ = self.screen.apply_local_objects(vec![change]).await;
    }

    /// Whether this node may order a certificate now.
    async fn leave(&mut self, at: usize) -> anyhow::Result<OrderPermission> {
        let Some(commons) = self.commons.clone() else { return Ok(OrderPermission::Standalone) };
        if commons.is_refused_elsewhere(&self.wanted[at].id) {
            return Ok(OrderPermission::Denied);
        }
        let Some(turn) = commons.turn().await? else { return Ok(OrderPermission::Denied) };
        // Whose turn it was before may have fetched it.
        self.adopt(at, WantedCertificate::fetched).await;
        if self.wanted[at].is_due() {
            return Ok(OrderPermission::Granted(turn));
        }
        turn.end().await;
        Ok(OrderPermission::Denied)
    }

    async fn process_certificate(&mut self, at: usize, account: &mut Option<Account>) {
        // While another process takes over it stays due, here or there.
        let Some(_under_way) = self.orders.begin() else { return };
        let mut held = Duration::ZERO;
        let outcome = match self.leave(at).await {
            Ok(OrderPermission::Denied) => return,
            Ok(OrderPermission::Standalone) => self.fetch(at, account, None).await,
            Ok(OrderPermission::Granted(turn)) => {
                let outcome = self.fetch(at, account, Some(&turn)).await;
                // What keeps the authority from this node may let others reach it.
                if outcome.as_ref().is_err_and(|error| !order::is_unanswered(error)) {
                    held = HELD;
                    self.announce_failure(at).await;
                }
                turn.end().await;
                outcome
            }
            Err(error) => Err(error),
        };
        let wanted = &mut self.wanted[at];
        match outcome {
            Ok(validity) => {
                tracing::info!(names = ?wanted.names, "certificate issued");
                wanted.fetched(validity, &self.settings.directory);
            }
            Err(error) => {
                // It knows the server's addresses, which may have changed: the next attempt asks for them again.
                *account = None;
                let message = format!("no certificate from {}: {error:#}", self.settings.directory);
                tracing::error!(names = ?wanted.names, error = format!("{error:#}"), "certificate order failed");
                let pause = wanted.pause(held);
                wanted.failures += 1;
                wanted.due = RenewalDue::Again(Instant::now() + pause);
                let object = format!("ssls/{}", wanted.id);
                let hint = format!("tried again in {} s", pause.as_secs());
                wanted.problem = Some(Problem::warning(object, "cert", message).hint(hint));
            }
        }
    }

    /// Has the other nodes wait a while.
    async fn announce_failure(&self, at: usize) {
        let Some(commons) = &self.commons else { return };
        if let Err(error) = commons.publish_failure(&self.wanted[at].id, HELD).await {
            tracing::debug!(error = format!("{error:#}"), "order failure not published to other nodes");
        }
    }

    /// Fetches one certificate, keeps it and puts it in force; says when it holds.
    async fn fetch(
        &mut self,
        at: usize,
        account: &mut Option<Account>,
        turn: Option<&OrderLease>,
    ) -> anyhow::Result<CertificateValidity> {
        let known = match account {
            Some(account) => account,
            None => account.insert(self.account().await.context("the account")?),
        };
        let wanted = &self.wanted[at];
        let prover = ChallengeProver { challenge: self.settings.challenge, screen: &self.screen, turn };
        let mut issued = order::certificate(known, &wanted.names, &prover).await;
        if let Err(error) = &issued
            && has_no_account(error)
        {
            let (directory, error) = (&self.settings.directory, format!("{error:#}"));
            tracing::warn!(directory, error, "ACME account unknown to the server, registering a new one");
            let other =
                self.replacement_account().await.context("another account, as the one kept is unknown")?;
            issued = order::certificate(account.insert(other), &wanted.names, &prover).await;
        }
        let issued = issued?;
        self.disk.keep_certificate(&wanted.id, &issued)?;
        self.screen.apply_local_objects(vec![put(wanted, &issued)]).await?;
        if let Some(commons) = &self.commons
            && let Err(error) = commons.keep(&wanted.id, &issued.text()).await
        {
            tracing::warn!(error = format!("{error:#}"), "certificate not published to other nodes");
        }
        CertificateValidity::of(&issued.cert)
    }

    /// The account kept on disk, or a new one.
    async fn account(&mut self) -> anyhow::Result<Account> {
        match self.credentials() {
            Ok(Some(credentials)) => Ok(self.builder().from_credentials(credentials).await?),
            Ok(None) => self.register().await,
            Err(error) if storage::is_damage(&error) => {
                self.report_lost_account(&error);
                self.register().await
            }
            Err(error) => Err(error),
        }
    }

    /// Of the account kept on disk, or else by the other nodes.
    fn credentials(&self) -> anyhow::Result<Option<AccountCredentials>> {
        let kept = self.disk.text(&storage::id_of(&self.settings.directory, &[]));
        let kept = match (kept, self.shared_account()) {
            (Ok(None), Some(shared)) => Some(shared),
            (Err(error), Some(shared)) if storage::is_damage(&error) => Some(shared),
            (kept, _) => kept?,
        };
        Ok(kept.map(|kept| serde_json::from_str(&kept)).transpose()?)
    }

    fn shared_account(&self) -> Option<String> {
        self.commons.as_ref()?.text(&storage::id_of(&self.settings.directory, &[])).ok()?
    }

    /// In place of an account the server does not know: what another node has in its place already, or a new one.
    async fn replacement_account(&self) -> anyhow::Result<Account> {
        let id = storage::id_of(&self.settings.directory, &[]);
        let kept = self.disk.text(&id)?;
        match self.shared_account().filter(|shared| kept.as_ref() != Some(shared)) {
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

    /// A new account. One kept before is set aside, once there is another.
    async fn register(&self) -> anyhow::Result<Account> {
        let id = storage::id_of(&self.settings.directory, &[]);
        let contact: Vec<&str> = self.settings.contact.iter().map(String::as_str).collect();
        let new =
            NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let tied = order::external_account(&self.settings.external_account)?;
        let tied: Option<ExternalAccountKey> = tied;
        let made = self.builder().create(&new, self.settings.directory.clone(), tied.as_ref()).await;
        let (account, credentials) = made?;
        self.disk.set_aside(&id)?;
        let text = serde_json::to_string(&credentials)?;
        self.disk.keep(&id, &text)?;
        if let Some(commons) = &self.commons {
            commons.keep(&id, &text).await?;
        }
        Ok(account)
    }

    fn builder(&self) -> AccountBuilder {
        Account::builder_with_http(Box::new(self.transport.clone()))
    }
}

/// Returns when other nodes have something new to say.
async fn moved(news: &mut Option<watch::Receiver<u64>>) {
    if let Some(news) = news
        && news.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Ids of the ssl objects whose certificates a node of this configuration fetches.
pub(crate) fn fetched(node: &NodeConfig) -> Arc<[Box<str>]> {
    let all = node.acme.certificates.iter();
    all.map(|one| WantedCertificate::new(&node.acme.directory, one).id.into()).collect()
}

/// Whether the server refused because it has no such account: it was built anew, say. An account that was
/// deactivated is refused otherwise (RFC 8555 §7.3.6); whoever did that meant it.
fn has_no_account(error: &anyhow::Error) -> bool {
    let mut errors = error.chain().filter_map(|error| error.downcast_ref::<instant_acme::Error>());
    errors.any(|error| match error {
        instant_acme::Error::Api(problem) => problem.r#type.as_deref() == Some(NO_ACCOUNT),
        _ => false,
    })
}

/// The certificate as an object of the node.
fn put(wanted: &WantedCertificate, issued: &IssuedCertificate) -> ConfigChange {
    let value = json!({ "snis": wanted.names, "cert": issued.cert, "key": issued.key });
    ConfigChange::Put(Resource::new(Kind::Ssls, &wanted.id, &value))
}

/// When a certificate holds, in seconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
struct CertificateValidity {
    from_s: i64,
    until_s: i64,
}

impl CertificateValidity {
    fn of(pem: &str) -> anyhow::Result<CertificateValidity> {
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

    /// When it is due for renewal: a third of its life before its end, however long that life is.
    fn renewal(self) -> i64 {
        self.until_s - self.life_s() / 3
    }

    /// When to see to it next, fetched just now: the next one would be no other, so a part of the time it has left is
    /// waited for. One that is due already has none that could be relied on: either the clock is wrong, or the authority
    /// gives out such certificates.
    fn due(self, unix_s: i64, now: Instant) -> RenewalDue {
        let (renewal_unix_s, left_s) = (self.renewal(), self.until_s.saturating_sub(unix_s));
        if unix_s < renewal_unix_s {
            return RenewalDue::At(renewal_unix_s.max(unix_s + left_s / 3));
        }
        let third_s = |span_s: i64| (span_s / 3) as u64;
        // By any clock that is right, one that has ended was given out with all its life before it.
        let pause_s = third_s(if left_s > 0 { left_s } else { self.life_s() });
        let least_s = third_s(self.life_s()).clamp(RETRY_S, RETRY_MAX_S);
        RenewalDue::Late { renewal_unix_s, again: now + Duration::from_secs(pause_s.max(least_s)) }
    }
}

#[cfg(test)]
mod tests;
