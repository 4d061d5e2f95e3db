//! Outlier detection: endpoints that fail more than the others are ejected for a while.
//!
//! The result of each attempt triggers the evaluation. There is no timer, so an idle upstream costs nothing.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use super::limiter::EndpointCounts;

/// The shortest ejection, in milliseconds, if all other endpoints fail as well.
const EARLY_RETURN_MS: u64 = 1000;

/// The rules for ejections and their duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OutlierRules {
    /// Consecutive 5xx responses or gateway failures that eject an endpoint; 0 disables the rule.
    pub consecutive_5xx: u32,
    /// Consecutive gateway failures that eject an endpoint; 0 disables the rule.
    pub consecutive_gateway_failures: u32,
    /// Ejection by success rate.
    pub success_rate: Option<SuccessRateRules>,
    /// The interval of comparisons of success rates, in milliseconds.
    pub interval_ms: u64,
    /// The duration of the first ejection, in milliseconds. Each further one is longer by this.
    pub base_ejection_ms: u64,
    /// The longest ejection, in milliseconds.
    pub max_ejection_ms: u64,
    /// The largest share of endpoints that are ejected at a time.
    pub max_ejected_percent: u32,
}

/// The rule for ejection by success rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SuccessRateRules {
    /// The least requests of an endpoint in an interval for a comparison.
    pub requests_min: u32,
    /// The least endpoints in a comparison for an ejection.
    pub endpoints_min: u32,
    /// The distance below the mean that ejects an endpoint, in standard deviations.
    pub deviations: f64,
}

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptFailure {
    /// No failure.
    None,
    /// A 5xx response that the endpoint itself may have generated.
    Server,
    /// No response, or one of a gateway behind: 502, 503, 504.
    Gateway,
}

impl AttemptFailure {
    /// The result by the status of a response.
    pub fn of_status(status: u16) -> AttemptFailure {
        match status {
            502..=504 => AttemptFailure::Gateway,
            500..=599 => AttemptFailure::Server,
            _ => AttemptFailure::None,
        }
    }
}

/// The ejection of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EjectionEvent {
    /// The index of the endpoint.
    pub index: usize,
    /// The reason, for logs.
    pub reason: &'static str,
    /// The duration, in milliseconds.
    pub for_ms: u64,
}

/// The ejection state of an endpoint, and the counts that decide on it.
#[derive(Debug, Default)]
pub struct EndpointEjection {
    is_ejected: AtomicBool,
    /// The end of the ejection, in milliseconds of the monotonic clock.
    until_ms: AtomicU64,
    /// The number of ejections, less one for each interval without one. Longer ejections follow from it.
    times: AtomicU32,
    /// The number of all ejections.
    total: AtomicU64,
    failures_5xx: AtomicU32,
    failures_gateway: AtomicU32,
    /// Counts of the current interval.
    requests: AtomicU32,
    successes: AtomicU32,
}

impl EndpointEjection {
    /// Whether the endpoint is ejected.
    pub fn is_ejected(&self) -> bool {
        self.is_ejected.load(Relaxed)
    }

    /// The end of the ejection, in milliseconds of the monotonic clock; `None` if the endpoint is not ejected.
    pub fn until_ms(&self) -> Option<u64> {
        self.is_ejected().then(|| self.until_ms.load(Relaxed))
    }

    /// The number of ejections.
    pub fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// The state for a successor process, without the counts of the current interval.
    pub(crate) fn export(&self) -> [u64; 6] {
        let [times, failures_5xx, failures_gateway] =
            [&self.times, &self.failures_5xx, &self.failures_gateway].map(|count| count.load(Relaxed).into());
        let until_ms = self.until_ms().unwrap_or(0);
        [self.is_ejected().into(), until_ms, times, self.total(), failures_5xx, failures_gateway]
    }

    /// Restores the state that [`Self::export`] returned.
    pub(crate) fn go_on_from(&self, exported: [u64; 6]) {
        let [is_ejected, until_ms, times, total, failures_5xx, failures_gateway] = exported;
        self.until_ms.store(until_ms, Relaxed);
        self.total.store(total, Relaxed);
        let counts = [
            (&self.times, times),
            (&self.failures_5xx, failures_5xx),
            (&self.failures_gateway, failures_gateway),
        ];
        counts
            .into_iter()
            // A value out of range can only come from another version; zero forgets it.
            .for_each(|(count, exported)| count.store(exported.try_into().unwrap_or(0), Relaxed));
        self.is_ejected.store(is_ejected != 0, Relaxed);
    }

    fn count(&self, rules: &OutlierRules, failure: AttemptFailure) -> Option<&'static str> {
        // Counters of a heuristic: a lost order between workers shifts a comparison by one request at most.
        self.requests.fetch_add(1, Relaxed);
        let add = |count: &AtomicU32| count.fetch_add(1, Relaxed) + 1;
        match failure {
            AttemptFailure::None => {
                self.successes.fetch_add(1, Relaxed);
                clear(&self.failures_5xx);
                clear(&self.failures_gateway);
                return None;
            }
            // Another 5xx ends a series of gateway failures: a server responded.
            AttemptFailure::Server => clear(&self.failures_gateway),
            AttemptFailure::Gateway if rules.consecutive_gateway_failures > 0 => {
                if add(&self.failures_gateway) >= rules.consecutive_gateway_failures {
                    return Some("consecutive gateway failures");
                }
            }
            AttemptFailure::Gateway => {}
        }
        let is_over = rules.consecutive_5xx > 0 && add(&self.failures_5xx) >= rules.consecutive_5xx;
        is_over.then_some("consecutive 5xx")
    }

    /// Whether consecutive failures reach a rule.
    fn is_failing(&self, rules: &OutlierRules) -> bool {
        let reaches = |count: &AtomicU32, most: u32| most > 0 && count.load(Relaxed) >= most;
        reaches(&self.failures_gateway, rules.consecutive_gateway_failures)
            || reaches(&self.failures_5xx, rules.consecutive_5xx)
    }

    fn eject(&self, rules: &OutlierRules, now_ms: u64) -> u64 {
        let times = self.times.fetch_add(1, Relaxed).saturating_add(1);
        // As in Envoy: the time grows linearly with the number of ejections.
        let for_ms = rules.base_ejection_ms.saturating_mul(u64::from(times)).min(rules.max_ejection_ms);
        self.until_ms.store(now_ms + for_ms, Relaxed);
        self.total.fetch_add(1, Relaxed);
        self.is_ejected.store(true, Relaxed);
        for_ms
    }

    fn take_back_one_time(&self) {
        // An endpoint that was never ejected stays at zero; the failed update is intended.
        let _ = self.times.fetch_update(Relaxed, Relaxed, |times| times.checked_sub(1));
    }

    /// Ends the ejection and clears the counts of failures.
    fn end_ejection(&self) {
        // Failures before the ejection must not count towards the next one.
        for count in [&self.failures_5xx, &self.failures_gateway, &self.requests, &self.successes] {
            clear(count);
        }
        self.is_ejected.store(false, Relaxed);
    }
}

/// Clears a count. All workers read its cache line, so it is only written if it changes.
fn clear(count: &AtomicU32) {
    if count.load(Relaxed) != 0 {
        count.store(0, Relaxed);
    }
}

/// Outlier detection of an upstream as a whole.
#[derive(Debug, Default)]
pub struct OutlierState {
    /// The next end of an ejection; 0 if there is none.
    due_ms: AtomicU64,
    /// The end of the current interval; 0 before the first.
    interval_ends_ms: AtomicU64,
    /// The time of the last ejection.
    ejected_at_ms: AtomicU64,
    /// Locked while ejections begin or end, so that two workers do not eject more endpoints than allowed.
    deciding: Mutex<()>,
}

impl OutlierState {
    /// Whether an ejection may have ended.
    pub fn is_due(&self, now_ms: u64) -> bool {
        let due_ms = self.due_ms.load(Relaxed);
        due_ms != 0 && now_ms >= due_ms
    }

    /// Ends the ejections whose time has passed.
    pub fn end_ejections(&self, all: &[Arc<EndpointCounts>], now_ms: u64) {
        // Only a worker that finds the time due takes the lock.
        let _deciding = self.deciding.lock().unwrap_or_else(PoisonError::into_inner);
        for ejection in all.iter().map(|tally| &tally.ejection) {
            if ejection.until_ms().is_some_and(|until_ms| now_ms >= until_ms) {
                ejection.end_ejection();
            }
        }
        self.schedule_evaluation(all);
    }

    /// The next end of an ejection, in milliseconds of the monotonic clock; 0 if there is none.
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms.load(Relaxed)
    }

    /// Sets the next end of an ejection, from the predecessor process.
    pub(crate) fn evaluate_at(&self, due_ms: u64) {
        self.due_ms.store(due_ms, Relaxed);
    }

    fn schedule_evaluation(&self, all: &[Arc<EndpointCounts>]) {
        let next = all.iter().filter_map(|tally| tally.ejection.until_ms()).min();
        self.due_ms.store(next.unwrap_or(0), Relaxed);
    }

    /// Counts the result of an attempt; returns the ejection that follows from it.
    pub fn observe(
        &self,
        rules: &OutlierRules,
        all: &[Arc<EndpointCounts>],
        index: usize,
        failure: AttemptFailure,
        now_ms: u64,
    ) -> Option<EjectionEvent> {
        let reason = all[index].ejection.count(rules, failure);
        let mut news = reason.and_then(|reason| self.eject(rules, all, index, reason, now_ms));
        // The interval is checked at the end of an attempt: without traffic there is nothing to compare.
        if self.ends_interval(rules, now_ms) {
            news = news.or(self.end_interval(rules, all, now_ms));
        }
        news
    }

    fn eject(
        &self,
        rules: &OutlierRules,
        all: &[Arc<EndpointCounts>],
        index: usize,
        reason: &'static str,
        now_ms: u64,
    ) -> Option<EjectionEvent> {
        let _deciding = self.deciding.lock().unwrap_or_else(PoisonError::into_inner);
        let ejection = &all[index].ejection;
        let out = all.iter().filter(|tally| tally.ejection.is_ejected()).count();
        // At least one endpoint may be ejected, whatever the percentage, but never the last one.
        let out_max = (all.len() * rules.max_ejected_percent as usize / 100).max(1).min(all.len() - 1);
        // Another worker may have decided while this one waited for the lock.
        if ejection.is_ejected() {
            return None;
        }
        if out >= out_max {
            // At the bound, the rest may fail as well: then the ejected ones are worth a try.
            self.return_early(rules, all, now_ms);
            return None;
        }
        self.ejected_at_ms.store(now_ms, Relaxed);
        let for_ms = ejection.eject(rules, now_ms);
        self.schedule_evaluation(all);
        Some(EjectionEvent { index, reason, for_ms })
    }

    /// Ends all ejections if the other endpoints fail like the ejected ones: these may have recovered, and only requests
    /// can show that. The caller holds `deciding`.
    fn return_early(&self, rules: &OutlierRules, all: &[Arc<EndpointCounts>], now_ms: u64) {
        let lasts_ms = now_ms.saturating_sub(self.ejected_at_ms.load(Relaxed));
        let fails = |ejection: &EndpointEjection| ejection.is_ejected() || ejection.is_failing(rules);
        if lasts_ms < EARLY_RETURN_MS || !all.iter().all(|tally| fails(&tally.ejection)) {
            return;
        }
        for ejection in all.iter().map(|tally| &tally.ejection).filter(|ejection| ejection.is_ejected()) {
            // An early return is no proof of misconduct: the next ejection must not be longer for it.
            ejection.take_back_one_time();
        }
        all.iter().for_each(|tally| tally.ejection.end_ejection());
        self.schedule_evaluation(all);
    }

    /// Whether the interval has ended; true for one caller only.
    fn ends_interval(&self, rules: &OutlierRules, now_ms: u64) -> bool {
        let ends_ms = self.interval_ends_ms.load(Relaxed);
        let next_ms = now_ms + rules.interval_ms;
        let is_over = now_ms >= ends_ms;
        let is_mine =
            // The swap elects one worker; the others continue with the new interval.
            is_over && self.interval_ends_ms.compare_exchange(ends_ms, next_ms, Relaxed, Relaxed).is_ok();
        // The first request only starts the first interval.
        is_mine && ends_ms != 0
    }

    /// Compares success rates, and shortens the next ejection of endpoints that are not ejected.
    fn end_interval(
        &self,
        rules: &OutlierRules,
        all: &[Arc<EndpointCounts>],
        now_ms: u64,
    ) -> Option<EjectionEvent> {
        let mut rates = Vec::new();
        for (index, ejection) in all.iter().map(|tally| &tally.ejection).enumerate() {
            let requests = ejection.requests.swap(0, Relaxed);
            // Other workers may have counted between the two swaps.
            let successes = ejection.successes.swap(0, Relaxed).min(requests);
            // An ejected endpoint has too few requests to compare, and earns no reduction.
            if ejection.is_ejected() {
                continue;
            }
            ejection.take_back_one_time();
            if rules.success_rate.is_some_and(|rule| requests >= rule.requests_min) {
                rates.push((index, f64::from(successes) / f64::from(requests.max(1))));
            }
        }
        let rule = rules.success_rate.filter(|rule| rates.len() >= rule.endpoints_min as usize)?;
        let lowest = lowest_allowed(&rates, rule.deviations);
        let mut news = None;
        for (index, _) in rates.into_iter().filter(|(_, rate)| *rate < lowest) {
            news = self.eject(rules, all, index, "success rate", now_ms).or(news);
        }
        news
    }
}

fn lowest_allowed(rates: &[(usize, f64)], deviations: f64) -> f64 {
    let count = rates.len().max(1) as f64;
    let mean = rates.iter().map(|(_, rate)| rate).sum::<f64>() / count;
    // The population variance, as in Envoy.
    let variance = rates.iter().map(|(_, rate)| (rate - mean) * (rate - mean)).sum::<f64>() / count;
    mean - variance.sqrt() * deviations
}
