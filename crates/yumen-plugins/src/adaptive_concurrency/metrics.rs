//! Metrics of all concurrency limiters of the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_plugin::Carry;

use super::limiter::{AdaptiveLimitRules, AdaptiveLimiter};

/// The concurrency limiters of the process, by the object with their settings.
#[derive(Debug, Default)]
pub struct AdaptiveLimiters(Mutex<BTreeMap<Box<str>, Weak<AdaptiveLimiter>>>);

/// The registry of this process's limiters. The exporter must retain the returned reference.
pub fn metrics(carry: &Carry) -> Arc<AdaptiveLimiters> {
    carry.keep("adaptive-concurrency", AdaptiveLimiters::default)
}

/// A registry with one limiter, from which the reference page of the metrics is generated.
pub fn example() -> AdaptiveLimiters {
    let limiters = AdaptiveLimiters::default();
    let rules = AdaptiveLimitRules {
        min: 1,
        max: 1,
        first: 1,
        tolerance: 1.0,
        window_us: 1,
        measure_interval_us: 1,
        measure_requests: 1,
    };
    let limiter = Arc::new(AdaptiveLimiter::new(rules));
    limiters.show("services/1", &limiter);
    // Leaked on purpose: the registry keeps weak references, and the process only writes the reference page.
    std::mem::forget(limiter);
    limiters
}

impl AdaptiveLimiters {
    pub(super) fn show(&self, owner: &str, limiter: &Arc<AdaptiveLimiter>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Limiters of replaced settings leave dead entries behind.
        all.retain(|_, limiter| limiter.strong_count() > 0);
        all.insert(owner.into(), Arc::downgrade(limiter));
    }

    fn family(
        &self,
        name: &str,
        help: &str,
        kind: MetricKind,
        read: fn(&AdaptiveLimiter) -> f64,
    ) -> MetricFamily {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sample = |owner: &str, limiter: &Weak<AdaptiveLimiter>| {
            let value = MetricValue::Number(read(&*limiter.upgrade()?));
            Some(MetricSeries { labels: vec![("owner", owner.to_owned())], value })
        };
        let samples = all.iter().filter_map(|(owner, limiter)| sample(owner, limiter)).collect();
        MetricFamily { name: name.to_owned().into(), help: help.to_owned().into(), kind, samples }
    }
}

impl MetricSource for AdaptiveLimiters {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let gauge = MetricKind::Gauge;
        out.push(self.family(
            "yumen_adaptive_concurrency_limit",
            "Concurrency limit computed by `adaptive-concurrency`.",
            gauge,
            |limiter| f64::from(limiter.limit()),
        ));
        out.push(self.family(
            "yumen_adaptive_concurrency_running",
            "Exchanges in flight under `adaptive-concurrency`.",
            gauge,
            |limiter| f64::from(limiter.running()),
        ));
        out.push(self.family(
            "yumen_adaptive_concurrency_baseline_seconds",
            "The upstream's own latency, as last measured.",
            gauge,
            |limiter| limiter.baseline_us() as f64 / 1e6,
        ));
        out.push(self.family(
            "yumen_adaptive_concurrency_refused_total",
            "Requests refused by `adaptive-concurrency`.",
            MetricKind::Counter,
            |limiter| limiter.refused() as f64,
        ));
    }
}
