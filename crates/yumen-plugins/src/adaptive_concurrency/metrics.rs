//! The limits of this process as metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use yumen_base::metric::{Family, Gather, MetricKind, Sample, Value};
use yumen_plugin::Carry;

use super::limiter::{Limiter, Rules};

/// The limits there are, by the object their settings stand in.
#[derive(Debug, Default)]
pub struct Limiters(Mutex<BTreeMap<Box<str>, Weak<Limiter>>>);

/// The limits of this process. Whoever exports them holds on to what this gives.
pub fn metrics(carry: &Carry) -> Arc<Limiters> {
    carry.keep("adaptive-concurrency", Limiters::default)
}

/// One limit, for the reference.
pub fn example() -> Limiters {
    let limiters = Limiters::default();
    let rules = Rules {
        min: 1,
        max: 1,
        first: 1,
        tolerance: 1.0,
        window_us: 1,
        measure_interval_us: 1,
        measure_requests: 1,
    };
    let limiter = Arc::new(Limiter::new(rules));
    limiters.show("services/1", &limiter);
    // Held for as long as the process that writes the reference.
    std::mem::forget(limiter);
    limiters
}

impl Limiters {
    pub(super) fn show(&self, owner: &str, limiter: &Arc<Limiter>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, limiter| limiter.strong_count() > 0);
        all.insert(owner.into(), Arc::downgrade(limiter));
    }

    fn family(&self, name: &str, help: &str, kind: MetricKind, read: fn(&Limiter) -> f64) -> Family {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sample = |owner: &str, limiter: &Weak<Limiter>| {
            let value = Value::Number(read(&*limiter.upgrade()?));
            Some(Sample { labels: vec![("owner", owner.to_owned())], value })
        };
        let samples = all.iter().filter_map(|(owner, limiter)| sample(owner, limiter)).collect();
        Family { name: name.to_owned().into(), help: help.to_owned().into(), kind, samples }
    }
}

impl Gather for Limiters {
    fn gather(&self, out: &mut Vec<Family>) {
        let gauge = MetricKind::Gauge;
        out.push(self.family(
            "yumen_adaptive_concurrency_limit",
            "Exchanges that may be under way, as `adaptive-concurrency` found.",
            gauge,
            |limiter| f64::from(limiter.limit()),
        ));
        out.push(self.family(
            "yumen_adaptive_concurrency_running",
            "Exchanges under way that `adaptive-concurrency` counts.",
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
