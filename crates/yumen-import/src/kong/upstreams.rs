//! Kong's upstreams and targets as endpoints, balancers and health checks.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::document::{EntityIndex, KongDocument};
use super::entity::KongEntity;
use crate::report::{ImportReport, different, dropped};

/// Maximum of a health check counter, the closest value to never.
const NEVER: u64 = 254;

/// Counters of consecutive results: the first one makes an endpoint healthy, the others unhealthy.
const COUNTERS: [&str; 4] = ["successes", "http_failures", "tcp_failures", "timeouts"];

/// An upstream, copied into each service that uses it.
#[derive(Debug, Default)]
pub(super) struct KongUpstream {
    pub(super) label: String,
    /// Nodes, balancer, health checks.
    pub(super) settings: Map<String, Value>,
    /// Host for requests to the endpoints, instead of their own.
    pub(super) host_header: Option<String>,
    pub(super) client_certificate: Option<Value>,
}

/// Upstreams by name, which is the host of the services that use them.
#[derive(Debug, Default)]
pub(super) struct KongUpstreams {
    by_name: BTreeMap<String, KongUpstream>,
}

impl KongUpstreams {
    /// The upstream of services with this host.
    pub(super) fn of_host(&self, host: &str) -> Option<&KongUpstream> {
        self.by_name.get(host)
    }
}

pub(super) fn translate(document: &mut KongDocument, report: &mut ImportReport) -> KongUpstreams {
    let index = EntityIndex::of(&document.upstreams);
    let mut nodes = nodes(document, &index, report);
    let mut result = KongUpstreams::default();
    for (at, upstream) in document.upstreams.iter_mut().enumerate() {
        let name = upstream.text("name", report).unwrap_or_else(|| upstream.name.clone());
        let mut settings = Map::new();
        let nodes: Vec<Value> = nodes.remove(&at).unwrap_or_default().into_values().collect();
        settings.insert("nodes".into(), nodes.into());
        balance(upstream, &mut settings, report);
        let checks = upstream.child("healthchecks", report);
        if let Some(checks) = checks.and_then(|checks| health_checks(checks, report)) {
            settings.insert("checks".into(), checks);
        }
        upstream.skip("slots", &json!(10_000), "endpoints are chosen without slots", report);
        upstream.skip("use_srv_name", &json!(false), "SRV records are not asked for", report);
        if let Some(labels) = super::labels::labels(upstream, report) {
            settings.insert("labels".into(), labels);
        }
        let balanced = KongUpstream {
            label: upstream.label.clone(),
            settings,
            host_header: upstream.text("host_header", report),
            client_certificate: upstream.take("client_certificate"),
        };
        result.by_name.insert(name, balanced);
    }
    result
}

/// Nodes by upstream, then by address. The last of several targets with one address counts.
fn nodes(
    document: &mut KongDocument,
    index: &EntityIndex,
    report: &mut ImportReport,
) -> BTreeMap<usize, BTreeMap<String, Value>> {
    let mut nodes: BTreeMap<usize, BTreeMap<String, Value>> = BTreeMap::new();
    for target in &mut document.targets {
        let address = target.text("target", report).unwrap_or_default();
        // The default weight and port of Kong.
        let weight = target.count("weight", report).unwrap_or(100);
        let failover = target.flag("failover", report).unwrap_or(false);
        super::labels::no_labels(target, report);
        let at = match index.take(target, "upstream") {
            Ok(Some(at)) => at,
            other => {
                let found = other.err().unwrap_or_default();
                let line = dropped(&target.label, "upstream", "left out");
                report.add(line.why(format!("there is no upstream {found}")));
                continue;
            }
        };
        let Some((host, port)) = split_address(&address, 8000) else {
            let line = dropped(&target.label, "target", "left out");
            report.add(line.why(format!("\"{address}\" is not host:port")));
            continue;
        };
        let mut node = json!({ "host": host, "port": port, "weight": weight });
        if failover {
            // Below the default priority of 0: used only when no other endpoint is healthy.
            node["priority"] = json!(-1);
        }
        // Kong's history of targets: the newest entry for an address counts.
        nodes.entry(at).or_default().insert(address, node);
    }
    nodes
}

/// Splits host and port. An IPv6 address without brackets has no port.
pub(super) fn split_address(address: &str, default_port: u16) -> Option<(String, u16)> {
    // Otherwise its last group would be taken for a port.
    if address.parse::<std::net::Ipv6Addr>().is_ok() {
        return Some((format!("[{address}]"), default_port));
    }
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !port.ends_with(']') => {
            Some((host.to_owned(), port.parse().ok().filter(|port| *port > 0)?))
        }
        _ if address.is_empty() => None,
        _ => Some((address.to_owned(), default_port)),
    }
}

fn balance(upstream: &mut KongEntity, settings: &mut Map<String, Value>, report: &mut ImportReport) {
    let hash_on = upstream.text("hash_on", report).unwrap_or_else(|| "none".into());
    // Kong's default depends on `hash_on`.
    let default = if hash_on == "none" { "round-robin" } else { "consistent-hashing" };
    let algorithm = upstream.text("algorithm", report).unwrap_or_else(|| default.into());
    let key = |upstream: &mut KongEntity, field: &str, report: &mut ImportReport| {
        upstream.text(field, report).unwrap_or_default()
    };
    let header = key(upstream, "hash_on_header", report);
    let cookie = key(upstream, "hash_on_cookie", report);
    let argument = key(upstream, "hash_on_query_arg", report);
    // Meaningful only for algorithms that are reported below.
    upstream.take("hash_on_uri_capture");
    upstream.take("hash_on_cookie_path");
    let kind = match algorithm.as_str() {
        "round-robin" => "roundrobin",
        "least-connections" => "least_conn",
        "latency" => "ewma",
        "consistent-hashing" => "chash",
        other => {
            let line = different(&upstream.label, "algorithm", "requests are given out in turn");
            report.add(line.why(format!("there is no algorithm {other} here")));
            "roundrobin"
        }
    };
    fallback(upstream, kind, &hash_on, report);
    if kind != "chash" {
        settings.insert("type".into(), kind.into());
        return;
    }
    let hash = match hash_on.as_str() {
        "consumer" => Some(("consumer", String::new())),
        "ip" => Some(("vars", "remote_addr".into())),
        "path" => Some(("vars", "uri".into())),
        "header" => Some(("header", header)),
        "query_arg" => Some(("vars", format!("arg_{argument}"))),
        "cookie" => {
            let line = different(&upstream.label, "hash_on_cookie", "a cookie that exists is hashed");
            report.add(line.why("no cookie is set for clients without one; they are hashed by address"));
            Some(("cookie", cookie))
        }
        other => {
            let line = different(&upstream.label, "hash_on", "requests are given out in turn");
            report.add(line.why(format!("{other} cannot be hashed here")));
            None
        }
    };
    let Some((on, key)) = hash else {
        settings.insert("type".into(), "roundrobin".into());
        return;
    };
    settings.insert("type".into(), "chash".into());
    settings.insert("hash_on".into(), on.into());
    if on != "consumer" {
        settings.insert("key".into(), key.into());
    }
}

fn fallback(upstream: &mut KongEntity, kind: &str, hash_on: &str, report: &mut ImportReport) {
    let fields = ["hash_fallback_header", "hash_fallback_query_arg", "hash_fallback_uri_capture"];
    let named = upstream.text("hash_fallback", report).filter(|fallback| fallback != "none");
    for field in fields {
        upstream.take(field);
    }
    // Without hashing there is nothing to fall back from; an address and a path are never absent.
    if kind != "chash" || matches!(hash_on, "ip" | "path") {
        return;
    }
    let why = match named.as_deref() {
        Some("ip") => return,
        Some(fallback) => format!("a second key, such as {fallback}, cannot be named here"),
        None => "Kong picks an endpoint at random for a request without the value".to_owned(),
    };
    let line = different(&upstream.label, "hash_fallback", "the client's address is hashed instead");
    report.add(line.why(why));
}

/// Converts health checks. Kong disables a check by numbers of 0, the gateway by its absence.
fn health_checks(mut checks: KongEntity, report: &mut ImportReport) -> Option<Value> {
    checks.skip("threshold", &json!(0), "an upstream is in use as long as one endpoint is healthy", report);
    let active = checks.child("active", report).and_then(|active| active_checks(active, report));
    let passive = checks.child("passive", report).and_then(|passive| passive_checks(passive, report));
    let label = checks.label.clone();
    checks.finish(report);
    match (active, passive) {
        (None, None) => None,
        (Some(active), None) => Some(json!({ "active": active })),
        (Some(active), Some(passive)) => Some(json!({ "active": active, "passive": passive })),
        // The gateway's passive checks need active ones to bring endpoints back.
        (None, Some(passive)) => {
            let instead = "probes that connect are added, and bring endpoints back";
            let why = "Kong keeps an endpoint unhealthy after passive checks until it is reset";
            report.add(different(&label, "healthchecks.active", instead).why(why));
            Some(json!({ "active": { "type": "tcp" }, "passive": passive }))
        }
    }
}

fn active_checks(mut active: KongEntity, report: &mut ImportReport) -> Option<Value> {
    let label = active.label.clone();
    let mut healthy = active.child("healthy", report).unwrap_or_default();
    let mut unhealthy = active.child("unhealthy", report).unwrap_or_default();
    let interval = |half: &mut KongEntity, report: &mut ImportReport| {
        // Rounded up, so that a fraction of a second does not become 0, which disables.
        half.number("interval", report).map_or(0, |seconds| seconds.max(0.0).ceil() as u64)
    };
    let intervals = (interval(&mut healthy, report), interval(&mut unhealthy, report));
    let mut out = json!({});
    probe(&mut active, &mut out, report);
    let (mut good, mut bad) = (json!({}), json!({}));
    statuses(&mut healthy, &mut good, report);
    statuses(&mut unhealthy, &mut bad, report);
    let mut never = Vec::new();
    for field in COUNTERS {
        let is_good = field == "successes";
        let (half, out) = if is_good { (&mut healthy, &mut good) } else { (&mut unhealthy, &mut bad) };
        let count = half.count(field, report).unwrap_or(0);
        // The schema has no way to disable one counter.
        out[field] = json!(if count == 0 { NEVER } else { count.min(NEVER) });
        if count == 0 {
            never.push(half.path(field));
        }
    }
    for half in [healthy, unhealthy, active] {
        half.finish(report);
    }
    // Both intervals are 0: Kong sends no probes.
    if intervals == (0, 0) {
        return None;
    }
    for field in never {
        let line = different(&label, &field, format!("it takes {NEVER} in a row"));
        report.add(line.why("0 switches this off in Kong, and a probe here counts everything"));
    }
    if intervals.0 == 0 || intervals.1 == 0 {
        let line =
            different(&label, "healthchecks.active", "healthy and unhealthy endpoints are both probed");
        report.add(line.why("an interval of 0 switches one of them off in Kong"));
    }
    let other = intervals.0.max(intervals.1);
    good["interval"] = json!(if intervals.0 == 0 { other } else { intervals.0 });
    bad["interval"] = json!(if intervals.1 == 0 { other } else { intervals.1 });
    out["healthy"] = good;
    out["unhealthy"] = bad;
    Some(out)
}

/// Sets the request of a probe.
fn probe(active: &mut KongEntity, out: &mut Value, report: &mut ImportReport) {
    let kind = active.text("type", report).unwrap_or_else(|| "http".into());
    let spoken = match kind.as_str() {
        "http" | "https" | "tcp" => kind.as_str(),
        other => {
            let line = different(&active.label, &active.path("type"), "probes only connect");
            report.add(line.why(format!("probes cannot speak {other} here")));
            "tcp"
        }
    };
    out["type"] = json!(spoken);
    if let Some(timeout) = active.number("timeout", report) {
        out["timeout"] = json!(timeout);
    }
    if let Some(concurrency) = active.count("concurrency", report) {
        out["concurrency"] = json!(concurrency);
    }
    if let Some(path) = active.text("http_path", report) {
        out["http_path"] = json!(path);
    }
    if let Some(verify) = active.flag("https_verify_certificate", report) {
        out["https_verify_certificate"] = json!(verify);
    }
    let mut fields = Vec::new();
    if let Some(Value::Object(headers)) = active.take("headers") {
        for (name, values) in headers {
            let values = match values {
                Value::Array(values) => values,
                one => vec![one],
            };
            for value in values.iter().filter_map(Value::as_str) {
                match name.eq_ignore_ascii_case("host") {
                    true => out["host"] = json!(value),
                    false => fields.push(format!("{name}: {value}")),
                }
            }
        }
    }
    if !fields.is_empty() {
        out["req_headers"] = json!(fields);
    }
    if let Some(name) = active.text("https_sni", report) {
        let line = different(&active.label, &active.path("https_sni"), "the probe names it as its host too");
        report.add(line.why("host and server name of a probe are one here"));
        out["host"] = json!(name);
    }
}

fn statuses(half: &mut KongEntity, out: &mut Value, report: &mut ImportReport) {
    let all = half.counts("http_statuses", report);
    let (known, odd): (Vec<u64>, Vec<u64>) = all.into_iter().partition(|status| (200..600).contains(status));
    if !odd.is_empty() {
        let line = different(&half.label, &half.path("http_statuses"), format!("{odd:?} left out"));
        report.add(line.why("statuses from 200 to 599 are allowed"));
    }
    if !known.is_empty() {
        out["http_statuses"] = json!(known);
    }
}

fn passive_checks(mut passive: KongEntity, report: &mut ImportReport) -> Option<Value> {
    let mut healthy = passive.child("healthy", report).unwrap_or_default();
    let mut unhealthy = passive.child("unhealthy", report).unwrap_or_default();
    let kind = passive.text("type", report).filter(|kind| matches!(kind.as_str(), "http" | "https" | "tcp"));
    let (mut good, mut bad) = (json!({}), json!({}));
    statuses(&mut healthy, &mut good, report);
    statuses(&mut unhealthy, &mut bad, report);
    let mut is_on = false;
    for field in COUNTERS {
        let is_good = field == "successes";
        let (half, out) = if is_good { (&mut healthy, &mut good) } else { (&mut unhealthy, &mut bad) };
        let count = half.count(field, report).unwrap_or(0).min(NEVER);
        // Successes alone can mark no endpoint as unhealthy.
        is_on |= count > 0 && !is_good;
        out[field] = json!(count);
    }
    for half in [healthy, unhealthy, passive] {
        half.finish(report);
    }
    is_on.then(|| json!({ "type": kind.unwrap_or_else(|| "http".into()), "healthy": good, "unhealthy": bad }))
}
