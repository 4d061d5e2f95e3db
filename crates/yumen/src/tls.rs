//! TLS tasks outside the handshake: loading certificates, expiry, OCSP staples, ACME. They run on the control
//! runtime.
//!
//! Nothing here is on the request path.

mod acme;
mod expiry;
mod staples;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::unbounded_channel;
use yumen_base::metric::MetricFamily;
use yumen_config::NodeConfig;
use yumen_config::node::TlsVersion;
use yumen_proxy::tls::{
    self, CertificateLoader, DownstreamTlsAcceptor, DownstreamTlsSettings, TICKET_KEY_BYTES, TicketKeys,
    TlsAlpnChallenges, TlsVersions,
};
use yumen_snapshot::Publisher;

use crate::control::ControlHandle;
use crate::{node, process};
use staples::StapleFetcher;

pub(crate) use acme::{ACME_SHARED_KEYS, AcmeManager, AcmeOrders, fetched};
pub(crate) use expiry::{ExpiryMonitor, certificates, trusted_problems};
pub(crate) use staples::{ExportedStaple, StapleCache};

/// Metric families of this module, without values, for the generated reference.
pub(crate) fn describe(out: &mut Vec<MetricFamily>) {
    use yumen_base::metric::MetricSource;
    ExpiryMonitor::default().gather(out);
    StapleCache::default().gather(out);
}

/// TLS components that all listeners share.
pub(crate) struct TlsServices {
    /// Loads certificates for the compiler.
    pub(crate) loader: Arc<CertificateLoader>,
    pub(crate) expiry: Arc<ExpiryMonitor>,
    pub(crate) staples: Arc<StapleCache>,
    stapler: StapleFetcher,
    pub(crate) tickets: Option<Arc<TicketKeys>>,
    challenges: Arc<TlsAlpnChallenges>,
    pub(crate) orders: Arc<AcmeOrders>,
}

impl TlsServices {
    /// Creates the components from the node settings, with the predecessor's ticket keys and staples. Starts
    /// no task.
    pub(crate) fn new(
        node: &NodeConfig,
        ticket_keys: &[[u8; TICKET_KEY_BYTES]],
        known_staples: &[ExportedStaple],
    ) -> anyhow::Result<TlsServices> {
        let (request_staple, staple_requests) = unbounded_channel();
        let loader = match node.tls.ocsp_stapling {
            true => CertificateLoader::with_staple_requests(request_staple),
            false => CertificateLoader::default(),
        };
        let tickets = node.tls.session_tickets.then(|| {
            // Tickets issued under the previous key are accepted for one more rotation.
            let keys = TicketKeys::new(node.tls.ticket_rotation_s.saturating_mul(2));
            Arc::new(keys)
        });
        if let Some(keys) = &tickets {
            // The oldest first: the key rotated in last encrypts new tickets.
            ticket_keys.iter().for_each(|key| keys.rotate(key));
            if ticket_keys.is_empty() {
                keys.rotate(&new_ticket_key()?);
            }
        }
        let staples = Arc::new(StapleCache::with(known_staples));
        Ok(TlsServices {
            loader: Arc::new(loader),
            expiry: Arc::default(),
            stapler: StapleFetcher::new(staple_requests, staples.clone()),
            staples,
            tickets,
            challenges: Arc::default(),
            orders: Arc::default(),
        })
    }

    /// TLS acceptor of all listeners: certificates of the snapshot, and a self-signed one as the default.
    pub(crate) fn acceptor(
        &self,
        node: &NodeConfig,
        publisher: &Arc<Publisher>,
    ) -> anyhow::Result<DownstreamTlsAcceptor> {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into(), "127.0.0.1".into()])?;
        let default = tls::load_key_pair(&made.cert.pem(), &made.signing_key.serialize_pem())
            .map_err(|error| anyhow::anyhow!("the default certificate cannot be used: {error}"))?;
        // One session cache for all workers: a client may resume on any of them.
        let workers = node::workers(node, process::allowed_cpus().len());
        tls::acceptor(DownstreamTlsSettings {
            publisher: publisher.clone(),
            default: Some(default),
            versions: TlsVersions { tls12: node.tls.version_min != TlsVersion::V1_3, tls13: true },
            ciphers: node.tls.ciphers.clone(),
            http2: node.http2.enabled,
            tickets: self.tickets.clone(),
            sessions_max: node.tls.session_entries as usize * workers,
            challenges: self.challenges.clone(),
        })
        .map_err(|error| anyhow::anyhow!("TLS cannot be set up: {error}"))
    }

    /// Publishes the stored ACME certificates; renewal starts once the node serves.
    pub(crate) fn open_acme(
        &self,
        node: &NodeConfig,
        control: &ControlHandle,
    ) -> anyhow::Result<Option<AcmeManager>> {
        match node.acme.is_on() {
            true => {
                AcmeManager::open(node, control, &self.challenges, &self.orders).map(Some).context("acme")
            }
            false => Ok(None),
        }
    }

    /// Attaches the predecessor's staples to certificates that require one (must-staple).
    pub(crate) fn staple_known(&mut self) {
        self.stapler.staple_known();
    }

    /// Starts ticket key rotation, staple refresh and the expiry monitor.
    pub(crate) fn tend(self, runtime: &Runtime, node: &NodeConfig, control: &ControlHandle) {
        if let Some(keys) = self.tickets {
            runtime.spawn(rotate(keys, Duration::from_secs(node.tls.ticket_rotation_s.into())));
        }
        runtime.spawn(self.stapler.tend());
        runtime.spawn(expiry::watch(self.expiry, control.clone(), node.tls.expiry_warning_days));
    }
}

async fn rotate(keys: Arc<TicketKeys>, pause: Duration) {
    loop {
        tokio::time::sleep(pause).await;
        match new_ticket_key() {
            Ok(key) => keys.rotate(&key),
            // The current key stays in use; resumption must not fail for lack of randomness.
            Err(error) => tracing::error!(%error, "session ticket key rotation failed"),
        }
    }
}

fn new_ticket_key() -> anyhow::Result<[u8; TICKET_KEY_BYTES]> {
    let mut key = [0; TICKET_KEY_BYTES];
    getrandom::fill(&mut key)?;
    Ok(key)
}

fn now_unix_s() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}
