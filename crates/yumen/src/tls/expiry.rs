//! Expiry of certificates and of trusted material: exported as metrics, and reported as problems in advance.

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

/// Maximum number of certificates with a series; the earliest to expire.
const SERIES_MAX: usize = 100;
/// Interval of checks, and the delay of a check after a change.
const PAUSE: Duration = Duration::from_secs(600);
const SETTLE: Duration = Duration::from_millis(500);
const DAY_S: i64 = 24 * 60 * 60;

/// Expiry times as of the last check.
#[derive(Default)]
pub(crate) struct ExpiryMonitor(Mutex<ExpiryState>);

#[derive(Default)]
struct ExpiryState {
    certificates: usize,
    /// Sorted by expiry.
    first: Vec<CertificateExpiry>,
    /// Sorted by the earliest expiry.
    trusted: Vec<TrustedMaterial>,
}

/// Expiry of an object's certificate.
struct CertificateExpiry {
    at_unix_s: i64,
    /// Lifetime, from notBefore to notAfter.
    life_s: i64,
    id: String,
    /// First of its names in order.
    name: String,
}

/// Earliest expiry, lifetime and name of each object.
fn ends(snapshot: &Snapshot) -> BTreeMap<&str, (i64, i64, &str)> {
    let mut ends = BTreeMap::new();
    for (name, certificate) in snapshot.certificates() {
        let pairs = certificate.keys.iter().filter_map(|pair| pair.downcast_ref::<CertificateKeyPair>());
        let validity = pairs.map(CertificateKeyPair::validity_unix_s);
        let Some((from, until)) = validity.min_by_key(|(_, until)| *until) else { continue };
        let known = ends.entry(&*certificate.id).or_insert((until, until - from, name));
        // The smallest name, so that the label does not depend on the order of the table.
        known.2 = known.2.min(name);
    }
    ends
}

/// The validity of every server certificate object, for operators.
pub(crate) fn certificates(snapshot: &Snapshot) -> serde_json::Value {
    let all = ends(snapshot).into_iter().map(|(id, (until, life_s, name))| {
        serde_json::json!({
            "id": id,
            "name": name,
            "not_before_unix_s": until - life_s,
            "not_after_unix_s": until,
        })
    });
    serde_json::json!({ "certificates": all.collect::<Vec<_>>() })
}

fn look(snapshot: &Snapshot) -> ExpiryState {
    let ends = ends(snapshot);
    let certificates = ends.len();
    let mut first: Vec<_> = ends.into_iter().map(|(id, (at, life, name))| (at, id, life, name)).collect();
    first.sort_unstable();
    let series = first.into_iter().take(SERIES_MAX).map(|(at_unix_s, id, life_s, name)| CertificateExpiry {
        at_unix_s,
        life_s,
        id: id.to_owned(),
        name: name.to_owned(),
    });
    ExpiryState { certificates, first: series.collect(), trusted: trusted::look(snapshot) }
}

/// Whether an expiry is within the warning time, which is at most a quarter of the lifetime. Short-lived
/// certificates are renewed in their last third, so an earlier warning would be a false alarm.
fn ends_soon(at_unix_s: i64, life_s: i64, warning_days: u32, now_unix_s: i64) -> bool {
    at_unix_s < now_unix_s + (i64::from(warning_days) * DAY_S).min(life_s / 4)
}

/// Problems of expired certificates, and of those that expire soon.
fn problems(seen: &ExpiryState, warning_days: u32, now_unix_s: i64) -> Vec<Problem> {
    let soon = seen.first.iter().filter(|end| ends_soon(end.at_unix_s, end.life_s, warning_days, now_unix_s));
    let problems = soon.map(|CertificateExpiry { at_unix_s, id, name, .. }| {
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
    problems.collect()
}

/// Problems of expired trust anchors and CRLs in this snapshot, and of those that expire soon.
pub(crate) fn trusted_problems(snapshot: &Snapshot, warning_days: u32, now_unix_s: i64) -> Vec<Problem> {
    let all = trusted::look(snapshot);
    all.iter().flat_map(|trusted| trusted.problems(warning_days, now_unix_s)).collect()
}

/// Checks after every change and every `PAUSE`.
pub(super) async fn watch(expiry: Arc<ExpiryMonitor>, control: ControlHandle, warning_days: u32) {
    let mut snapshots = control.snapshots.clone();
    loop {
        let snapshot = snapshots.borrow_and_update().clone();
        let seen = look(&snapshot);
        // A snapshot that is held would delay the release of retired ones.
        drop(snapshot);
        let now_unix_s = now_unix_s();
        let mut expiring = problems(&seen, warning_days, now_unix_s);
        expiring.extend(seen.trusted.iter().flat_map(|trusted| trusted.problems(warning_days, now_unix_s)));
        *expiry.0.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        // Fails only if the process is ending and the control thread with it.
        let _ = control.messages.send(ControlMessage::Problems(ProblemSource::Expiry, expiring));
        match tokio::time::timeout(PAUSE, snapshots.changed()).await {
            Ok(Err(_)) => return,
            // Collects a burst of changes into one check.
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
