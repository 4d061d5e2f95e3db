//! Discovery by Nacos: polls the instances of a service through the HTTP API, version 1.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::Mutex;
use yumen_config::node::NacosDiscovery;
use yumen_config::resource::UpstreamNode;
use yumen_snapshot::compile::DiscoveryQuery;

use super::http::{DiscoveryHttpClient, HttpReply, HttpTimeouts, encoded};
use super::{DiscoveryAnswer, DiscoveryArgs, SourceCursor, bracketed, meets};

/// One server, with its login.
struct NacosServer {
    url: String,
    /// User and password.
    login: Option<(String, String)>,
    /// Token of the current login.
    session: Mutex<NacosSession>,
}

/// State of the login at one server.
#[derive(Default)]
struct NacosSession {
    token: Option<String>,
    /// Time and reason of the last failed login: tasks that waited for it do not retry.
    failed: Option<(Instant, String)>,
}

/// Source of `discovery_type: nacos`.
pub(super) struct NacosSource {
    http: DiscoveryHttpClient,
    servers: Vec<NacosServer>,
    settings: NacosDiscovery,
}

impl NacosSource {
    pub(super) fn new(settings: &NacosDiscovery, http: DiscoveryHttpClient) -> NacosSource {
        let server = |host: &yumen_config::node::SecretText| {
            // As in APISIX, the scheme is optional and the login is part of the URL.
            let (scheme, rest) = host.0.split_once("://").unwrap_or(("http", &host.0));
            let (login, authority) = match rest.rsplit_once('@') {
                Some((login, authority)) => (login.split_once(':'), authority),
                None => (None, rest),
            };
            NacosServer {
                url: format!("{scheme}://{}", authority.trim_end_matches('/')),
                login: login.map(|(user, password)| (user.to_owned(), password.to_owned())),
                session: Mutex::default(),
            }
        };
        NacosSource { http, servers: settings.host.iter().map(server).collect(), settings: settings.clone() }
    }

    pub(super) async fn discover(
        &self,
        service: &DiscoveryQuery,
        cursor: &mut SourceCursor,
    ) -> Result<DiscoveryAnswer, String> {
        let args = DiscoveryArgs::of(service, &["namespace_id", "group_name", "metadata"])?;
        let required = args.metadata()?;
        let mut query = format!("serviceName={}&healthyOnly=true", encoded(&service.name));
        for (name, arg) in [("namespaceId", "namespace_id"), ("groupName", "group_name")] {
            if let Some(value) = args.text(arg)? {
                query.push_str(&format!("&{name}={}", encoded(value)));
            }
        }
        // The first error is reported: it comes from the preferred server.
        let mut failure = None;
        for _ in 0..self.servers.len() {
            match self.list(&self.servers[cursor.server % self.servers.len()], &query).await {
                Ok(hosts) => {
                    let matching = hosts.iter().filter(|one| meets(&one["metadata"], required));
                    let nodes = matching.filter_map(|one| self.node(one)).collect();
                    return Ok(DiscoveryAnswer {
                        nodes,
                        pause: Duration::from_secs(self.settings.fetch_interval),
                    });
                }
                Err(error) => drop(failure.get_or_insert(error)),
            }
            cursor.server += 1;
        }
        Err(failure.unwrap_or_else(|| "no server configured".into()))
    }

    /// Lists instances. On status 401 or 403, renews the token and retries once.
    async fn list(&self, server: &NacosServer, query: &str) -> Result<Vec<Value>, String> {
        let mut reply = self.list_once(server, query).await?;
        // Only a login that had a token is renewed; otherwise the refusal is final.
        if matches!(reply.status, 401 | 403) && server.session.lock().await.token.take().is_some() {
            reply = self.list_once(server, query).await?;
        }
        match reply.status {
            200 => match reply.json()?["hosts"].take() {
                Value::Array(hosts) => Ok(hosts),
                _ => Err(format!("{} gave no list `hosts`: {}", server.url, reply.excerpt())),
            },
            status => Err(format!("{} answered {status}: {}", server.url, reply.excerpt())),
        }
    }

    async fn list_once(&self, server: &NacosServer, query: &str) -> Result<HttpReply, String> {
        let mut url = format!("{}{}ns/instance/list?{query}", server.url, self.prefix());
        if let Some((user, password)) = &server.login {
            let began = Instant::now();
            // Held during the login: concurrent tasks wait for one login instead of sending one each.
            let mut session = server.session.lock().await;
            if session.token.is_none() {
                if let Some((at, error)) = &session.failed
                    && *at >= began
                {
                    return Err(error.clone());
                }
                match self.log_in(server, user, password).await {
                    Ok(token) => *session = NacosSession { token: Some(token), failed: None },
                    Err(error) => {
                        session.failed = Some((Instant::now(), error.clone()));
                        return Err(error);
                    }
                }
            }
            // The HTTP API of Nacos, version 1, expects the token in the query.
            url.push_str(&format!("&accessToken={}", encoded(session.token.as_deref().unwrap_or_default())));
        }
        self.http.get(&url, &[], self.bounds()).await
    }

    async fn log_in(&self, server: &NacosServer, user: &str, password: &str) -> Result<String, String> {
        let url = format!("{}{}auth/login", server.url, self.prefix());
        let form = format!("username={}&password={}", encoded(user), encoded(password));
        let reply = self.http.post_form(&url, form, self.bounds()).await?;
        let token = reply.json().ok().and_then(|login| Some(login["accessToken"].as_str()?.to_owned()));
        token.ok_or_else(|| format!("{} refused the login of {user}: {}", server.url, reply.status))
    }

    fn prefix(&self) -> String {
        format!("/{}/", self.settings.prefix.trim_matches('/'))
    }

    fn bounds(&self) -> HttpTimeouts {
        let timeout = &self.settings.timeout;
        HttpTimeouts {
            connect: Duration::from_millis(timeout.connect),
            answer: Duration::from_millis(timeout.read),
        }
    }

    /// Converts an instance to a node; `None` if it is unhealthy or disabled.
    fn node(&self, instance: &Value) -> Option<UpstreamNode> {
        // Older servers omit the members.
        let is_on = |name: &str| instance[name].as_bool().unwrap_or(true);
        if !is_on("healthy") || !is_on("enabled") {
            return None;
        }
        Some(UpstreamNode {
            host: bracketed(instance["ip"].as_str()?),
            port: u16::try_from(instance["port"].as_u64()?).ok()?,
            weight: weight(instance["weight"].as_f64(), self.settings.weight),
            priority: 0,
            excludes_local: false,
            metadata: instance["metadata"].as_object().filter(|data| !data.is_empty()).cloned(),
        })
    }
}

/// Converts a weight, a fraction with 1 as default, to a node weight, in which `usual` stands for 1. A
/// positive weight is at least 1.
pub(super) fn weight(weight: Option<f64>, usual: u32) -> u32 {
    let weight = weight.unwrap_or(1.0);
    let scaled = (weight * f64::from(usual)).round() as u32;
    if weight > 0.0 { scaled.max(1) } else { 0 }
}
