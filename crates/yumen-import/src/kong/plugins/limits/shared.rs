//! Location of a limit's counters: Redis, or each node.

use serde_json::{Map, Value, json};

use super::super::PluginJob;
use crate::kong::entity::KongEntity;

/// Fields of a Redis server in Kong, and their names in `limit-count`.
const SERVER: [(&str, &str); 8] = [
    ("host", "redis_host"),
    ("port", "redis_port"),
    ("username", "redis_username"),
    ("password", "redis_password"),
    ("database", "redis_database"),
    ("timeout", "redis_timeout"),
    ("ssl", "redis_ssl"),
    ("ssl_verify", "redis_ssl_verify"),
];

/// The settings of the location; empty if each node counts by itself. `policy_field` names Kong's field with the policy,
/// `window_s_min` is the shortest window in seconds.
pub(super) fn location(job: &mut PluginJob<'_>, policy_field: &str, window_s_min: u64) -> Map<String, Value> {
    let policy = job.text(policy_field).unwrap_or_else(|| "local".into());
    let redis = redis_fields(job);
    let sync_rate = job.number("sync_rate");
    let fault_tolerant = job.flag("fault_tolerant", true);
    if policy != "redis" {
        if policy != "local" {
            let why = "Kong's own database is not here, and policy redis is";
            job.different(policy_field, "each node counts for itself", why);
        }
        return Map::new();
    }
    let mut out = server(job, redis);
    if out.is_empty() {
        job.different(policy_field, "each node counts for itself", "no server is named");
        return out;
    }
    out.insert("allow_degradation".into(), json!(fault_tolerant));
    match sync_rate {
        Some(seconds) if seconds > 0.0 && seconds < window_s_min as f64 => {
            out.insert("sync_interval".into(), json!(seconds.max(0.1)));
        }
        Some(seconds) if seconds > 0.0 => {
            job.different("sync_rate", "every request asks Redis", "a window is no longer than the interval");
        }
        _ => {}
    }
    out
}

/// The fields under `redis`, and those with the prefix `redis_` of older versions.
fn redis_fields(job: &mut PluginJob<'_>) -> KongEntity {
    let mut redis = job.settings.child("redis", job.report).unwrap_or_default();
    for field in SERVER.map(|(field, _)| field).into_iter().chain(["server_name"]) {
        if let Some(value) = job.settings.take(&format!("redis_{field}"))
            && redis.peek(field).is_none()
        {
            redis.set(field, value);
        }
    }
    redis
}

fn server(job: &mut PluginJob<'_>, mut redis: KongEntity) -> Map<String, Value> {
    let mut out = Map::new();
    let sentinels = redis.list("sentinel_nodes", job.report);
    let nodes = redis.list("cluster_nodes", job.report);
    let address =
        |node: &Value| Some(format!("{}:{}", node["ip"].as_str()?, node["port"].as_u64().unwrap_or(6379)));
    if !nodes.is_empty() {
        out.insert("policy".into(), json!("redis-cluster"));
        out.insert("redis_cluster_name".into(), json!("kong"));
        out.insert("redis_cluster_nodes".into(), nodes.iter().filter_map(address).collect());
    } else if !sentinels.is_empty() {
        out.insert("policy".into(), json!("redis-sentinel"));
        let sentinel =
            |one: &Value| json!({ "host": one["host"], "port": one["port"].as_u64().unwrap_or(26_379) });
        out.insert("redis_sentinels".into(), sentinels.iter().map(sentinel).collect());
    } else if redis.peek("host").is_some() {
        out.insert("policy".into(), json!("redis"));
    } else {
        return out;
    }
    for (field, setting) in [
        ("sentinel_master", "redis_master_name"),
        ("sentinel_username", "sentinel_username"),
        ("sentinel_password", "sentinel_password"),
    ] {
        if let Some(value) = redis.text(field, job.report) {
            out.insert(setting.into(), json!(value));
        }
    }
    let named = out["policy"].clone();
    for (field, setting) in SERVER {
        let setting = match (named.as_str(), field) {
            (Some("redis-cluster"), "ssl") => "redis_cluster_ssl",
            (Some("redis-cluster"), "ssl_verify") => "redis_cluster_ssl_verify",
            (Some("redis-sentinel"), "timeout") => "redis_read_timeout",
            _ => setting,
        };
        if let Some(value) = redis.take(field)
            && !(named != "redis" && matches!(field, "host" | "port"))
        {
            out.insert(setting.into(), value);
        }
    }
    let why = "the certificate is asked for the name of the host";
    redis.skip("server_name", &Value::Null, why, job.report);
    redis.finish(job.report);
    out
}
