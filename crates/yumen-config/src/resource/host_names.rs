//! Remedies for refused host names, which are often written as URLs.

use serde_json::Value;

use crate::schema::InvalidSettings;

/// Members that hold the name of a host.
const MEMBERS: [&str; 5] = ["host", "hosts", "sni", "snis", "upstream_host"];

/// The refusal of `object` with a remedy, if a host name is refused.
pub(super) fn with_remedy(invalid: InvalidSettings, object: &Value) -> InvalidSettings {
    match value_at(object, &invalid.path).and_then(remedy) {
        Some(remedy) => invalid.hint(remedy),
        None => invalid,
    }
}

/// The text at a dotted path whose last member holds the name of a host.
fn value_at<'v>(object: &'v Value, path: &str) -> Option<&'v str> {
    let steps = || path.split(['.', '[']).map(|step| step.trim_end_matches(']'));
    let is_index = |step: &&str| step.parse::<usize>().is_ok();
    let last = steps().rfind(|step| !is_index(step))?;
    if !MEMBERS.contains(&last) {
        return None;
    }
    let value = steps().try_fold(object, |value, step| match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => value.get(step),
    });
    value?.as_str()
}

fn remedy(written: &str) -> Option<String> {
    if !written.is_ascii() {
        return Some("write the name in ASCII, as in \"xn--bcher-kva.example\"".to_owned());
    }
    let rest = written.split_once("://").map_or(written, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.rsplit_once(':') {
        Some((bare, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !bare.contains(':') => bare,
        _ => host,
    };
    // A star elsewhere than in the first label matches nothing, in APISIX either.
    if host.trim_start_matches('*').contains('*') {
        return Some("a * can only stand for the first labels, as in \"*.example.com\"".to_owned());
    }
    (host != written && !host.is_empty()).then(|| format!("write the host alone: \"{host}\""))
}
