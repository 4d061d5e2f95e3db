//! Timeouts, further attempts, bodies, and edits of cookies and locations in responses.

use serde_json::{Value, json};

use super::LocationDraft;
use crate::ingress_nginx::{FieldReplacement, NextUpstreamCondition, NextUpstreamRule, SnippetSetting};

/// Attempts without a bound.
const ATTEMPTS_MAX: u32 = 100;
/// Seconds without a bound.
const UNBOUNDED_S: f64 = 86_400.0;

pub(super) fn add(draft: &mut LocationDraft<'_, '_, '_>) {
    let proxy = &draft.settings.proxy;
    let seconds = |written: u32| if written == 0 { UNBOUNDED_S } else { f64::from(written) };
    let timeout = json!({
        "connect": seconds(proxy.connect_timeout_s),
        "send": seconds(proxy.send_timeout_s),
        "read": seconds(proxy.read_timeout_s),
    });
    draft.members.insert("timeout".to_owned(), timeout);
    draft.set_action("limits", "body_bytes_max", proxy.body_bytes_max.into());
    if proxy.next_upstream != NextUpstreamRule::default() {
        add_retries(draft, &proxy.next_upstream);
    }
    let lists = [("cookie_domains", &proxy.cookie_domains), ("cookie_paths", &proxy.cookie_paths)];
    for (member, list) in lists {
        for one in list {
            draft.push_action("response_rewrite", member, replacement(one));
        }
    }
    if let Some(location) = &proxy.location {
        draft.push_action("response_rewrite", "locations", replacement(location));
    }
    if proxy.http_1_0 {
        draft.warn("proxy-http-version", "services are reached by HTTP/1.1");
    }
}

fn add_retries(draft: &mut LocationDraft<'_, '_, '_>, rule: &NextUpstreamRule) {
    let mut statuses: Vec<u16> = Vec::new();
    for condition in &rule.conditions {
        match condition {
            // Statuses below 400 are no failures; an endpoint that sends one has responded.
            NextUpstreamCondition::Status(status) if (400..600).contains(status) => statuses.push(*status),
            NextUpstreamCondition::NonIdempotent => {
                draft.warn(
                    "proxy-next-upstream",
                    "non_idempotent: requests that may have had an effect are not repeated",
                );
            }
            _ => {}
        }
    }
    statuses.sort_unstable();
    statuses.dedup();
    let attempts = match (rule.conditions.is_empty(), rule.tries) {
        (true, _) => 0,
        (false, 0) => ATTEMPTS_MAX,
        (false, tries) => (tries - 1).min(ATTEMPTS_MAX),
    };
    if rule.timeout_s > 0 {
        draft.warn("proxy-next-upstream-timeout", "attempts are bounded by their number and the timeouts");
    }
    let value = json!({ "statuses": statuses, "attempts": attempts });
    draft.members.insert("retry".to_owned(), value);
}

fn replacement(written: &FieldReplacement) -> Value {
    let to = written.to.to_string();
    if let Some(pattern) = written.from.strip_prefix("~*") {
        return json!({ "from": pattern.trim_start(), "regex": true, "ignore_case": true, "to": to });
    }
    match written.from.strip_prefix('~') {
        Some(pattern) => json!({ "from": pattern.trim_start(), "regex": true, "to": to }),
        None => json!({ "from": &*written.from, "to": to }),
    }
}

/// Applies a setting of a snippet.
pub(super) fn apply_setting(draft: &mut LocationDraft<'_, '_, '_>, setting: &SnippetSetting) {
    let seconds = |ms: u64| Value::from((ms.max(1) as f64) / 1000.0);
    let mut set_timeout = |member: &str, ms: u64| {
        if let Some(timeout) = draft.members.get_mut("timeout") {
            timeout[member] = seconds(ms);
        }
    };
    match setting {
        SnippetSetting::ConnectTimeoutMs(ms) => set_timeout("connect", *ms),
        SnippetSetting::ReadTimeoutMs(ms) => set_timeout("read", *ms),
        SnippetSetting::SendTimeoutMs(ms) => set_timeout("send", *ms),
        SnippetSetting::BodyBytesMax(bytes) => draft.set_action("limits", "body_bytes_max", (*bytes).into()),
        SnippetSetting::ResponseRate(0) => {}
        SnippetSetting::ResponseRate(bytes) => draft.set_action("limits", "response_rate", (*bytes).into()),
        SnippetSetting::ResponseRateAfter(bytes) => {
            draft.set_action("limits", "response_rate_after", (*bytes).into());
        }
        SnippetSetting::AccessLog(false) => drop(draft.actions.insert("access_log".to_owned(), false.into())),
        SnippetSetting::AccessLog(true) => drop(draft.actions.shift_remove("access_log")),
        SnippetSetting::Gzip(is_on) => add_plugin(draft, "gzip", gzip(*is_on)),
        SnippetSetting::Method(method) => {
            add_plugin(draft, "proxy-rewrite", json!({ "method": method.to_ascii_uppercase() }));
        }
        SnippetSetting::SatisfyAny(is_any) => {
            draft.set_action("access", "satisfy", if *is_any { "any" } else { "all" }.into());
        }
    }
}

fn gzip(is_on: bool) -> Value {
    if is_on { json!({}) } else { json!({ "_meta": { "disable": true } }) }
}

fn add_plugin(draft: &mut LocationDraft<'_, '_, '_>, name: &str, settings: Value) {
    let plugins = draft.members.entry("plugins".to_owned()).or_insert_with(|| json!({}));
    plugins[name] = settings;
}
