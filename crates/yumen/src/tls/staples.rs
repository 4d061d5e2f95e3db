//! OCSP staples: fetched in the background, attached to certificates, refreshed before they expire.
//!
//! If a responder fails, the last good staple is used until it expires; handshakes check the expiry
//! themselves (`CertificateKeyPair::ready`). A successor starts with the predecessor's staples.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_proxy::tls::ocsp::{OcspGoodResponse, OcspRequest};
use yumen_proxy::tls::{CertificateKeyPair, StapleRequirement};

use super::now_unix_s;
use crate::fetch;

/// Maximum number of concurrent OCSP requests.
const ASKED_MAX: usize = 8;
/// First and maximum pause after a failure.
const RETRY: Duration = Duration::from_secs(30);
const RETRY_MAX: Duration = Duration::from_secs(60 * 60);
/// Minimum and maximum pause between two responses for a certificate.
const REFRESH_MIN: Duration = Duration::from_secs(5);
const REFRESH_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// Maximum size of exported staples, 64 MiB: a missing staple is better than a failed upgrade.
const TOLD_BYTES_MAX: usize = 64 << 20;

/// SHA-256 of a leaf certificate in DER.
type LeafDigest = [u8; 32];

/// Known staples, with fetch counters.
#[derive(Default)]
pub(crate) struct StapleCache {
    fetched: AtomicU64,
    failed: AtomicU64,
    cache: Mutex<HashMap<LeafDigest, CachedStaple>>,
}

/// A staple, cached so that the certificate can be reused in another object or process.
#[derive(Clone)]
struct CachedStaple {
    answer: Vec<u8>,
    until_unix_s: i64,
}

/// A staple in the handover protocol.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ExportedStaple {
    /// Digest of the certificate, in base64; `answer` is the OCSP response in base64.
    leaf: String,
    answer: String,
    until_unix_s: i64,
}

/// Certificates that need a staple, with the time of their next fetch.
pub(super) struct StapleFetcher {
    requests: UnboundedReceiver<Weak<CertificateKeyPair>>,
    staples: Arc<StapleCache>,
    due: BTreeMap<(Instant, u64), (Weak<CertificateKeyPair>, u32)>,
    count: u64,
}

/// Result of a fetch.
struct StapleResult {
    pair: Weak<CertificateKeyPair>,
    failures: u32,
    outcome: anyhow::Result<(Vec<u8>, OcspGoodResponse)>,
}

impl StapleCache {
    /// Exports unexpired staples for a successor.
    pub(crate) fn export(&self) -> Vec<ExportedStaple> {
        let cache = self.cache();
        let fresh = cache.iter().filter(|(_, one)| one.is_fresh());
        let exported = fresh.map(|(leaf, one)| ExportedStaple {
            leaf: BASE64.encode(leaf),
            answer: BASE64.encode(&one.answer),
            until_unix_s: one.until_unix_s,
        });
        let mut bytes = 0;
        let fits = |one: &ExportedStaple| {
            bytes += one.answer.len();
            bytes <= TOLD_BYTES_MAX
        };
        exported.take_while(fits).collect()
    }

    /// Imports the predecessor's staples. Invalid entries are fetched anew.
    pub(super) fn with(exported: &[ExportedStaple]) -> StapleCache {
        let read = |one: &ExportedStaple| {
            let leaf = BASE64.decode(&one.leaf).ok()?.try_into().ok()?;
            let answer = BASE64.decode(&one.answer).ok()?;
            Some((leaf, CachedStaple { answer, until_unix_s: one.until_unix_s }))
        };
        StapleCache {
            cache: Mutex::new(exported.iter().filter_map(read).collect()),
            ..StapleCache::default()
        }
    }

    /// Cached staple of a certificate, if valid. The check repeats, since another process may have provided
    /// it.
    fn known(&self, pair: &CertificateKeyPair) -> Option<CachedStaple> {
        let known = self.cache().get(&leaf_digest(pair)).filter(|cache| cache.is_fresh()).cloned()?;
        // Signature and time are verified again (decision 23).
        let good = pair.ocsp_request()?.check(&known.answer, pair.issuer()?, now_unix_s()).ok()?;
        let until_unix_s = good.next_update_unix_s.unwrap_or(known.until_unix_s);
        Some(CachedStaple { until_unix_s, ..known })
    }

    fn keep(&self, pair: &CertificateKeyPair, shown: CachedStaple) {
        let mut cache = self.cache();
        // Bounds the cache by the certificates in use and the recently replaced.
        cache.retain(|_, one| one.is_fresh());
        cache.insert(leaf_digest(pair), shown);
    }

    fn cache(&self) -> MutexGuard<'_, HashMap<LeafDigest, CachedStaple>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn leaf_digest(pair: &CertificateKeyPair) -> LeafDigest {
    *digest(&SHA256, pair.leaf()).as_ref().first_chunk().expect("a digest of SHA-256 has 32 bytes")
}

impl StapleFetcher {
    pub(super) fn new(
        requests: UnboundedReceiver<Weak<CertificateKeyPair>>,
        staples: Arc<StapleCache>,
    ) -> StapleFetcher {
        StapleFetcher { requests, staples, due: BTreeMap::new(), count: 0 }
    }

    /// Attaches known staples to the certificates waiting now: clients reject must-staple certificates
    /// without one.
    pub(super) fn staple_known(&mut self) {
        while let Ok(pair) = self.requests.try_recv() {
            self.take(pair);
        }
    }

    /// Fetches staples until no certificate is left and the loader is dropped.
    pub(super) async fn tend(mut self) {
        let mut fetching = JoinSet::new();
        loop {
            let first = self.due.first_key_value().map(|((at, _), _)| *at);
            // The queue waits while all requests are in flight.
            let first = first.filter(|_| fetching.len() < ASKED_MAX);
            let pause = first.map_or(REFRESH_MAX, |at| at.saturating_duration_since(Instant::now()));
            tokio::select! {
                one = self.requests.recv() => match one {
                    Some(pair) => self.take(pair),
                    None if self.due.is_empty() && fetching.is_empty() => return,
                    // A closed channel is ready at once: do not spin while fetches are scheduled.
                    None => tokio::time::sleep(REFRESH_MIN).await,
                },
                Some(Ok(result)) = fetching.join_next(), if !fetching.is_empty() => self.settle(result),
                () = tokio::time::sleep(pause), if first.is_some() => {
                    if let Some((_, (pair, failures))) = self.due.pop_first() {
                        fetching.spawn(refresh_staple(pair, failures));
                    }
                }
            }
        }
    }

    /// Attaches a known staple and schedules the next fetch.
    fn take(&mut self, pair: Weak<CertificateKeyPair>) {
        // The certificate was replaced meanwhile.
        let Some(pair_now) = pair.upgrade() else { return };
        let after = self.staples.known(&pair_now).map_or(Duration::ZERO, |known| {
            let after = known.refresh();
            pair_now.staple(known.answer, known.until_unix_s);
            after
        });
        self.schedule(after, pair, 0);
    }

    fn schedule(&mut self, after: Duration, pair: Weak<CertificateKeyPair>, failures: u32) {
        // Makes keys unique: several certificates may be due at the same instant.
        self.count += 1;
        self.due.insert((Instant::now() + after, self.count), (pair, failures));
    }

    /// Attaches a fetched staple, or counts the failure; schedules the next fetch.
    fn settle(&mut self, result: StapleResult) {
        let StapleResult { pair, failures, outcome } = result;
        let Some(pair_now) = pair.upgrade() else { return };
        match outcome {
            Ok((answer, good)) => {
                self.staples.fetched.fetch_add(1, Ordering::Relaxed);
                // Without nextUpdate, newer information is always available (RFC 6960 §4.2.2.1): fetch again
                // soon.
                let until_unix_s = good.next_update_unix_s.unwrap_or_else(|| now_unix_s() + 60);
                pair_now.staple(answer.clone(), until_unix_s);
                let shown = CachedStaple { answer, until_unix_s };
                self.schedule(shown.refresh(), pair, 0);
                self.staples.keep(&pair_now, shown);
            }
            Err(error) => {
                self.staples.failed.fetch_add(1, Ordering::Relaxed);
                let error = format!("{error:#}");
                match pair_now.staple_requirement() {
                    StapleRequirement::Must => {
                        tracing::error!(error, "OCSP staple missing for a must-staple certificate")
                    }
                    _ => tracing::warn!(error, "OCSP staple refresh failed"),
                }
                let after = RETRY.saturating_mul(1 << failures.min(16)).min(RETRY_MAX);
                self.schedule(after, pair, failures + 1);
            }
        }
    }
}

impl CachedStaple {
    fn is_fresh(&self) -> bool {
        self.until_unix_s > now_unix_s()
    }

    /// Pause before the refresh: half of the remaining validity.
    fn refresh(&self) -> Duration {
        let left_s = (self.until_unix_s - now_unix_s()).max(0) as u64;
        // Half of the validity leaves time for many retries.
        Duration::from_secs(left_s / 2).clamp(REFRESH_MIN, REFRESH_MAX)
    }
}

async fn refresh_staple(pair: Weak<CertificateKeyPair>, failures: u32) -> StapleResult {
    let request = pair.upgrade().and_then(|pair_now| {
        let request = pair_now.ocsp_request()?;
        Some((request, pair_now.issuer()?.to_vec()))
    });
    let outcome = match request {
        None => Err(anyhow::anyhow!("its issuer does not follow it in the chain")),
        Some((request, issuer)) => fetch_staple(&request, &issuer).await.with_context(|| request.url.clone()),
    };
    StapleResult { pair, failures, outcome }
}

async fn fetch_staple(ocsp: &OcspRequest, issuer: &[u8]) -> anyhow::Result<(Vec<u8>, OcspGoodResponse)> {
    let request = Request::post(&ocsp.url)
        // POST, as RFC 6960 Appendix A.1 defines it.
        .header(CONTENT_TYPE, "application/ocsp-request")
        .body(Full::new(Bytes::from(ocsp.body.clone())))?;
    let answer = fetch::send(request, None, fetch::FetchBounds::SMALL).await?;
    if !answer.status().is_success() {
        bail!("the responder answered {}", answer.status());
    }
    let answer = answer.into_body().collect().await?.to_bytes().to_vec();
    let good = ocsp.check(&answer, issuer, now_unix_s()).map_err(|error| anyhow::anyhow!(error))?;
    Ok((answer, good))
}

impl MetricSource for StapleCache {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let sample = |result: &str, count: &AtomicU64| MetricSeries {
            labels: vec![("result", result.to_owned())],
            value: MetricValue::Number(count.load(Ordering::Relaxed) as f64),
        };
        out.push(MetricFamily {
            name: "yumen_tls_staple_fetches_total".into(),
            help: "OCSP requests, by result.".into(),
            kind: MetricKind::Counter,
            samples: vec![sample("good", &self.fetched), sample("failed", &self.failed)],
        });
    }
}

#[cfg(test)]
mod tests;
