//! Resolution of host names of endpoints, off the request path, with refresh by TTL.
//!
//! Runs on the control runtime. The caller provides the names and receives the addresses.

mod names;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Hosts as StaticHosts, system_conf};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use yumen_base::metric::{self, MetricFamily, MetricKind, MetricSeries, MetricSource};
use yumen_config::node::DnsConfig;

use super::inputs::{HostAddresses, RequiredHosts};
pub(crate) use names::HostNames;

/// Maximum number of concurrent lookups.
const LOOKUPS_MAX: usize = 32;

/// First pause after a failure; doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_secs(1);

/// Maximum pause after failures.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Time to wait for a first answer before earlier addresses are used.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// Number of names that currently fail to resolve, and total number of failed resolutions.
static STALE: AtomicU64 = AtomicU64::new(0);
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// Metrics of name resolution.
pub(crate) struct DnsMetrics;

/// Metric families of this module, without values, for the generated reference.
pub(crate) fn describe(out: &mut Vec<MetricFamily>) {
    DnsMetrics.gather(out);
}

const HOSTS_FILE: &str = "/etc/hosts";

/// Resolves the required names and refreshes them, until the sender of `hosts` is dropped. Invalid settings
/// are an error at once.
///
/// A name is resolved when it appears, or when its request number changes, and again when its TTL ends. It is
/// forgotten when it disappears. `report` receives the first result, which is empty after a failure, and
/// every change: IPv4 first, each family in ascending order. While a name fails to resolve, its last
/// addresses stay in use, including those of the predecessor or an earlier run in `names`. `/etc/hosts` takes
/// precedence over name servers.
pub(crate) async fn keep_resolved(
    mut hosts: watch::Receiver<RequiredHosts>,
    settings: DnsConfig,
    names: Arc<HostNames>,
    report: impl Fn(Box<str>, Vec<IpAddr>) + Send + Sync + 'static,
) -> Result<(), String> {
    // Built at once, so that invalid settings are reported at the start.
    let context = ResolverContext::new(&settings, names.clone(), Box::new(report))
        .inspect_err(|error| tracing::error!(error, "host name resolution unavailable"))?;
    let context = Arc::new(context);
    let mut tasks = JoinSet::new();
    tasks.spawn(names.clone().save());
    let mut running: HashMap<Box<str>, (u64, AbortHandle)> = HashMap::new();
    loop {
        let required = hosts.borrow_and_update().clone();
        running.retain(|name, (number, task)| {
            // A new number means that the name was released in between: its addresses are resolved anew.
            let stays = required.get(name) == Some(number);
            if !stays {
                task.abort();
                // Addresses of a name that nothing uses must not be saved.
                names.forget(name);
            }
            stays
        });
        for (name, number) in required.iter() {
            if !running.contains_key(name) {
                running.insert(name.clone(), (*number, tasks.spawn(context.clone().keep(name.clone()))));
            }
        }
        // The JoinSet keeps results of finished tasks until they are joined.
        while tasks.try_join_next().is_some() {}
        if hosts.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// Counts a name as stale; uncounts it on drop.
struct StaleNameGuard;

impl StaleNameGuard {
    fn begin() -> StaleNameGuard {
        STALE.fetch_add(1, Relaxed);
        StaleNameGuard
    }
}

impl Drop for StaleNameGuard {
    fn drop(&mut self) {
        STALE.fetch_sub(1, Relaxed);
    }
}

impl MetricSource for DnsMetrics {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let mut family = |name: &'static str, help: &'static str, kind, value: &AtomicU64| {
            let value = metric::MetricValue::Number(value.load(Relaxed) as f64);
            let samples = vec![MetricSeries { labels: Vec::new(), value }];
            out.push(MetricFamily { name: name.into(), help: help.into(), kind, samples });
        };
        family(
            "yumen_dns_names_stale",
            "Endpoint host names that currently fail to resolve; the last addresses stay in use.",
            MetricKind::Gauge,
            &STALE,
        );
        family(
            "yumen_dns_failures_total",
            "Failed resolutions of endpoint host names.",
            MetricKind::Counter,
            &FAILURES,
        );
    }
}

/// Result of one address family.
enum DnsAnswer {
    /// Addresses with their TTL, if known.
    Addresses(Vec<IpAddr>, Option<Duration>),
    /// The name has no records of the family.
    None,
    /// The lookup failed, with the reason.
    Failed(String),
}

/// Addresses of a name with their TTL.
type Resolved = (HostAddresses, Duration);

type Report = Box<dyn Fn(Box<str>, Vec<IpAddr>) + Send + Sync>;

/// State shared by the tasks of all names.
struct ResolverContext {
    resolver: TokioResolver,
    hosts_file: HostsFile,
    permits: Semaphore,
    settings: DnsConfig,
    random: RandomState,
    names: Arc<HostNames>,
    report: Report,
}

impl ResolverContext {
    fn new(settings: &DnsConfig, names: Arc<HostNames>, report: Report) -> Result<ResolverContext, String> {
        Ok(ResolverContext {
            resolver: resolver(settings)?,
            hosts_file: HostsFile::default(),
            permits: Semaphore::new(LOOKUPS_MAX),
            settings: settings.clone(),
            random: RandomState::new(),
            names,
            report,
        })
    }

    /// Keeps one name resolved; never returns.
    async fn keep(self: Arc<Self>, name: Box<str>) {
        let mut known = self.names.begin(&name);
        let mut reported = None;
        let (mut backoff, mut stale) = (None, None);
        loop {
            let (resolved, used_meanwhile) = match reported {
                None => self.resolve_first(&name, &known).await,
                Some(_) => (self.resolve(&name, &known).await, None),
            };
            // The earlier addresses were reported during the wait; they count as the first result.
            reported = reported.or(used_meanwhile);
            let pause = match resolved {
                Ok((next, ttl)) => {
                    known = next;
                    // The gauge counts names, not failures.
                    drop(stale.take());
                    if backoff.take().is_some() {
                        tracing::info!(host = %name, "host name resolves again");
                    }
                    ttl
                }
                Err(error) => {
                    FAILURES.fetch_add(1, Relaxed);
                    stale.get_or_insert_with(StaleNameGuard::begin);
                    // Warned once per outage.
                    if backoff.is_none() {
                        tracing::warn!(host = %name, error, "host name cannot be resolved");
                    }
                    let pause = backoff.map_or(BACKOFF_MIN, |last: Duration| (last * 2).min(BACKOFF_MAX));
                    backoff = Some(pause);
                    pause
                }
            };
            // Also after a first failure: the compiler waits for a result of every name.
            if reported.as_ref() != Some(&known) {
                self.names.note(&name, &known);
                (self.report)(name.clone(), known.used());
                reported = Some(known.clone());
            }
            sleep(self.spread(&name, pause)).await;
        }
    }

    /// Resolves a name for the first time. After `FIRST_ANSWER`, reports the earlier addresses and returns
    /// them too.
    async fn resolve_first(
        &self,
        name: &str,
        known: &HostAddresses,
    ) -> (Result<Resolved, String>, Option<HostAddresses>) {
        let mut resolving = pin!(self.resolve(name, known));
        // Without earlier addresses there is nothing to report meanwhile.
        if *known == HostAddresses::default() {
            return (resolving.await, None);
        }
        match timeout(FIRST_ANSWER, &mut resolving).await {
            Ok(resolved) => (resolved, None),
            Err(_) => {
                (self.report)(name.into(), known.used());
                (resolving.await, Some(known.clone()))
            }
        }
    }

    /// Adds up to 10 % at random, so that names do not stay in step. A shorter pause would query a cache
    /// again before its TTL has ended.
    fn spread(&self, name: &str, pause: Duration) -> Duration {
        let lot = self.random.hash_one((name, SystemTime::now())) as u32;
        pause.mul_f64(1.0 + 0.1 * f64::from(lot) / f64::from(u32::MAX))
    }

    /// Resolves both families of a name, with the lower TTL. A failed family keeps its earlier addresses.
    /// Fails if no family has answered with addresses.
    async fn resolve(&self, name: &str, known: &HostAddresses) -> Result<Resolved, String> {
        // The semaphore is never closed.
        // Bounded, so that thousands of names at the start do not overrun a name server.
        let _permit = self.permits.acquire().await;
        let parsed = query_name(name)?;
        if let Some(found) = self.hosts_file.find(&parsed) {
            return Ok((found, Duration::from_millis(self.settings.refresh_ms)));
        }
        let (v4, v6) =
            // Both at once: the slower family decides the delay, not the sum.
            tokio::join!(self.look_up(parsed.clone(), RecordType::A), self.look_up(parsed, RecordType::AAAA));
        let mut next = known.clone();
        let mut ttl: Option<Duration> = None;
        let mut failure = None;
        for (answer, family) in [(v4, &mut next.v4), (v6, &mut next.v6)] {
            match answer {
                DnsAnswer::Addresses(addresses, holds) => {
                    *family = addresses;
                    ttl = [ttl, holds].into_iter().flatten().min();
                }
                // An authoritative absence (RFC 2308) is an answer: the family has no addresses any more.
                DnsAnswer::None => family.clear(),
                DnsAnswer::Failed(error) => failure = Some(error),
            }
        }
        match failure {
            // A failure and an empty family together are no evidence of a change.
            Some(error) if ttl.is_none() => Err(error),
            // Fails rather than reports an empty list, so the last addresses stay in use.
            _ if next.used().is_empty() => Err("it has no address".into()),
            _ => Ok((next, clamp(&self.settings, ttl))),
        }
    }

    async fn look_up(&self, name: Name, family: RecordType) -> DnsAnswer {
        let lookup = match self.resolver.lookup(name, family).await {
            Ok(lookup) => lookup,
            Err(error) if error.is_no_records_found() => return DnsAnswer::None,
            Err(error) => return DnsAnswer::Failed(error.to_string()),
        };
        // The record that expires first decides.
        let ttl = lookup.answers().iter().map(|record| record.ttl).min();
        let mut addresses: Vec<IpAddr> =
            lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        match addresses.is_empty() {
            true => DnsAnswer::None,
            false => DnsAnswer::Addresses(addresses, ttl.map(|ttl| Duration::from_secs(ttl.into()))),
        }
    }
}

/// Converts a host name to a query name.
///
/// An ASCII label may contain underscores at any position: `_dns._udp` of RFC 2782, and service names of
/// Docker Compose. RFC 2181 §11 does not restrict the characters of a label. IDNA (RFC 5891) applies to
/// labels outside ASCII.
pub(crate) fn query_name(host: &str) -> Result<Name, String> {
    let relative = host.strip_suffix('.').unwrap_or(host);
    let mut name = Name::new();
    for label in relative.split('.') {
        if label.is_empty() {
            return Err(format!("\"{host}\" has an empty label"));
        }
        let parsed = match label.is_ascii() {
            true => Name::from_ascii(label.to_ascii_lowercase()),
            false => Name::from_utf8(label),
        };
        let labels = parsed.map_err(|error| error.to_string())?;
        name = name.append_name(&labels).map_err(|error| error.to_string())?;
    }
    // Without the final dot, search domains of resolv.conf apply, as for any other program.
    name.set_fqdn(relative.len() < host.len());
    Ok(name)
}

/// Content of `/etc/hosts`, reread after changes of its modification time.
#[derive(Default)]
pub(crate) struct HostsFile {
    read: Mutex<(Option<SystemTime>, StaticHosts)>,
}

impl HostsFile {
    /// Addresses of a name; the other family of a name in the file is empty.
    pub(crate) fn find(&self, name: &Name) -> Option<HostAddresses> {
        let read = &mut *self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // One `stat` per lookup instead of a watch: the file rarely changes.
        let written = std::fs::metadata(HOSTS_FILE).and_then(|file| file.modified()).ok();
        if read.0 != written {
            *read = (written, StaticHosts::from_system().unwrap_or_default());
        }
        let family = |of| {
            let lookup = read.1.lookup_static_host(&Query::query(name.clone(), of));
            let lookup = lookup.iter().flat_map(|lookup| lookup.answers());
            let mut addresses: Vec<IpAddr> = lookup.filter_map(|record| record.data.ip_addr()).collect();
            addresses.sort_unstable();
            addresses.dedup();
            addresses
        };
        let found = HostAddresses { v4: family(RecordType::A), v6: family(RecordType::AAAA) };
        (found != HostAddresses::default()).then_some(found)
    }
}

/// TTL within the configured bounds; `refresh_ms` if unknown.
pub(crate) fn clamp(settings: &DnsConfig, ttl: Option<Duration>) -> Duration {
    let ttl = ttl.unwrap_or(Duration::from_millis(settings.refresh_ms));
    // Against a TTL of 0, which would query without a pause.
    let min = Duration::from_millis(settings.ttl_min_ms).max(Duration::from_millis(10));
    ttl.min(Duration::from_millis(settings.ttl_max_ms)).max(min)
}

/// Creates a resolver for the configured servers, or else those of the system. The resolver caches nothing:
/// this module controls the refresh.
pub(crate) fn resolver(settings: &DnsConfig) -> Result<TokioResolver, String> {
    let (config, mut options) = if settings.servers.is_empty() {
        // A machine without resolv.conf still resolves names of its hosts file.
        system_conf::read_system_conf().unwrap_or_else(|error| {
            tracing::warn!(%error, "the system's resolver configuration cannot be read");
            (ResolverConfig::from_parts(None, Vec::new(), Vec::new()), ResolverOpts::default())
        })
    } else {
        let servers = settings.servers.iter().map(|server| name_server(server)).collect::<Result<_, _>>()?;
        (ResolverConfig::from_parts(None, Vec::new(), servers), ResolverOpts::default())
    };
    options.timeout = Duration::from_millis(settings.timeout_ms.max(1));
    // This module keeps the addresses; a second cache would delay refreshes.
    options.cache_size = 0;
    // `HostsFile` reads it and notices changes.
    options.use_hosts_file = ResolveHosts::Never;
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    builder.build().map_err(|error| format!("dns: {error}"))
}

/// Parses a server such as `10.0.0.2:53` or `10.0.0.2`.
fn name_server(written: &str) -> Result<NameServerConfig, String> {
    let addr = written
        .parse::<SocketAddr>()
        .or_else(|_| written.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53)))
        .map_err(|_| format!("dns.servers: `{written}` is not an address such as `10.0.0.2:53`"))?;
    // Truncated answers are repeated over TCP (RFC 7766 §5).
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = addr.port();
    }
    Ok(NameServerConfig::new(addr.ip(), true, connections))
}

#[cfg(test)]
mod tests;
