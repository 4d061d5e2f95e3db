//! When certificates end, and what others are verified by: shown as metrics, and told as problems before it happens.

mod trusted;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use yumen_base::Problem;
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_proxy::tls::CertificateKeyPair;
use yumen_snapshot::Snapshot;

use super::now_unix_s;
use crate::control::{ControlHandle, ControlMessage, ProblemSource};
use trusted::TrustedMaterial;

/// Certificates that have a series of their own: those that end first.
const SERIES_MAX: usize = 100;
/// What ends is looked for so often, and soon after each change of configuration.
const PAUSE: Duration = Duration::from_secs(600);
const SETTLE: Duration = Duration::from_millis(500);
const DAY_S: i64 = 24 * 60 * 60;

/// What ends when.
#[derive(Default)]
pub(crate) struct ExpiryMonitor(Mutex<ExpiryState>);

#[derive(Default)]
struct ExpiryState {
    certificates: usize,
    /// By end.
    first: Vec<CertificateExpiry>,
    /// By the first to end.
    trusted: Vec<TrustedMaterial>,
}

/// When the certificate of an object ends.
struct CertificateExpiry {
    at_unix_s: i64,
    /// From its beginning to its end.
    life_s: i64,
    id: String,
    /// One of its names.
    name: String,
}

/// The end of each object's first certificate to end, and a name of it.
fn ends(snapshot: &Snapshot) -> BTreeMap<&str, (i64, i64, &str)> {
    let mut ends = BTreeMap::new();
    for (name, certificate) in snapshot.certificates() {
        let pairs = certificate.keys.iter().filter_map(|pair| pair.downcast_ref::<CertificateKeyPair>());
        let validity = pairs.map(CertificateKeyPair::validity_unix_s);
        let Some((from, until)) = validity.min_by_key(|(_, until)| *until) else { continue };
        let known = ends.entry(&*certificate.id).or_insert((until, until - from, name));
        // Always the same name, whatever the order of the table.
        known.2 = known.2.min(name);
    }
    ends
}

fn look(snapshot: &Snapshot) -> ExpiryState {
    let ends = ends(snapshot);
    let certificates = ends.len();
    let mut first: Vec<_> = ends.into_iter().map(|(id, (at, life, name))| (at, id, life, name)).collect();
    first.sort_unstable();
    let kept = first.into_iter().take(SERIES_MAX).map(|(at_unix_s, id, life_s, name)| CertificateExpiry {
        at_unix_s,
        life_s,
        id: id.to_owned(),
        name: name.to_owned(),
    });
    ExpiryState { certificates, first: kept.collect(), trusted: trusted::look(snapshot) }
}

/// Whether something ends soon or has ended. Soon is never more than a quarter of its life: what lives for days is
/// renewed in its last third, and is nothing to worry about before.
fn is_soon(at_unix_s: i64, life_s: i64, warning_days: u32, now_unix_s: i64) -> bool {
    at_unix_s < now_unix_s + (i64::from(warning_days) * DAY_S).min(life_s / 4)
}

/// Problems of certificates that have ended or soon will.
fn problems(seen: &ExpiryState, warning_days: u32, now_unix_s: i64) -> Vec<Problem> {
    let soon = seen.first.iter().filter(|end| is_soon(end.at_unix_s, end.life_s, warning_days, now_unix_s));
    let told = soon.map(|CertificateExpiry { at_unix_s, id, name, .. }| {
        let object = format!("ssls/{id}");
        let days = (at_unix_s - now_unix_s).abs() / DAY_S;
        match *at_unix_s < now_unix_s {
            true => {
                let message =
                    format!("the certificate for {name} expired {days} days ago: clients refuse it");
                Problem::error(object, "cert", message).hint("renew it")
            }
            false => {
                let message = format!("the certificate for {name} expires in {days} days");
                Problem::warning(object, "cert", message).hint("renew it: clients refuse it afterwards")
            }
        }
    });
    told.collect()
}

/// Problems of what others are verified by in this snapshot, and that has ended or soon will.
pub(crate) fn trusted_problems(snapshot: &Snapshot, warning_days: u32, now_unix_s: i64) -> Vec<Problem> {
    let all = trusted::look(snapshot);
    all.iter().flat_map(|trusted| trusted.problems(warning_days, now_unix_s)).collect()
}

/// Looks now and then, and after each change.
pub(super) async fn watch(expiry: Arc<ExpiryMonitor>, control: ControlHandle, warning_days: u32) {
    let mut snapshots = control.snapshots.clone();
    loop {
        let snapshot = snapshots.borrow_and_update().clone();
        let seen = look(&snapshot);
        drop(snapshot);
        let now_unix_s = now_unix_s();
        let mut told = problems(&seen, warning_days, now_unix_s);
        told.extend(seen.trusted.iter().flat_map(|trusted| trusted.problems(warning_days, now_unix_s)));
        *expiry.0.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        // The control thread ends with the process.
        let _ = control.messages.send(ControlMessage::Problems(ProblemSource::Expiry, told));
        match tokio::time::timeout(PAUSE, snapshots.changed()).await {
            Ok(Err(_)) => return,
            // Many changes may follow each other.
            Ok(Ok(())) => tokio::time::sleep(SETTLE).await,
            Err(_) => {}
        }
    }
}

impl MetricSource for ExpiryMonitor {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |value: usize| {
            vec![MetricSeries { labels: Vec::new(), value: MetricValue::Number(value as f64) }]
        };
        out.push(MetricFamily {
            name: "yumen_tls_certificates".into(),
            help: "Server certificate objects.".into(),
            kind: MetricKind::Gauge,
            samples: one(seen.certificates),
        });
        let ends = seen.first.iter().map(|end| MetricSeries {
            labels: vec![("ssl", end.id.clone()), ("sni", end.name.clone())],
            value: MetricValue::Number(end.at_unix_s as f64),
        });
        out.push(MetricFamily {
            name: "yumen_tls_certificate_expiry_seconds".into(),
            help: "Expiry of a certificate, in seconds since the Unix epoch; the 100 earliest.".into(),
            kind: MetricKind::Gauge,
            samples: ends.collect(),
        });
    }
}

#[cfg(test)]
mod tests;
