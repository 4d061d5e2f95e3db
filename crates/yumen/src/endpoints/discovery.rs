//! Service discovery: one task per service, its source, and the reports to the control thread.
//!
//! Runs on the control runtime. Discovery results are an input of compilation, like resolved addresses.

mod consul;
mod dns;
mod http;
mod ledger;
mod nacos;
mod saved_services;
mod service_standing;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Map, Value};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, sleep_until};
use yumen_base::metric::MetricFamily;
use yumen_config::NodeConfig;
use yumen_config::resource::UpstreamNode;
use yumen_snapshot::compile::{DiscoveryQuery, DiscoveryResult};

use super::inputs::RequiredServices;
use http::DiscoveryHttpClient;
pub(crate) use ledger::ServiceLedger;
use saved_services::SavedServices;
use service_standing::ServiceStanding;

/// Maximum number of concurrent queries to name servers, and to Nacos.
const QUESTIONS_MAX: usize = 32;

/// First pause after a failure; doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_secs(1);

/// Maximum pause after failures.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Metric families of this module, without values, for the generated reference.
pub(crate) fn describe(out: &mut Vec<MetricFamily>) {
    use yumen_base::metric::MetricSource;
    ServiceLedger::default().gather(out);
}

/// Result of one query to a source.
struct DiscoveryAnswer {
    nodes: Vec<UpstreamNode>,
    /// Pause before the next query.
    pause: Duration,
}

/// Position in a source between two queries.
#[derive(Debug, Default)]
struct SourceCursor {
    /// Number of the server to query first, modulo the number of servers.
    server: usize,
    /// State index of the last response (Consul `X-Consul-Index`); 0 if unknown.
    index: u64,
}

/// Client of one kind of source.
enum DiscoverySource {
    Dns(Box<dns::DnsSource>),
    Consul(Box<consul::ConsulSource>),
    ConsulKv(Box<consul::ConsulKvSource>),
    Nacos(Box<nacos::NacosSource>),
    /// The source is not configured, with the reason.
    Unconfigured(String),
}

impl DiscoverySource {
    async fn discover(
        &self,
        service: &DiscoveryQuery,
        cursor: &mut SourceCursor,
    ) -> Result<DiscoveryAnswer, String> {
        match self {
            DiscoverySource::Dns(dns) => dns.discover(service).await,
            DiscoverySource::Consul(consul) => consul.discover(service, cursor).await,
            DiscoverySource::ConsulKv(consul) => consul.discover(service, cursor).await,
            DiscoverySource::Nacos(nacos) => nacos.discover(service, cursor).await,
            DiscoverySource::Unconfigured(reason) => Err(reason.clone()),
        }
    }
}

/// All sources of a node.
struct DiscoverySources {
    dns: DiscoverySource,
    consul: DiscoverySource,
    consul_kv: DiscoverySource,
    nacos: DiscoverySource,
}

impl DiscoverySources {
    fn new(node: &NodeConfig) -> DiscoverySources {
        let settings = &node.discovery;
        let is_on = [
            !settings.consul.servers.is_empty(),
            !settings.consul_kv.servers.is_empty(),
            !settings.nacos.host.is_empty(),
        ];
        // The system's trust anchors are loaded only if a source needs them.
        let http = if is_on.contains(&true) { DiscoveryHttpClient::new() } else { Err(String::new()) };
        let over_http =
            |path: &str, is_on: bool, make: &dyn Fn(DiscoveryHttpClient) -> DiscoverySource| match &http {
                _ if !is_on => DiscoverySource::Unconfigured(format!(
                    "it is not set up: {path} of yumen.yaml names no server"
                )),
                Ok(http) => make(http.clone()),
                Err(error) => DiscoverySource::Unconfigured(error.clone()),
            };
        DiscoverySources {
            dns: dns::DnsSource::new(&settings.dns, &node.dns)
                .map_or_else(DiscoverySource::Unconfigured, |dns| DiscoverySource::Dns(Box::new(dns))),
            consul: over_http("discovery.consul.servers", is_on[0], &|http| {
                DiscoverySource::Consul(Box::new(consul::ConsulSource::new(&settings.consul, http)))
            }),
            consul_kv: over_http("discovery.consul_kv.servers", is_on[1], &|http| {
                DiscoverySource::ConsulKv(Box::new(consul::ConsulKvSource::new(&settings.consul_kv, http)))
            }),
            nacos: over_http("discovery.nacos.host", is_on[2], &|http| {
                DiscoverySource::Nacos(Box::new(nacos::NacosSource::new(&settings.nacos, http)))
            }),
        }
    }

    fn of(&self, service: &DiscoveryQuery) -> Option<&DiscoverySource> {
        match &*service.source {
            "dns" => Some(&self.dns),
            "consul" => Some(&self.consul),
            "consul_kv" => Some(&self.consul_kv),
            "nacos" => Some(&self.nacos),
            _ => None,
        }
    }
}

type Report = Box<dyn Fn(Arc<DiscoveryQuery>, DiscoveryResult) + Send + Sync>;

/// State shared by the tasks of all services.
struct DiscoveryContext {
    sources: DiscoverySources,
    ledger: Arc<ServiceLedger>,
    saved: Arc<SavedServices>,
    empty_hold: Duration,
    /// Separate permits for name servers and Nacos: a hanging source delays no other.
    dns_permits: Semaphore,
    nacos_permits: Semaphore,
    random: RandomState,
    report: Report,
}

/// Discovers the services until the sender of `services` is dropped. Calls `report` with the first result of
/// each service and with every change. If a source does not respond, the endpoints in `known`, or else those
/// saved by an earlier run, serve.
pub(crate) async fn run_discovery(
    mut services: watch::Receiver<RequiredServices>,
    node: NodeConfig,
    ledger: Arc<ServiceLedger>,
    known: HashMap<DiscoveryQuery, Vec<UpstreamNode>>,
    report: impl Fn(Arc<DiscoveryQuery>, DiscoveryResult) + Send + Sync + 'static,
) {
    let saved = Arc::new(SavedServices::open(Path::new(&node.store.data_dir), known));
    let context = Arc::new(DiscoveryContext {
        sources: DiscoverySources::new(&node),
        ledger,
        saved,
        empty_hold: Duration::from_millis(node.discovery.empty_hold_ms),
        dns_permits: Semaphore::new(QUESTIONS_MAX),
        nacos_permits: Semaphore::new(QUESTIONS_MAX),
        random: RandomState::new(),
        report: Box::new(report),
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(context.clone().save());
    let mut running: HashMap<Arc<DiscoveryQuery>, (u64, AbortHandle)> = HashMap::new();
    loop {
        let services_now = services.borrow_and_update().clone();
        running.retain(|service, (number, task)| {
            // See `dns::keep_resolved`: a new number means a new request.
            let stays = services_now.get(service) == Some(number);
            if !stays {
                task.abort();
                context.ledger.forget(service);
            }
            stays
        });
        for (service, number) in services_now.iter() {
            if !running.contains_key(service) {
                let task = tasks.spawn(context.clone().keep(service.clone()));
                running.insert(service.clone(), (*number, task));
            }
        }
        // The JoinSet keeps results of finished tasks until they are joined.
        while tasks.try_join_next().is_some() {}
        if services.changed().await.is_err() {
            return;
        }
    }
}

impl DiscoveryContext {
    /// Keeps one service up to date; never returns.
    async fn keep(self: Arc<Self>, service: Arc<DiscoveryQuery>) {
        let mut standing = ServiceStanding::new(self.saved.nodes(&service), self.empty_hold, Instant::now());
        self.ledger.note(&service, &standing);
        let (mut cursor, mut backoff) = (SourceCursor::default(), None);
        loop {
            let discovering = self.discover(&service, &mut cursor);
            // States lapse while a query blocks, so both are awaited together.
            let (result, pause) = match self.until(&service, &mut standing, discovering).await {
                Ok(answer) => {
                    if backoff.take().is_some() {
                        tracing::info!(service = %service.name, source = %service.source, "service discovery recovered");
                    }
                    (standing.answered(answer.nodes, Instant::now()), answer.pause)
                }
                Err(error) => {
                    self.ledger.failed(&service.source);
                    if backoff.is_none() {
                        tracing::warn!(service = %service.name, source = %service.source, error, "service discovery failed");
                    }
                    let pause = backoff.map_or(BACKOFF_MIN, |last: Duration| (last * 2).min(BACKOFF_MAX));
                    backoff = Some(pause);
                    (standing.failed(&error), self.spread(&service, pause))
                }
            };
            self.report(&service, &standing, result);
            self.until(&service, &mut standing, sleep(pause)).await;
        }
    }

    async fn discover(
        &self,
        service: &DiscoveryQuery,
        cursor: &mut SourceCursor,
    ) -> Result<DiscoveryAnswer, String> {
        match self.sources.of(service) {
            // Consul uses blocking queries and limits their number itself.
            Some(source @ (DiscoverySource::Consul(_) | DiscoverySource::ConsulKv(_))) => {
                source.discover(service, cursor).await
            }
            Some(source @ DiscoverySource::Nacos(_)) => {
                let _permit = self.nacos_permits.acquire().await;
                source.discover(service, cursor).await
            }
            Some(source) => {
                let _permit = self.dns_permits.acquire().await;
                source.discover(service, cursor).await
            }
            None => Err("unknown discovery type; supported: dns, consul, consul_kv, nacos".into()),
        }
    }

    /// Awaits a future; meanwhile performs state changes that are due.
    async fn until<T>(
        &self,
        service: &Arc<DiscoveryQuery>,
        standing: &mut ServiceStanding,
        what: impl Future<Output = T>,
    ) -> T {
        let mut what = pin!(what);
        loop {
            let Some(due) = standing.due() else { return what.await };
            tokio::select! {
                done = &mut what => return done,
                () = sleep_until(due.into()) => {
                    let result = standing.lapse(Instant::now());
                    self.report(service, standing, result);
                }
            }
        }
    }

    fn report(
        &self,
        service: &Arc<DiscoveryQuery>,
        standing: &ServiceStanding,
        result: Option<DiscoveryResult>,
    ) {
        self.ledger.note(service, standing);
        // Nothing changed for the compiler; only the ledger shows the attempt.
        let Some(found) = result else { return };
        self.saved.changed();
        (self.report)(service.clone(), found);
    }

    /// Adds up to 50 % at random, so that a recovered source is not queried for all services at once.
    fn spread(&self, service: &DiscoveryQuery, pause: Duration) -> Duration {
        let lot = self.random.hash_one((service, SystemTime::now())) as u32;
        pause.mul_f64(1.0 + 0.5 * f64::from(lot) / f64::from(u32::MAX))
    }

    /// Saves the known endpoints to disk after changes; never returns.
    async fn save(self: Arc<Self>) {
        loop {
            self.saved.until_changed().await;
            let known = self.ledger.known();
            let saved = self.saved.clone();
            // File I/O blocks, so it runs on a blocking thread.
            let _ = tokio::task::spawn_blocking(move || saved.save(&known)).await;
        }
    }
}

/// `discovery_args` of a service.
struct DiscoveryArgs(Map<String, Value>);

impl DiscoveryArgs {
    /// Parses the arguments; one that the source does not know is an error.
    fn of(service: &DiscoveryQuery, known: &[&str]) -> Result<DiscoveryArgs, String> {
        if service.args.is_empty() {
            return Ok(DiscoveryArgs(Map::new()));
        }
        let Ok(Value::Object(args)) = serde_json::from_str(&service.args) else {
            return Err("discovery_args is not an object".into());
        };
        // A misspelt filter would select all nodes.
        match args.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) if known.is_empty() => {
                Err(format!("discovery_args.{name}: not supported for this type"))
            }
            Some(name) => Err(format!("discovery_args.{name} is not known; there are {}", known.join(", "))),
            None => Ok(DiscoveryArgs(args)),
        }
    }

    fn text(&self, name: &str) -> Result<Option<&str>, String> {
        match self.0.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(format!("discovery_args.{name}: {other} is no text")),
        }
    }

    /// Metadata that an endpoint must have.
    fn metadata(&self) -> Result<Option<&Map<String, Value>>, String> {
        match self.0.get("metadata") {
            None => Ok(None),
            Some(Value::Object(required)) => Ok(Some(required)),
            Some(other) => {
                Err(format!("discovery_args.metadata: {other} is no object, such as {{\"version\": \"v1\"}}"))
            }
        }
    }
}

/// Whether metadata contains all required entries. A number equals its text form.
fn meets(metadata: &Value, required: Option<&Map<String, Value>>) -> bool {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    required
        .into_iter()
        .flatten()
        .all(|(name, value)| metadata.get(name).is_some_and(|found| plain(found) == plain(value)))
}

/// Encloses an IPv6 address in brackets, as node hosts require.
fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}
