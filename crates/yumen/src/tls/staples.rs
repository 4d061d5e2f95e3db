//! OCSP staples: fetched beside the traffic, shown with their certificates, fetched anew before they end.
//!
//! A responder that fails costs nothing but its staple: the last good one is shown until it ends. That it is
//! not shown longer, handshakes see to themselves (`CertificateKeyPair::ready`), whenever the next is fetched. A process that
//! takes over shows what the one before it did.

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

/// Responders asked at a time.
const ASKED_MAX: usize = 8;
/// After a failure, at first and at most.
const RETRY: Duration = Duration::from_secs(30);
const RETRY_MAX: Duration = Duration::from_secs(60 * 60);
/// Between two answers about a certificate, at least and at most.
const REFRESH_MIN: Duration = Duration::from_secs(5);
const REFRESH_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// All that is told to another process is no longer: a certificate without a staple costs less than an upgrade.
const TOLD_BYTES_MAX: usize = 64 << 20;

/// Which certificate: the SHA-256 of its DER.
type LeafDigest = [u8; 32];

/// The staples there are, and how asking went.
#[derive(Default)]
pub(crate) struct StapleCache {
    fetched: AtomicU64,
    failed: AtomicU64,
    kept: Mutex<HashMap<LeafDigest, CachedStaple>>,
}

/// A staple that is shown, kept for a certificate that comes again: in another object or in another process.
#[derive(Clone)]
struct CachedStaple {
    answer: Vec<u8>,
    until_unix_s: i64,
}

/// A staple as one process tells another.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ExportedStaple {
    /// The digest of the certificate and the answer, in base64.
    leaf: String,
    answer: String,
    until_unix_s: i64,
}

/// Certificates that want a staple, and when to ask about them next.
pub(super) struct StapleFetcher {
    wanted: UnboundedReceiver<Weak<CertificateKeyPair>>,
    staples: Arc<StapleCache>,
    due: BTreeMap<(Instant, u64), (Weak<CertificateKeyPair>, u32)>,
    count: u64,
}

/// What came of asking.
struct StapleResult {
    pair: Weak<CertificateKeyPair>,
    failures: u32,
    outcome: anyhow::Result<(Vec<u8>, OcspGoodResponse)>,
}

impl StapleCache {
    /// What another process is told.
    pub(crate) fn told(&self) -> Vec<ExportedStaple> {
        let kept = self.kept();
        let fresh = kept.iter().filter(|(_, one)| one.is_fresh());
        let told = fresh.map(|(leaf, one)| ExportedStaple {
            leaf: BASE64.encode(leaf),
            answer: BASE64.encode(&one.answer),
            until_unix_s: one.until_unix_s,
        });
        let mut bytes = 0;
        let fits = |one: &ExportedStaple| {
            bytes += one.answer.len();
            bytes <= TOLD_BYTES_MAX
        };
        told.take_while(fits).collect()
    }

    /// Knows what another process has told. What cannot be read is fetched.
    pub(super) fn knowing(told: &[ExportedStaple]) -> StapleCache {
        let read = |one: &ExportedStaple| {
            let leaf = BASE64.decode(&one.leaf).ok()?.try_into().ok()?;
            let answer = BASE64.decode(&one.answer).ok()?;
            Some((leaf, CachedStaple { answer, until_unix_s: one.until_unix_s }))
        };
        StapleCache { kept: Mutex::new(told.iter().filter_map(read).collect()), ..StapleCache::default() }
    }

    /// The staple known of a certificate, if it may be shown: it may be another process's word.
    fn known(&self, pair: &CertificateKeyPair) -> Option<CachedStaple> {
        let known = self.kept().get(&leaf_digest(pair)).filter(|kept| kept.is_fresh()).cloned()?;
        let good = pair.question()?.check(&known.answer, pair.issuer()?, now_unix_s()).ok()?;
        let until_unix_s = good.next_update_unix_s.unwrap_or(known.until_unix_s);
        Some(CachedStaple { until_unix_s, ..known })
    }

    fn keep(&self, pair: &CertificateKeyPair, shown: CachedStaple) {
        let mut kept = self.kept();
        kept.retain(|_, one| one.is_fresh());
        kept.insert(leaf_digest(pair), shown);
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<LeafDigest, CachedStaple>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn leaf_digest(pair: &CertificateKeyPair) -> LeafDigest {
    *digest(&SHA256, pair.leaf()).as_ref().first_chunk().expect("a digest of SHA-256 has 32 bytes")
}

impl StapleFetcher {
    pub(super) fn new(
        wanted: UnboundedReceiver<Weak<CertificateKeyPair>>,
        staples: Arc<StapleCache>,
    ) -> StapleFetcher {
        StapleFetcher { wanted, staples, due: BTreeMap::new(), count: 0 }
    }

    /// Staples what wants it by now and has a staple that is known: clients refuse some certificates without.
    pub(super) fn staple_known(&mut self) {
        while let Ok(pair) = self.wanted.try_recv() {
            self.take(pair);
        }
    }

    /// Serves certificates that want a staple, for ever.
    pub(super) async fn tend(mut self) {
        let mut explained_request = JoinSet::new();
        loop {
            let first = self.due.first_key_value().map(|((at, _), _)| *at);
            let first = first.filter(|_| explained_request.len() < ASKED_MAX);
            let pause = first.map_or(REFRESH_MAX, |at| at.saturating_duration_since(Instant::now()));
            tokio::select! {
                one = self.wanted.recv() => match one {
                    Some(pair) => self.take(pair),
                    None if self.due.is_empty() && explained_request.is_empty() => return,
                    None => tokio::time::sleep(REFRESH_MIN).await,
                },
                Some(Ok(asked)) = explained_request.join_next(), if !explained_request.is_empty() => self.settle(asked),
                () = tokio::time::sleep(pause), if first.is_some() => {
                    if let Some((_, (pair, failures))) = self.due.pop_first() {
                        explained_request.spawn(ask(pair, failures));
                    }
                }
            }
        }
    }

    /// One that wants a staple: the one that is known, or the next that is fetched.
    fn take(&mut self, pair: Weak<CertificateKeyPair>) {
        let Some(held) = pair.upgrade() else { return };
        let after = self.staples.known(&held).map_or(Duration::ZERO, |known| {
            let after = known.refresh();
            held.staple(known.answer, known.until_unix_s);
            after
        });
        self.schedule(after, pair, 0);
    }

    fn schedule(&mut self, after: Duration, pair: Weak<CertificateKeyPair>, failures: u32) {
        self.count += 1;
        self.due.insert((Instant::now() + after, self.count), (pair, failures));
    }

    /// Shows what was told, and asks again later.
    fn settle(&mut self, asked: StapleResult) {
        let StapleResult { pair, failures, outcome } = asked;
        let Some(held) = pair.upgrade() else { return };
        match outcome {
            Ok((answer, good)) => {
                self.staples.fetched.fetch_add(1, Ordering::Relaxed);
                let until_unix_s = good.next_update_unix_s.unwrap_or_else(|| now_unix_s() + 60);
                held.staple(answer.clone(), until_unix_s);
                let shown = CachedStaple { answer, until_unix_s };
                self.schedule(shown.refresh(), pair, 0);
                self.staples.keep(&held, shown);
            }
            Err(error) => {
                self.staples.failed.fetch_add(1, Ordering::Relaxed);
                let error = format!("{error:#}");
                match held.staple_requirement() {
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

    /// Half of the time it has left.
    fn refresh(&self) -> Duration {
        let left_s = (self.until_unix_s - now_unix_s()).max(0) as u64;
        Duration::from_secs(left_s / 2).clamp(REFRESH_MIN, REFRESH_MAX)
    }
}

async fn ask(pair: Weak<CertificateKeyPair>, failures: u32) -> StapleResult {
    let question = pair.upgrade().and_then(|held| {
        let question = held.question()?;
        Some((question, held.issuer()?.to_vec()))
    });
    let outcome = match question {
        None => Err(anyhow::anyhow!("its issuer does not follow it in the chain")),
        Some((question, issuer)) => {
            fetch_staple(&question, &issuer).await.with_context(|| question.url.clone())
        }
    };
    StapleResult { pair, failures, outcome }
}

async fn fetch_staple(question: &OcspRequest, issuer: &[u8]) -> anyhow::Result<(Vec<u8>, OcspGoodResponse)> {
    let request = Request::post(&question.url)
        .header(CONTENT_TYPE, "application/ocsp-request")
        .body(Full::new(Bytes::from(question.body.clone())))?;
    let answer = fetch::send(request, None, fetch::FetchBounds::SMALL).await?;
    if !answer.status().is_success() {
        bail!("the responder answered {}", answer.status());
    }
    let answer = answer.into_body().collect().await?.to_bytes().to_vec();
    let good = question.check(&answer, issuer, now_unix_s()).map_err(|error| anyhow::anyhow!(error))?;
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
