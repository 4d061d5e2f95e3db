//! Failed logins of the admin listener: a limit per address, log lines at a bounded rate, a metric.
//!
//! Only wrong keys and failed logins at the provider count. Sessions, the admin socket and other addresses never wait, nor
//! does a key that this address has used with success: a tool with an old key does not lock out its neighbours.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};

/// Failures in a row before an address must wait.
const FAILURES_MAX: f64 = 20.0;
/// Time in which one failure is forgotten.
const FORGIVEN_AFTER: Duration = Duration::from_secs(5);
/// Addresses at once; the one without failures for the longest time gives way.
const ADDRESSES_MAX: usize = 4096;
/// Keys of an address that were accepted.
const ACCEPTED_MAX: usize = 16;
/// Time from one log line to the next.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// The form of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoginForm {
    /// A key of the Admin API.
    Key,
    /// A user of the identity provider.
    Openid,
}

/// The origin of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LoginOrigin {
    address: IpAddr,
    /// Whether a browser sends the request for a page of another site. Such pages fail on purpose, and must not make the
    /// user of the browser wait.
    is_foreign_page: bool,
}

impl LoginOrigin {
    /// The origin at an address: all of the network of an IPv6 address, which one client can use whole.
    pub(crate) fn new(peer: IpAddr, is_foreign_page: bool) -> LoginOrigin {
        let address = match peer.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
            address => address,
        };
        LoginOrigin { address, is_foreign_page }
    }
}

/// The label of each counter.
const REASONS: [&str; 3] = ["key", "openid", "limited"];
const LIMITED: usize = 2;

/// Failures of all addresses.
#[derive(Default)]
pub struct LoginGuard {
    origins: Mutex<HashMap<LoginOrigin, AddressRecord>>,
    failures: [AtomicU64; REASONS.len()],
    /// Time of the last log line, and the failures since.
    logged: Mutex<(Option<Instant>, u64)>,
}

/// Omits addresses and digests.
impl fmt::Debug for LoginGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoginGuard")
    }
}

struct AddressRecord {
    /// Failures that are not forgotten yet, as of `at`.
    level: f64,
    at: Instant,
    /// Digests of keys.
    accepted: VecDeque<String>,
}

impl AddressRecord {
    fn level(&self, now: Instant) -> f64 {
        let forgotten = now.duration_since(self.at).as_secs_f64() / FORGIVEN_AFTER.as_secs_f64();
        (self.level - forgotten).max(0.0)
    }
}

impl LoginGuard {
    /// The time that an address must wait before a key with this digest, or another login, is checked.
    pub(crate) fn wait_of(
        &self,
        origin: LoginOrigin,
        key_sha256: Option<&str>,
        now: Instant,
    ) -> Option<Duration> {
        let table = self.table();
        let record = table.get(&origin)?;
        let surplus = record.level(now) - FAILURES_MAX + 1.0;
        let is_known = key_sha256.is_some_and(|digest| record.accepted.iter().any(|one| one == digest));
        if surplus <= 0.0 || is_known {
            return None;
        }
        drop(table);
        self.failures[LIMITED].fetch_add(1, Ordering::Relaxed);
        Some(FORGIVEN_AFTER.mul_f64(surplus))
    }

    /// Counts a failure.
    pub(crate) fn record_failure(&self, origin: LoginOrigin, form: LoginForm, reason: &str, now: Instant) {
        self.failures[form as usize].fetch_add(1, Ordering::Relaxed);
        {
            let mut table = self.table();
            let record = record_of(&mut table, origin, now);
            record.level = record.level(now) + 1.0;
            record.at = now;
        }
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.0.is_some_and(|at| now.duration_since(at) < LOG_PAUSE) {
            logged.1 += 1;
            return;
        }
        let suppressed = std::mem::take(&mut logged.1);
        logged.0 = Some(now);
        drop(logged);
        let LoginOrigin { address, is_foreign_page } = origin;
        let form = REASONS[form as usize];
        tracing::warn!(%address, is_foreign_page, form, reason, suppressed, "admin login failed");
    }

    /// Remembers a key that was accepted.
    pub(crate) fn record_success(&self, origin: LoginOrigin, key_sha256: &str, now: Instant) {
        let mut table = self.table();
        let record = record_of(&mut table, origin, now);
        if record.accepted.iter().any(|one| one == key_sha256) {
            return;
        }
        if record.accepted.len() >= ACCEPTED_MAX {
            record.accepted.pop_front();
        }
        record.accepted.push_back(key_sha256.to_owned());
    }

    fn table(&self) -> MutexGuard<'_, HashMap<LoginOrigin, AddressRecord>> {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn record_of(
    table: &mut HashMap<LoginOrigin, AddressRecord>,
    origin: LoginOrigin,
    now: Instant,
) -> &mut AddressRecord {
    if table.len() >= ADDRESSES_MAX && !table.contains_key(&origin) {
        let lowest = table.iter().min_by(|(_, one), (_, other)| {
            one.level(now).total_cmp(&other.level(now)).then(one.at.cmp(&other.at))
        });
        let lowest = lowest.map(|(origin, _)| *origin);
        lowest.and_then(|origin| table.remove(&origin));
    }
    table.entry(origin).or_insert_with(|| AddressRecord { level: 0.0, at: now, accepted: VecDeque::new() })
}

impl MetricSource for LoginGuard {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let series = REASONS.iter().zip(&self.failures).map(|(reason, count)| MetricSeries {
            labels: vec![("reason", (*reason).to_owned())],
            value: MetricValue::Number(count.load(Ordering::Relaxed) as f64),
        });
        out.push(MetricFamily {
            name: "yumen_admin_login_failures_total".into(),
            help: "Failed logins of the admin listener: wrong keys, logins at the identity provider, and attempts \
                   refused with 429 because the address had failed too often."
                .into(),
            kind: MetricKind::Counter,
            samples: series.collect(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "192.0.2.1";

    fn peer(text: &str) -> LoginOrigin {
        LoginOrigin::new(text.parse().unwrap(), false)
    }

    fn fail(guard: &LoginGuard, address: &str, times: usize, now: Instant) {
        (0..times).for_each(|_| guard.record_failure(peer(address), LoginForm::Key, "wrong", now));
    }

    #[test]
    fn address_waits_after_failures_and_others_do_not() {
        let (guard, now) = (LoginGuard::default(), Instant::now());
        let waits = |address: &str, at| guard.wait_of(peer(address), None, at).is_some();
        fail(&guard, OWN, 19, now);
        assert!(!waits(OWN, now));
        fail(&guard, OWN, 1, now);
        assert_eq!(guard.wait_of(peer(OWN), None, now), Some(FORGIVEN_AFTER));
        // An address of IPv4 that arrives over a socket of IPv6 is the same one.
        assert!(waits("::ffff:192.0.2.1", now) && !waits("192.0.2.2", now));
        assert!(!waits(OWN, now + FORGIVEN_AFTER));
    }

    #[test]
    fn addresses_of_one_ipv6_network_wait_together() {
        let (guard, now) = (LoginGuard::default(), Instant::now());
        (0..20).for_each(|at| fail(&guard, &format!("2001:db8::{at:x}"), 1, now));
        assert!(guard.wait_of(peer("2001:db8::ffff"), None, now).is_some());
        assert!(guard.wait_of(peer("2001:db8:0:1::1"), None, now).is_none());
    }

    #[test]
    fn page_of_another_site_makes_no_one_else_wait() {
        let (guard, now) = (LoginGuard::default(), Instant::now());
        let page = LoginOrigin::new(OWN.parse().unwrap(), true);
        (0..30).for_each(|_| guard.record_failure(page, LoginForm::Key, "wrong", now));
        assert!(guard.wait_of(page, None, now).is_some() && guard.wait_of(peer(OWN), None, now).is_none());
    }

    #[test]
    fn key_that_was_accepted_is_not_limited() {
        let (guard, now) = (LoginGuard::default(), Instant::now());
        guard.record_success(peer(OWN), "good", now);
        fail(&guard, OWN, 30, now);
        assert!(guard.wait_of(peer(OWN), Some("good"), now).is_none());
        assert!(guard.wait_of(peer(OWN), Some("other"), now).is_some());
    }

    #[test]
    fn table_keeps_the_addresses_with_failures() {
        let (guard, now) = (LoginGuard::default(), Instant::now());
        fail(&guard, OWN, 20, now);
        for at in 0..ADDRESSES_MAX as u32 + 10 {
            let address = IpAddr::V4((0x0a00_0000 + at).into());
            guard.record_success(LoginOrigin::new(address, false), "key", now);
        }
        assert_eq!(guard.table().len(), ADDRESSES_MAX);
        assert!(guard.wait_of(peer(OWN), None, now).is_some());
    }

    #[test]
    fn failures_are_counted_by_reason() {
        let (guard, now) = (LoginGuard::default(), Instant::now());
        fail(&guard, OWN, 20, now);
        guard.record_failure(peer(OWN), LoginForm::Openid, "refused", now);
        let _ = guard.wait_of(peer(OWN), None, now);
        let mut families = Vec::new();
        guard.gather(&mut families);
        let values: Vec<&MetricValue> = families[0].samples.iter().map(|one| &one.value).collect();
        assert_eq!(values, [20.0, 1.0, 1.0].map(MetricValue::Number).iter().collect::<Vec<_>>());
    }
}
