//! Plugins that limit how much, how large, and from where.

use serde_json::{Value, json};

use super::{Ours, PluginJob};

mod shared;

/// Kong's windows and their seconds.
const WINDOWS: [(&str, u64); 6] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3600),
    ("day", 86_400),
    ("month", 2_592_000),
    ("year", 31_536_000),
];

pub(super) fn rate_limiting(job: &mut PluginJob<'_>) -> Ours {
    let mut windows = Vec::new();
    for (name, seconds) in WINDOWS {
        if let Some(count) = job.number(name).filter(|count| *count > 0.0) {
            windows.push((name.to_owned(), seconds, count.ceil() as u64));
        }
    }
    let place = shared::place(job, "policy", shortest(&windows));
    let message = job.text("error_message").unwrap_or_else(|| "API rate limit exceeded".into());
    let key = key(job, "limit_by");
    counted_in(place, limit(job, &windows, key, &message))
}

fn shortest(windows: &[(String, u64, u64)]) -> u64 {
    windows.iter().map(|(_, seconds, _)| *seconds).min().unwrap_or(0)
}

/// The same limits, counted there.
fn counted_in(place: serde_json::Map<String, Value>, mut ours: Ours) -> Ours {
    for (_, settings) in &mut ours {
        for (name, value) in &place {
            settings[name] = value.clone();
        }
    }
    ours
}

/// The same with windows of any length that may slide.
pub(super) fn rate_limiting_advanced(job: &mut PluginJob<'_>) -> Ours {
    let limits = job.settings.counts("limit", job.report);
    let sizes = job.settings.counts("window_size", job.report);
    let window = |(count, seconds): (u64, u64)| (format!("{seconds}s"), seconds, count);
    let windows: Vec<_> = limits.into_iter().zip(sizes).map(window).collect();
    let kind = job.text("window_type").unwrap_or_else(|| "sliding".into());
    let place = shared::place(job, "strategy", shortest(&windows));
    for field in ["namespace", "dictionary_name", "disable_penalty", "lock_dictionary_name"] {
        job.skip(field, Value::Null, "it has no counterpart here");
    }
    let message = job.text("error_message").unwrap_or_else(|| "API rate limit exceeded".into());
    let key = key(job, "identifier");
    let mut ours = counted_in(place, limit(job, &windows, key, &message));
    for (_, settings) in &mut ours {
        if kind == "sliding" {
            settings["window_type"] = json!("sliding");
        }
    }
    ours
}

/// What requests are told apart by: a variable, or the name of a constant for all alike.
enum KongLimitKey {
    Variable(String),
    Everybody,
}

fn key(job: &mut PluginJob<'_>, field: &str) -> KongLimitKey {
    let address = || KongLimitKey::Variable("remote_addr".into());
    let by = job.text(field).unwrap_or_else(|| "consumer".into());
    let header = job.text("header_name");
    let path = job.text("path");
    match (by.as_str(), header, path) {
        ("consumer", ..) if job.place.is_identified => KongLimitKey::Variable("consumer_name".into()),
        // Nobody is identified here: Kong goes by the address then.
        ("consumer" | "credential" | "ip", ..) if by == "ip" || !job.place.is_identified => address(),
        ("credential", ..) => {
            job.different(field, "consumers are counted", "credentials of one consumer are not told apart");
            KongLimitKey::Variable("consumer_name".into())
        }
        ("service", ..) => KongLimitKey::Everybody,
        ("header", Some(name), _) => {
            KongLimitKey::Variable(format!("http_{}", name.to_lowercase().replace('-', "_")))
        }
        ("path", _, Some(_)) => {
            job.different(field, "every path is counted on its own", "a single path cannot be named here");
            KongLimitKey::Variable("uri".into())
        }
        (other, ..) => {
            job.different(field, "clients are counted by address", format!("{other} cannot be counted here"));
            address()
        }
    }
}

fn limit(job: &mut PluginJob<'_>, windows: &[(String, u64, u64)], key: KongLimitKey, message: &str) -> Ours {
    let shows = !job.flag("hide_client_headers", false);
    let status = job.count("error_code").unwrap_or(429);
    let mut out = json!({ "rejected_code": status });
    match windows {
        [] => {
            job.dropped("", "it limits nothing");
            return Vec::new();
        }
        [(_, seconds, count)] => {
            let (name, kind) = match &key {
                KongLimitKey::Variable(name) => (name.as_str(), "var"),
                KongLimitKey::Everybody => ("service", "constant"),
            };
            out["count"] = json!(count);
            out["time_window"] = json!(seconds);
            out["key"] = json!(name);
            out["key_type"] = json!(kind);
            if job.is_global && kind == "var" {
                // One set of counters for all services, as the plugin was one.
                out["group"] = json!(format!("kong-rate-limiting-{name}"));
            }
        }
        many => {
            match &key {
                // Preflights may be let through without one; as with Kong they shall not fail.
                KongLimitKey::Variable(name) if name == "consumer_name" => {
                    out["allow_degradation"] = json!(true)
                }
                KongLimitKey::Variable(name) if name.starts_with("http_") => {
                    let instead = "requests are counted by the field and the address together";
                    job.different(
                        "",
                        instead,
                        "with several windows there is no other key where a field is missing",
                    );
                }
                _ => {}
            }
            let rule = |(name, seconds, count): &(String, u64, u64)| {
                let key = match &key {
                    // A rule none of whose variables has a value never applies.
                    KongLimitKey::Variable(variable) if variable.starts_with("http_") => {
                        format!("${variable} $remote_addr {name}")
                    }
                    KongLimitKey::Variable(variable) => format!("${variable} {name}"),
                    // A rule whose key has no variable never applies.
                    KongLimitKey::Everybody => format!("$server_name {name}"),
                };
                let prefix = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
                json!({ "count": count, "time_window": seconds, "key": key, "header_prefix": prefix })
            };
            out["rules"] = many.iter().map(rule).collect();
            if job.is_global {
                job.different("", "each service counts for itself", "several windows cannot share counters");
            }
        }
    }
    if !shows {
        out["show_limit_quota_header"] = json!(false);
    }
    out["_meta"] = json!({ "error_response": { "message": message } });
    let why = "here a window begins with its first request, and fields named after it are not sent";
    job.different("", "windows do not begin on the clock's full minute or hour", why);
    vec![("limit-count", out)]
}

pub(super) fn ip_restriction(job: &mut PluginJob<'_>) -> Ours {
    let mut allow = job.texts("allow");
    allow.extend(job.texts("whitelist"));
    let mut deny = job.texts("deny");
    deny.extend(job.texts("blacklist"));
    let message = job.text("message");
    let status = job.count("status").unwrap_or(403);
    if !matches!(status, 403 | 404) {
        job.different("status", "403 is answered", "403 and 404 are allowed");
    }
    let status = if status == 404 { 404 } else { 403 };
    let text = message.clone().unwrap_or_else(|| "Your IP address is not allowed".into());
    let own = |list: &str, addresses: &[String]| json!({ list: addresses, "message": text, "response_code": status });
    match (allow.is_empty(), deny.is_empty()) {
        (true, true) => {
            // Kong refuses such a plugin: its list is misspelt or cannot be read.
            job.dropped("", "it has neither `allow` nor `deny`");
            job.opens = true;
            Vec::new()
        }
        (false, true) => vec![("ip-restriction", own("whitelist", &allow))],
        (true, false) => vec![("ip-restriction", own("blacklist", &deny))],
        (false, false) => {
            let instead = "the denied addresses are refused by mocking, the others by ip-restriction";
            job.different("deny", instead, "ip-restriction has one list here");
            let refusal = json!({
                "response_status": status,
                "content_type": "application/json;charset=utf8",
                "response_example": json!({ "message": text }).to_string(),
                "with_mock_header": false,
                "_meta": { "priority": 3001, "filter": [["remote_addr", "ipmatch", deny]] },
            });
            vec![("ip-restriction", own("whitelist", &allow)), ("mocking", refusal)]
        }
    }
}

pub(super) fn request_size_limiting(job: &mut PluginJob<'_>) -> Ours {
    let size = job.count("allowed_payload_size").unwrap_or(128);
    let unit = match job.text("size_unit").as_deref() {
        Some("bytes") => 1,
        Some("kilobytes") => 1 << 10,
        _ => 1 << 20,
    };
    job.skip("require_content_length", json!(false), "requests without a length are let through");
    vec![("client-control", json!({ "max_body_size": size.saturating_mul(unit) }))]
}

pub(super) fn bot_detection(job: &mut PluginJob<'_>) -> Ours {
    let mut out = json!({});
    let allow = job.texts("allow");
    let deny = job.texts("deny");
    job.different("", "only the patterns of the file count", "Kong's own list of robots is not known here");
    match (allow.is_empty(), deny.is_empty()) {
        (true, true) => {
            job.dropped("", "without Kong's own list it has no pattern");
            job.opens = true;
            return Vec::new();
        }
        (_, false) => out["denylist"] = json!(deny),
        (false, true) => out["allowlist"] = json!(allow),
    }
    if !allow.is_empty() && !deny.is_empty() {
        job.dropped("allow", "one of the two lists can be given here");
    }
    vec![("ua-restriction", out)]
}
