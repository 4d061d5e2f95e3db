//! Discovery by Consul: healthy instances of services, and endpoints stored as keys. Both use blocking
//! queries.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use tokio::sync::Semaphore;
use yumen_config::node::{ConsulDiscovery, ConsulKvDiscovery, ConsulTimeout, SecretText};
use yumen_config::resource::UpstreamNode;
use yumen_snapshot::compile::DiscoveryQuery;

use super::http::{DiscoveryHttpClient, HttpReply, HttpTimeouts, encoded};
use super::{DiscoveryAnswer, DiscoveryArgs, SourceCursor, bracketed, meets};

/// Path prefix of the key-value API.
const KEYS: &str = "/v1/kv/";

/// Minimum pause between two queries, however often the state changes.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Pause between queries that are not blocking.
const POLL_PAUSE: Duration = Duration::from_secs(2);

/// Maximum number of concurrent blocking queries, and of others. By default an agent accepts 200 connections
/// per client (`http_max_conns_per_client`), and both sources may use the same agent.
const WATCHES_MAX: usize = 64;
const QUESTIONS_MAX: usize = 24;

/// Consul agents, with the settings of queries.
struct ConsulAgents {
    http: DiscoveryHttpClient,
    servers: Vec<String>,
    token: String,
    timeout: ConsulTimeout,
    watches: Semaphore,
    questions: Semaphore,
}

impl ConsulAgents {
    fn new(
        http: DiscoveryHttpClient,
        servers: &[String],
        token: &SecretText,
        timeout: &ConsulTimeout,
    ) -> ConsulAgents {
        ConsulAgents {
            http,
            servers: servers.to_vec(),
            token: token.0.clone(),
            timeout: timeout.clone(),
            watches: Semaphore::new(WATCHES_MAX),
            questions: Semaphore::new(QUESTIONS_MAX),
        }
    }

    /// Queries a path, first at the agent that responded last; returns the list and the pause before the next
    /// query. The agent responds when its state index changes. If too many blocking queries are in flight,
    /// the query is a plain one, repeated after a pause. A response that is not a list counts as a failure of
    /// the agent.
    async fn fetch_list(
        &self,
        path: &str,
        cursor: &mut SourceCursor,
    ) -> Result<(Vec<Value>, Duration), String> {
        // Only a query with a state index can block; the first one returns at once.
        // Never waits: without a permit the query is a plain one.
        let watch = self.watches.try_acquire().ok().filter(|_| cursor.index > 0);
        let _question = match watch {
            Some(_) => None,
            None => self.questions.acquire().await.ok(),
        };
        let is_polling = cursor.index > 0 && watch.is_none();
        // The first error is reported: it comes from the preferred server.
        let mut failure = None;
        for _ in 0..self.servers.len() {
            let server = &self.servers[cursor.server % self.servers.len()];
            // Without a permit for a blocking query, the query must not have an index.
            let index = if is_polling { 0 } else { cursor.index };
            let reply = self.query_server(server, path, index).await;
            match reply.and_then(|reply| Ok((list_of(server, path, &reply)?, reply))) {
                Ok((list, reply)) => {
                    let pause = follow(reply.field("x-consul-index"), cursor);
                    return Ok((list, if is_polling { POLL_PAUSE } else { pause }));
                }
                Err(error) => drop(failure.get_or_insert(error)),
            }
            // State indexes of different agents are not comparable.
            // The next query starts with the agent that responds now.
            *cursor = SourceCursor { server: cursor.server + 1, index: 0 };
        }
        Err(failure.unwrap_or_else(|| "no server configured".into()))
    }

    async fn query_server(&self, server: &str, path: &str, index: u64) -> Result<HttpReply, String> {
        let ConsulTimeout { connect, read, wait } = self.timeout;
        let mark = if path.contains('?') { '&' } else { '?' };
        let mut url = format!("{}{path}", server.trim_end_matches('/'));
        let mut answer_ms = read;
        if index > 0 {
            url.push_str(&format!("{mark}index={index}&wait={wait}s"));
            // Consul adds a random wait of up to wait/16.
            answer_ms += wait * 1000 + wait * 1000 / 16;
        }
        let fields: &[(&str, &str)] =
            if self.token.is_empty() { &[] } else { &[("x-consul-token", &self.token)] };
        let bounds = HttpTimeouts {
            connect: Duration::from_millis(connect),
            answer: Duration::from_millis(answer_ms),
        };
        self.http.get(&url, fields, bounds).await
    }
}

/// Parses the list in a response.
fn list_of(server: &str, path: &str, reply: &HttpReply) -> Result<Vec<Value>, String> {
    match reply.status {
        200 => {}
        // Consul responds 404 for a prefix without keys.
        404 if path.starts_with(KEYS) => return Ok(Vec::new()),
        status => return Err(format!("{server} answered {status}: {}", reply.excerpt())),
    }
    match reply.json().map_err(|error| format!("{server}: {error}"))? {
        Value::Array(list) => Ok(list),
        _ => Err(format!("{server} answered with no list: {}", reply.excerpt())),
    }
}

/// Records the state index of a response. Returns a short pause only if the next query can block.
pub(super) fn follow(index_field: Option<&str>, cursor: &mut SourceCursor) -> Duration {
    match index_field.and_then(|index| index.parse::<u64>().ok()).filter(|index| *index > 0) {
        // A lower index means that the agent has restarted its count: reset, as Consul's documentation
        // requires.
        Some(index) => {
            cursor.index = if index < cursor.index { 0 } else { index };
            PAUSE_MIN
        }
        None => {
            cursor.index = 0;
            POLL_PAUSE
        }
    }
}

/// Source of `discovery_type: consul`.
pub(super) struct ConsulSource {
    agents: ConsulAgents,
    datacenter: String,
    weight: u32,
}

impl ConsulSource {
    pub(super) fn new(settings: &ConsulDiscovery, http: DiscoveryHttpClient) -> ConsulSource {
        ConsulSource {
            agents: ConsulAgents::new(http, &settings.servers, &settings.token, &settings.timeout),
            datacenter: settings.datacenter.clone(),
            weight: settings.weight,
        }
    }

    pub(super) async fn discover(
        &self,
        service: &DiscoveryQuery,
        cursor: &mut SourceCursor,
    ) -> Result<DiscoveryAnswer, String> {
        let args = DiscoveryArgs::of(service, &["datacenter", "namespace", "tag", "metadata"])?;
        // The agent filters, so that unhealthy instances do not travel.
        let mut path = format!("/v1/health/service/{}?passing=true", encoded(&service.name));
        let datacenter = args.text("datacenter")?.unwrap_or(&self.datacenter);
        for (name, value) in
            [("dc", Some(datacenter)), ("ns", args.text("namespace")?), ("tag", args.text("tag")?)]
        {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                path.push_str(&format!("&{name}={}", encoded(value)));
            }
        }
        let required = args.metadata()?;
        let (entries, pause) = self.agents.fetch_list(&path, cursor).await?;
        let matching = entries.iter().filter(|entry| meets(&entry["Service"]["Meta"], required));
        let nodes = matching.filter_map(|entry| self.node(entry)).collect();
        Ok(DiscoveryAnswer { nodes, pause })
    }

    /// Converts an instance to a node. Without a service address, the address of the machine applies.
    fn node(&self, entry: &Value) -> Option<UpstreamNode> {
        let service = &entry["Service"];
        let own = service["Address"].as_str().filter(|address| !address.is_empty());
        // Consul's rule: an empty service address stands for that of the node.
        let host = own.or(entry["Node"]["Address"].as_str())?;
        let weight = service["Weights"]["Passing"].as_u64().unwrap_or(self.weight.into());
        Some(UpstreamNode {
            host: bracketed(host),
            port: u16::try_from(service["Port"].as_u64().unwrap_or(0)).ok()?,
            weight: weight.min(u32::MAX.into()) as u32,
            priority: 0,
            excludes_local: false,
            metadata: service["Meta"].as_object().filter(|meta| !meta.is_empty()).cloned(),
        })
    }
}

/// Source of `discovery_type: consul_kv`.
pub(super) struct ConsulKvSource {
    agents: ConsulAgents,
    prefix: String,
    weight: u32,
}

impl ConsulKvSource {
    pub(super) fn new(settings: &ConsulKvDiscovery, http: DiscoveryHttpClient) -> ConsulKvSource {
        ConsulKvSource {
            agents: ConsulAgents::new(http, &settings.servers, &settings.token, &settings.timeout),
            prefix: settings.prefix.trim_matches('/').to_owned(),
            weight: settings.weight,
        }
    }

    pub(super) async fn discover(
        &self,
        service: &DiscoveryQuery,
        cursor: &mut SourceCursor,
    ) -> Result<DiscoveryAnswer, String> {
        DiscoveryArgs::of(service, &[])?;
        let folder = self.folder(&service.name);
        let (entries, pause) =
            self.agents.fetch_list(&format!("{KEYS}{}?recurse=true", encoded(&folder)), cursor).await?;
        let nodes = entries.iter().filter_map(|entry| self.node(entry, &folder)).collect();
        Ok(DiscoveryAnswer { nodes, pause })
    }

    /// Key prefix of a service. The name may be a full URL, as in APISIX, a key, or the key below `prefix`.
    fn folder(&self, name: &str) -> String {
        let key = name.split_once("/v1/kv/").map_or(name, |(_, key)| key).trim_matches('/');
        let below =
            key == self.prefix || key.strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with('/'));
        if below { format!("{key}/") } else { format!("{}/{key}/", self.prefix) }
    }

    /// Converts a key `folder/host:port` to a node. A value that gives no weight disqualifies the key.
    fn node(&self, entry: &Value, folder: &str) -> Option<UpstreamNode> {
        let (host, port) = entry["Key"].as_str()?.strip_prefix(folder)?.rsplit_once(':')?;
        let value = BASE64_STANDARD.decode(entry["Value"].as_str().unwrap_or_default()).ok()?;
        let value: Value =
            if value.is_empty() { Value::Null } else { serde_json::from_slice(&value).ok()? };
        let weight = match &value {
            Value::Object(members) => members.get("weight").map_or(Some(self.weight.into()), Value::as_u64),
            Value::Null => Some(self.weight.into()),
            other => other.as_u64(),
        };
        Some(UpstreamNode {
            host: bracketed(host.trim_matches(['[', ']'])),
            port: port.parse().ok().filter(|port| *port > 0)?,
            weight: weight?.min(u32::MAX.into()) as u32,
            priority: 0,
            excludes_local: false,
            metadata: None,
        })
    }
}
