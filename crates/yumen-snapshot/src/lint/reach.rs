//! Hosts that stay open where a client certificate is asked for: a wildcard of a certificate stands for one label, that
//! of a route for any number of them.

use std::collections::BTreeMap;

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::Kind;

use super::{Lint, Texts};

pub(super) fn check(input: &Lint<'_>, texts: &Texts<'_>) -> Vec<Problem> {
    let guarded = guarded(texts);
    let mut problems = Vec::new();
    for (one, value) in texts.iter().filter(|(one, _)| matches!(one.kind, Kind::Routes | Kind::Services)) {
        for (path, host) in names(value, "host", "hosts") {
            let host = host.to_ascii_lowercase();
            let Some(ssl) = guarded.get(host.as_str()) else { continue };
            let deeper = host.replacen('*', "a.b", 1);
            if input.snapshot.certificate(&deeper).is_some_and(|shown| shown.client.is_some()) {
                continue;
            }
            let message = format!(
                "{host} of a route reaches names such as {deeper}, which {host} of ssls/{ssl} does not: they are served without a client certificate"
            );
            let hint = "list the hosts one by one, or ask for certificates under those names too";
            problems.push(Problem::warning(one.to_string(), path, message).hint(hint));
        }
    }
    problems
}

/// The wildcards under which clients are asked for certificates, and the object that asks.
fn guarded<'t>(texts: &'t Texts<'_>) -> BTreeMap<String, &'t str> {
    let mut guarded = BTreeMap::new();
    for (one, value) in texts.iter().filter(|(one, _)| one.kind == Kind::Ssls) {
        let text = |field: &str| value.get(field).and_then(Value::as_str);
        let is_off = value.get("status").and_then(Value::as_u64) == Some(0) || text("type") == Some("client");
        if is_off || !value.get("client").is_some_and(Value::is_object) {
            continue;
        }
        let wildcards = names(value, "sni", "snis").into_iter().filter(|(_, name)| name.starts_with("*."));
        guarded.extend(wildcards.map(|(_, name)| (name.to_ascii_lowercase(), &*one.id)));
    }
    guarded
}

/// The texts of a field that holds one and of one that holds several, with their paths.
fn names<'v>(value: &'v Value, one: &str, several: &str) -> Vec<(String, &'v str)> {
    let listed = value.get(several).and_then(Value::as_array).into_iter().flatten().enumerate();
    let listed = listed.filter_map(|(at, name)| Some((format!("{several}[{at}]"), name.as_str()?)));
    let alone = value.get(one).and_then(Value::as_str).map(|name| (one.to_owned(), name));
    alone.into_iter().chain(listed).collect()
}
