//! Certificates from an ACME server (RFC 8555): fetched, kept on disk, put in force, renewed.
//!
//! They are objects of the node itself: no store holds them, and no request waits for any of this.

mod disk;
mod order;
mod orders;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use instant_acme::{Account, AccountBuilder, AccountCredentials, ExternalAccountKey, NewAccount};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use yumen_base::Problem;
use yumen_config::node::{Acme, AcmeCertificate};
use yumen_config::{Kind, NodeConfig, Resource};
use yumen_proxy::tls::Challenges;
use yumen_snapshot::compile::Change;
use yumen_store::open_keyring;

use super::now_unix_s;
use crate::control::{Control, Message, Teller};
use disk::{Disk, Issued};
use order::{Prover, Transport};

pub(crate) use orders::Orders;

/// After a failure, at first and at most. Authorities count failures and refuse those who insist.
const RETRY_S: u64 = 60;
const RETRY_MAX_S: u64 = 6 * 60 * 60;
/// What is due is looked for at most and at least so often.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60 * 60);
/// What a server answers that has no such account (RFC 8555 §6.7).
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Keeps the node's ACME certificates.
pub(crate) struct Keeper {
    settings: Acme,
    disk: Disk,
    control: Control,
    challenges: Arc<Challenges>,
    orders: Arc<Orders>,
    transport: Transport,
    wanted: Vec<Wanted>,
    /// That an account was kept and cannot be read, until the next start.
    lost_account: Option<Problem>,
}

/// A certificate of the configuration.
struct Wanted {
    names: Vec<String>,
    /// Its id on disk and as an ssl object.
    id: String,
    due: Due,
    failures: u32,
    problem: Option<Problem>,
}

/// When to see to a certificate next.
#[derive(Debug, Clone, Copy)]
enum Due {
    /// By the wall clock, as its own dates are, in seconds since the Unix epoch.
    At(i64),
    /// After a failure, by the clock that nobody sets: it may have failed because the other one was wrong.
    Again(Instant),
    /// After a certificate was fetched that is due already, for the same reason.
    Late { renewal_unix_s: i64, again: Instant },
}

impl Due {
    /// How long that is from now; nothing where it is due.
    fn left(self, unix_s: i64, now: Instant) -> Duration {
        match self {
            Due::At(at_unix_s) => Duration::from_secs(at_unix_s.saturating_sub(unix_s).max(0) as u64),
            Due::Again(at) | Due::Late { again: at, .. } => at.saturating_duration_since(now),
        }
    }
}

impl Wanted {
    fn new(directory: &str, certificate: &AcmeCertificate) -> Wanted {
        let names: Vec<String> = certificate.names.iter().map(|name| name.to_ascii_lowercase()).collect();
        let id = disk::id_of(directory, &names);
        Wanted { names, id, due: Due::At(0), failures: 0, problem: None }
    }

    /// Notes that it was fetched just now.
    fn fetched(&mut self, validity: Validity, directory: &str) {
        (self.due, self.problem) = (validity.due(now_unix_s(), Instant::now()), None);
        self.failures = 0;
        tracing::info!(names = ?self.names, "certificate fetched");
        if let Due::Late { again, .. } = self.due {
            let object = format!("ssls/{}", self.id);
            let message = format!(
                "the certificate just fetched from {directory} is due for renewal already, by this node's clock"
            );
            let pause_s = again.saturating_duration_since(Instant::now()).as_secs();
            let hint = format!("is the clock right? it is fetched again in {pause_s} s");
            self.problem = Some(Problem::warning(object, "cert", message).hint(hint));
        }
    }

    /// What seemed late is not where the clock was wrong and has been set since.
    fn look_at_clock(&mut self, unix_s: i64) {
        if let Due::Late { renewal_unix_s, .. } = self.due
            && unix_s < renewal_unix_s
        {
            (self.due, self.problem) = (Due::At(renewal_unix_s), None);
        }
    }
}

impl Keeper {
    /// Puts in force what was fetched before.
    pub(crate) fn open(
        node: &NodeConfig,
        control: &Control,
        challenges: &Arc<Challenges>,
        orders: &Arc<Orders>,
    ) -> anyhow::Result<Keeper> {
        let data_dir = Path::new(&node.store.data_dir);
        let keyring = open_keyring(data_dir, &node.store.keyring)?;
        let mut keeper = Keeper {
            disk: Disk::open(&data_dir.join("acme"), keyring)?,
            transport: Transport::new(&node.acme.ca)?,
            control: control.clone(),
            challenges: challenges.clone(),
            orders: orders.clone(),
            wanted: node.acme.certificates.iter().map(|one| Wanted::new(&node.acme.directory, one)).collect(),
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
                    "a kept certificate cannot be read"
                );
            });
            if let Some(issued) = known.ok().flatten() {
                wanted.due = Due::At(Validity::of(&issued.cert)?.renewal());
                changes.push(put(wanted, &issued));
            }
        }
        if !changes.is_empty() {
            let _ = control.messages.send(Message::Own(changes, None));
        }
        Ok(keeper)
    }

    /// Fetches what is missing and renews what is due, for ever.
    pub(crate) async fn tend(mut self) {
        let mut account = None;
        loop {
            for at in 0..self.wanted.len() {
                self.wanted[at].look_at_clock(now_unix_s());
                if self.wanted[at].due.left(now_unix_s(), Instant::now()).is_zero() {
                    self.see_to(at, &mut account).await;
                }
            }
            let of_certificates = self.wanted.iter().filter_map(|wanted| wanted.problem.clone());
            let problems = self.lost_account.iter().cloned().chain(of_certificates).collect();
            // The control thread ends with the process.
            let _ = self.control.messages.send(Message::Told(Teller::Acme, problems));
            let (unix_s, now) = (now_unix_s(), Instant::now());
            let next = self.wanted.iter().map(|wanted| wanted.due.left(unix_s, now)).min();
            tokio::time::sleep(next.unwrap_or(PAUSE_MAX).clamp(PAUSE_MIN, PAUSE_MAX)).await;
        }
    }

    async fn see_to(&mut self, at: usize, account: &mut Option<Account>) {
        // While another process takes over it stays due, here or there.
        let Some(_under_way) = self.orders.begin() else { return };
        let outcome = self.fetch(at, account).await;
        let wanted = &mut self.wanted[at];
        match outcome {
            Ok(validity) => wanted.fetched(validity, &self.settings.directory),
            Err(error) => {
                // It knows the server's addresses, which may have changed: the next attempt asks for them again.
                *account = None;
                let message = format!("no certificate from {}: {error:#}", self.settings.directory);
                tracing::error!(names = ?wanted.names, error = format!("{error:#}"), "certificate not fetched");
                let pause_s = RETRY_S.saturating_mul(1 << wanted.failures.min(16)).min(RETRY_MAX_S);
                wanted.failures += 1;
                wanted.due = Due::Again(Instant::now() + Duration::from_secs(pause_s));
                let object = format!("ssls/{}", wanted.id);
                wanted.problem = Some(
                    Problem::warning(object, "cert", message).hint(format!("tried again in {pause_s} s")),
                );
            }
        }
    }

    /// Fetches one certificate, keeps it and puts it in force; says when it holds.
    async fn fetch(&mut self, at: usize, account: &mut Option<Account>) -> anyhow::Result<Validity> {
        let known = match account {
            Some(account) => account,
            None => account.insert(self.account().await.context("the account")?),
        };
        let wanted = &self.wanted[at];
        let prover = Prover {
            challenge: self.settings.challenge,
            control: &self.control,
            challenges: &self.challenges,
        };
        let mut issued = order::certificate(known, &wanted.names, &prover).await;
        if let Err(error) = &issued
            && has_no_account(error)
        {
            let (directory, error) = (&self.settings.directory, format!("{error:#}"));
            tracing::warn!(
                directory,
                error,
                "the ACME server does not know the account, another is registered"
            );
            let other = self.register().await.context("another account, as the one kept is unknown")?;
            issued = order::certificate(account.insert(other), &wanted.names, &prover).await;
        }
        let issued = issued?;
        self.disk.keep_certificate(&wanted.id, &issued)?;
        order::put_in_force(&self.control, vec![put(wanted, &issued)]).await?;
        Validity::of(&issued.cert)
    }

    /// The account kept on disk, or a new one.
    async fn account(&mut self) -> anyhow::Result<Account> {
        match self.credentials() {
            Ok(Some(credentials)) => Ok(self.builder().from_credentials(credentials).await?),
            Ok(None) => self.register().await,
            Err(error) if disk::is_damage(&error) => {
                self.tell_lost_account(&error);
                self.register().await
            }
            Err(error) => Err(error),
        }
    }

    /// Of the account kept on disk.
    fn credentials(&self) -> anyhow::Result<Option<AccountCredentials>> {
        let kept = self.disk.text(&disk::id_of(&self.settings.directory, &[]))?;
        Ok(kept.map(|kept| serde_json::from_str(&kept)).transpose()?)
    }

    fn tell_lost_account(&mut self, error: &anyhow::Error) {
        let (directory, error) = (&self.settings.directory, format!("{error:#}"));
        tracing::warn!(directory, error, "the ACME account cannot be read, another is registered");
        let message = format!("the account kept for {directory} cannot be read: {error}");
        let hint = "another is registered, and the one kept is renamed to `.before`";
        self.lost_account = Some(Problem::warning("acme", "", message).hint(hint));
    }

    /// A new account. One kept before is set aside, once there is another.
    async fn register(&self) -> anyhow::Result<Account> {
        let id = disk::id_of(&self.settings.directory, &[]);
        let contact: Vec<&str> = self.settings.contact.iter().map(String::as_str).collect();
        let new =
            NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let tied = order::external_account(&self.settings.external_account)?;
        let tied: Option<ExternalAccountKey> = tied;
        let made = self.builder().create(&new, self.settings.directory.clone(), tied.as_ref()).await;
        let (account, credentials) = made?;
        self.disk.set_aside(&id)?;
        self.disk.keep(&id, &serde_json::to_string(&credentials)?)?;
        Ok(account)
    }

    fn builder(&self) -> AccountBuilder {
        Account::builder_with_http(Box::new(self.transport.clone()))
    }
}

/// Ids of the ssl objects whose certificates a node of this configuration fetches.
pub(crate) fn fetched(node: &NodeConfig) -> Arc<[Box<str>]> {
    let all = node.acme.certificates.iter();
    all.map(|one| Wanted::new(&node.acme.directory, one).id.into()).collect()
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
fn put(wanted: &Wanted, issued: &Issued) -> Change {
    let value = json!({ "snis": wanted.names, "cert": issued.cert, "key": issued.key });
    Change::Put(Resource::new(Kind::Ssls, &wanted.id, &value))
}

/// When a certificate holds, in seconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
struct Validity {
    from_s: i64,
    until_s: i64,
}

impl Validity {
    fn of(pem: &str) -> anyhow::Result<Validity> {
        let leaf =
            CertificateDer::from_pem_slice(pem.as_bytes()).ok().context("the certificate is not PEM")?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&leaf)?;
        let validity = parsed.validity();
        Ok(Validity { from_s: validity.not_before.timestamp(), until_s: validity.not_after.timestamp() })
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
    fn due(self, unix_s: i64, now: Instant) -> Due {
        let (renewal_unix_s, left_s) = (self.renewal(), self.until_s.saturating_sub(unix_s));
        if unix_s < renewal_unix_s {
            return Due::At(renewal_unix_s.max(unix_s + left_s / 3));
        }
        let third_s = |span_s: i64| (span_s / 3) as u64;
        // By any clock that is right, one that has ended was given out with all its life before it.
        let pause_s = third_s(if left_s > 0 { left_s } else { self.life_s() });
        let least_s = third_s(self.life_s()).clamp(RETRY_S, RETRY_MAX_S);
        Due::Late { renewal_unix_s, again: now + Duration::from_secs(pause_s.max(least_s)) }
    }
}

#[cfg(test)]
mod tests;
