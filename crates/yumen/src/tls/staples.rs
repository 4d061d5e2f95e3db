//! OCSP staples: fetched beside the traffic, shown with their certificates, fetched anew before they end.
//!
//! A responder that fails costs nothing but its staple: the last good one is shown until it ends. That it is
//! not shown longer, handshakes see to themselves (`Pair::ready`), whenever the next is fetched.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use yumen_base::metric::{Family, Gather, MetricKind, Sample, Value};
use yumen_proxy::tls::ocsp::{Good, Question};
use yumen_proxy::tls::{Pair, StapleWish};

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

/// How asking went.
#[derive(Default)]
pub(crate) struct Staples {
    fetched: AtomicU64,
    failed: AtomicU64,
}

/// A staple that is shown, kept for a certificate that comes again in another object.
struct Kept {
    answer: Vec<u8>,
    until_unix_s: i64,
}

/// What came of asking.
struct Asked {
    pair: Weak<Pair>,
    failures: u32,
    outcome: anyhow::Result<(Vec<u8>, Good)>,
}

/// Serves certificates that want a staple, for ever.
pub(super) async fn tend(mut wanted: UnboundedReceiver<Weak<Pair>>, staples: Arc<Staples>) {
    let mut due: BTreeMap<(Instant, u64), (Weak<Pair>, u32)> = BTreeMap::new();
    let mut kept: HashMap<Box<[u8]>, Kept> = HashMap::new();
    let mut asking = JoinSet::new();
    let mut count = 0;
    loop {
        let first = due.first_key_value().map(|((at, _), _)| *at).filter(|_| asking.len() < ASKED_MAX);
        let pause = first.map_or(REFRESH_MAX, |at| at.saturating_duration_since(Instant::now()));
        let (pair, failures, after) = tokio::select! {
            one = wanted.recv() => match one {
                Some(pair) => (pair, 0, Duration::ZERO),
                None if due.is_empty() && asking.is_empty() => return,
                None => { tokio::time::sleep(REFRESH_MIN).await; continue }
            },
            Some(Ok(asked)) = asking.join_next(), if !asking.is_empty() => settle(asked, &staples, &mut kept),
            () = tokio::time::sleep(pause), if first.is_some() => {
                if let Some((_, (pair, failures))) = due.pop_first() {
                    asking.spawn(ask(pair, failures));
                }
                continue;
            }
        };
        let Some(held) = pair.upgrade() else { continue };
        let after = match kept.get(held.leaf()).filter(|kept| after.is_zero() && kept.is_fresh()) {
            Some(known) => {
                held.staple(known.answer.clone(), known.until_unix_s);
                known.refresh()
            }
            None => after,
        };
        count += 1;
        due.insert((Instant::now() + after, count), (pair, failures));
    }
}

impl Kept {
    fn is_fresh(&self) -> bool {
        self.until_unix_s > now_unix_s()
    }

    /// Half of the time it has left.
    fn refresh(&self) -> Duration {
        let left_s = (self.until_unix_s - now_unix_s()).max(0) as u64;
        Duration::from_secs(left_s / 2).clamp(REFRESH_MIN, REFRESH_MAX)
    }
}

async fn ask(pair: Weak<Pair>, failures: u32) -> Asked {
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
    Asked { pair, failures, outcome }
}

async fn fetch_staple(question: &Question, issuer: &[u8]) -> anyhow::Result<(Vec<u8>, Good)> {
    let request = Request::post(&question.url)
        .header(CONTENT_TYPE, "application/ocsp-request")
        .body(Full::new(Bytes::from(question.body.clone())))?;
    let answer = fetch::send(request, None, fetch::Bounds::SMALL).await?;
    if !answer.status().is_success() {
        bail!("the responder answered {}", answer.status());
    }
    let answer = answer.into_body().collect().await?.to_bytes().to_vec();
    let good = question.check(&answer, issuer, now_unix_s()).map_err(|error| anyhow::anyhow!(error))?;
    Ok((answer, good))
}

/// Shows what was told; says when to ask again, and after how many failures.
fn settle(
    asked: Asked,
    staples: &Staples,
    kept: &mut HashMap<Box<[u8]>, Kept>,
) -> (Weak<Pair>, u32, Duration) {
    let Asked { pair, failures, outcome } = asked;
    let Some(held) = pair.upgrade() else { return (pair, 0, Duration::ZERO) };
    kept.retain(|_, one| one.is_fresh());
    match outcome {
        Ok((answer, good)) => {
            staples.fetched.fetch_add(1, Ordering::Relaxed);
            let until_unix_s = good.next_update_unix_s.unwrap_or_else(|| now_unix_s() + 60);
            held.staple(answer.clone(), until_unix_s);
            let shown = Kept { answer, until_unix_s };
            let after = shown.refresh();
            kept.insert(held.leaf().into(), shown);
            (pair, 0, after)
        }
        Err(error) => {
            staples.failed.fetch_add(1, Ordering::Relaxed);
            let error = format!("{error:#}");
            match held.staple_wish() {
                StapleWish::Must => tracing::error!(error, "no staple for a certificate that needs one"),
                _ => tracing::warn!(error, "no new staple for a certificate"),
            }
            let after = RETRY.saturating_mul(1 << failures.min(16)).min(RETRY_MAX);
            (pair, failures + 1, after)
        }
    }
}

impl Gather for Staples {
    fn gather(&self, out: &mut Vec<Family>) {
        let sample = |result: &str, count: &AtomicU64| Sample {
            labels: vec![("result", result.to_owned())],
            value: Value::Number(count.load(Ordering::Relaxed) as f64),
        };
        out.push(Family {
            name: "yumen_tls_staple_fetches_total".into(),
            help: "OCSP responders asked for the status of certificates.".into(),
            kind: MetricKind::Counter,
            samples: vec![sample("good", &self.fetched), sample("failed", &self.failed)],
        });
    }
}
