//! Plugins that limit request rates, body sizes and client addresses.

use serde_json::{Value, json};
use yumen_plugin::{PatternOptions, RegexPattern};

use super::super::scopes::PluginScope;
use super::{ConvertedPlugin, ConvertedPlugins, PluginJob};
use crate::report::different;

mod shared;

/// The plugin that limits rates.
pub(in super::super) const LIMIT: &str = "limit-count";

/// Begins the key of a rule that counts all requests of a service. A rule applies only if its key has a variable.
pub(in super::super) const SERVICE_KEY: &str = "$server_name";

/// Gives a global plugin one set of counters for all services.
pub(super) fn share_among_services(scope: PluginScope, settings: &mut Value) {
    // Several windows cannot have a group; their routes share a plugin config.
    if scope.is_global() && settings.get("rules").is_none() && settings["key_type"] == "var" {
        let group = format!("kong-rate-limiting-{}", settings["key"].as_str().unwrap_or_default());
        settings["group"] = group.into();
    }
}

/// Kong's windows and their lengths in seconds.
const WINDOWS: [(&str, u64); 6] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3600),
    ("day", 86_400),
    ("month", 2_592_000),
    ("year", 31_536_000),
];

/// One limit: requests per window.
struct KongRateWindow {
    name: String,
    seconds: u64,
    count: u64,
}

pub(super) fn rate_limiting(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let mut windows = Vec::new();
    for (name, seconds) in WINDOWS {
        // Zero is no limit of use; Kong's schema requires more than zero.
        if let Some(count) = job.number(name).filter(|count| *count > 0.0) {
            windows.push(KongRateWindow { name: name.to_owned(), seconds, count: count.ceil() as u64 });
        }
    }
    let location = shared::location(job, "policy", shortest(&windows));
    let message = job.text("error_message").unwrap_or_else(|| "API rate limit exceeded".into());
    let key = key(job, "limit_by");
    counted_in(location, limit(job, &windows, key, &message))
}

fn shortest(windows: &[KongRateWindow]) -> u64 {
    windows.iter().map(|window| window.seconds).min().unwrap_or(0)
}

/// Adds the settings of the counters' location to all limits.
fn counted_in(location: serde_json::Map<String, Value>, mut limits: ConvertedPlugins) -> ConvertedPlugins {
    for limit in &mut limits {
        for (name, value) in &location {
            limit.settings[name] = value.clone();
        }
    }
    limits
}

/// Limits with windows of any length, which may slide.
pub(super) fn rate_limiting_advanced(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let limits = job.settings.counts("limit", job.report);
    let sizes = job.settings.counts("window_size", job.report);
    let window = |(count, seconds)| KongRateWindow { name: format!("{seconds}s"), seconds, count };
    // The lists correspond by position; Kong requires equal lengths.
    let windows: Vec<_> = limits.into_iter().zip(sizes).map(window).collect();
    let kind = job.text("window_type").unwrap_or_else(|| "sliding".into());
    let location = shared::location(job, "strategy", shortest(&windows));
    for field in ["namespace", "dictionary_name", "disable_penalty", "lock_dictionary_name"] {
        job.skip(field, Value::Null, "it has no counterpart here");
    }
    let message = job.text("error_message").unwrap_or_else(|| "API rate limit exceeded".into());
    let key = key(job, "identifier");
    let mut limits = counted_in(location, limit(job, &windows, key, &message));
    // Kong's default here; `limit-count` has fixed windows by default.
    if kind == "sliding" {
        for limit in &mut limits {
            limit.settings["window_type"] = json!("sliding");
        }
    }
    limits
}

/// The key of a limit: a variable, or a constant for all requests.
enum KongLimitKey {
    Variable(String),
    Constant,
}

fn key(job: &mut PluginJob<'_>, field: &str) -> KongLimitKey {
    let address = || KongLimitKey::Variable("remote_addr".into());
    let by = job.text(field).unwrap_or_else(|| "consumer".into());
    let header = job.text("header_name");
    let path = job.text("path");
    match (by.as_str(), header, path) {
        ("consumer", ..) if job.authentication.identifies() => KongLimitKey::Variable("consumer_name".into()),
        // Without authentication, Kong uses the client address.
        ("consumer" | "credential" | "ip", ..) if by == "ip" || !job.authentication.identifies() => address(),
        ("credential", ..) => {
            job.different(field, "consumers are counted", "credentials of one consumer are not told apart");
            KongLimitKey::Variable("consumer_name".into())
        }
        ("service", ..) => KongLimitKey::Constant,
        ("header", Some(name), _) => {
            KongLimitKey::Variable(format!("http_{}", name.to_lowercase().replace('-', "_")))
        }
        ("path", _, Some(_)) => {
            let line = different(job.label, &job.path(field), "every path is counted on its own");
            let why = "Kong counts other paths by address; here a client with many paths exceeds no limit";
            job.report.weaken(line.why(why).hint("limit the one path on a route of its own, by ip"));
            KongLimitKey::Variable("uri".into())
        }
        (other, ..) => {
            job.different(field, "clients are counted by address", format!("{other} cannot be counted here"));
            address()
        }
    }
}

fn limit(
    job: &mut PluginJob<'_>,
    windows: &[KongRateWindow],
    key: KongLimitKey,
    message: &str,
) -> ConvertedPlugins {
    let shows = !job.flag("hide_client_headers", false);
    let status = job.count("error_code").unwrap_or(429);
    let mut out = json!({ "rejected_code": status });
    match windows {
        [] => {
            // Kong rejects such a plugin, so its windows are misspelt or malformed.
            job.dropped("", "it limits nothing");
            job.loses_guard = true;
            return Vec::new();
        }
        [KongRateWindow { seconds, count, .. }] => {
            let (name, kind) = match &key {
                KongLimitKey::Variable(name) => (name.as_str(), "var"),
                KongLimitKey::Constant => ("service", "constant"),
            };
            out["count"] = json!(count);
            out["time_window"] = json!(seconds);
            out["key"] = json!(name);
            out["key_type"] = json!(kind);
        }
        many => set_rules(job, many, &key, &mut out),
    }
    if !shows {
        out["show_limit_quota_header"] = json!(false);
    }
    out["_meta"] = json!({ "error_response": { "message": message } });
    let why = "here a window begins with its first request, and fields named after it are not sent";
    job.different("", "windows do not begin on the clock's full minute or hour", why);
    super::one(LIMIT, out)
}

/// Sets the rules of several windows.
fn set_rules(job: &mut PluginJob<'_>, windows: &[KongRateWindow], key: &KongLimitKey, out: &mut Value) {
    match key {
        // Preflight requests may lack a consumer and must not fail.
        KongLimitKey::Variable(name) if name == "consumer_name" => out["allow_degradation"] = json!(true),
        KongLimitKey::Variable(name) if name.starts_with("http_") => {
            let why = "with several windows there is no other key where a field is missing";
            job.different("", "requests are counted by the field and the address together", why);
        }
        _ => {}
    }
    out["rules"] = windows.iter().map(|window| window.rule(key)).collect();
}

impl KongRateWindow {
    fn rule(&self, key: &KongLimitKey) -> Value {
        let KongRateWindow { name, seconds, count } = self;
        let key = match key {
            // A rule applies only if one of its variables has a value.
            KongLimitKey::Variable(variable) if variable.starts_with("http_") => {
                format!("${variable} $remote_addr {name}")
            }
            KongLimitKey::Variable(variable) => format!("${variable} {name}"),
            KongLimitKey::Constant => format!("{SERVICE_KEY} {name}"),
        };
        let prefix = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
        json!({ "count": count, "time_window": seconds, "key": key, "header_prefix": prefix })
    }
}

pub(super) fn ip_restriction(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let mut allow = job.texts("allow");
    allow.extend(job.texts("whitelist"));
    let mut deny = job.texts("deny");
    deny.extend(job.texts("blacklist"));
    let message = job.text("message");
    let status = job.count("status").unwrap_or(403);
    if !matches!(status, 403 | 404) {
        job.different("status", "403 is answered", "403 and 404 are allowed");
    }
    // Still a refusal: a status that is not supported must not open the route.
    let status = if status == 404 { 404 } else { 403 };
    let text = message.clone().unwrap_or_else(|| "Your IP address is not allowed".into());
    let restriction = |list: &str, addresses: &[String]| json!({ list: addresses, "message": text, "response_code": status });
    match (allow.is_empty(), deny.is_empty()) {
        (true, true) => {
            // Kong rejects such a plugin, so its list is misspelt or malformed.
            job.dropped("", "it has neither `allow` nor `deny`");
            job.loses_guard = true;
            Vec::new()
        }
        (false, true) => super::one("ip-restriction", restriction("whitelist", &allow)),
        (true, false) => super::one("ip-restriction", restriction("blacklist", &deny)),
        // An address in both lists is refused, as in Kong, where the deny list is checked first.
        (false, false) => {
            let instead = "the denied addresses are refused by mocking, the others by ip-restriction";
            job.different("deny", instead, "ip-restriction has one list here");
            let refusal = json!({
                "response_status": status,
                "content_type": "application/json;charset=utf8",
                "response_example": super::transform::literal(&json!({ "message": text }).to_string()),
                "with_mock_header": false,
                "_meta": { "priority": 3001, "filter": [["remote_addr", "ipmatch", deny]] },
            });
            let allowed =
                ConvertedPlugin { name: "ip-restriction", settings: restriction("whitelist", &allow) };
            vec![allowed, ConvertedPlugin { name: "mocking", settings: refusal }]
        }
    }
}

pub(super) fn request_size_limiting(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let size = job.count("allowed_payload_size").unwrap_or(128);
    let unit = match job.text("size_unit").as_deref() {
        Some("bytes") => 1,
        Some("kilobytes") => 1 << 10,
        _ => 1 << 20,
    };
    job.skip("require_content_length", json!(false), "requests without a length are let through");
    if size == 0 {
        job.different("allowed_payload_size", "bodies of one byte pass", "0 is no limit here");
    }
    // 0 would remove the limit.
    super::one("client-control", json!({ "max_body_size": size.saturating_mul(unit).max(1) }))
}

pub(super) fn bot_detection(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let allow = usable_patterns(job, "allow", "whitelist");
    let deny = usable_patterns(job, "deny", "blacklist");
    let line = different(job.label, "", "only the patterns of the file count");
    let line = line.why("Kong's own list of robots is not known here");
    match deny.is_empty() {
        // The refusal below counts.
        true => job.report.add(line),
        false => job.report.weaken(line.hint("add the robots to `denylist` of ua-restriction")),
    }
    if deny.is_empty() {
        job.dropped("", "without Kong's own list it has no pattern");
        // Without its list the guard would let everything pass, so the import refuses the requests instead.
        job.loses_guard = true;
        return Vec::new();
    }
    // Kong admits requests without a user agent.
    let mut out = json!({ "denylist": deny, "bypass_missing": true, "message": "Forbidden" });
    if !allow.is_empty() {
        // The list exempts from the other one; `allowlist` would refuse all other user agents.
        let any_of: Vec<String> = allow.iter().map(|pattern| format!("(?:{pattern})")).collect();
        out["_meta"] = json!({ "filter": [["http_user_agent", "!", "~~", any_of.join("|")]] });
    }
    super::one("ua-restriction", out)
}

/// The patterns of a list, under its present name or the one before Kong 2.0.
fn usable_patterns(job: &mut PluginJob<'_>, field: &str, former: &str) -> Vec<String> {
    let mut patterns = job.texts(field);
    patterns.extend(job.texts(former));
    let (usable, others): (Vec<String>, Vec<String>) = patterns
        .into_iter()
        .partition(|pattern| RegexPattern::new(pattern, PatternOptions::default()).is_ok());
    for pattern in others {
        // A missing pattern of `deny` admits user agents, one of `allow` only refuses some.
        job.loses_guard |= field == "deny";
        job.dropped(field, format!("the pattern {pattern} cannot be used"));
    }
    usable
}
