//! Finds upstreams in objects: upstream objects, inline upstreams, upstreams in plugin settings, and the ids of upstreams
//! in native members.

use serde_json::{Map, Value};

use super::Kind;

/// The plugin with upstreams in its settings.
pub const SPLITS_TRAFFIC: &str = "traffic-split";

type Found<'v> = Vec<(String, &'v Map<String, Value>)>;

/// Every upstream in an object, with its path: the object itself, its `upstream`, those in its plugins.
/// Values of the wrong type are skipped.
pub fn upstreams_in(kind: Kind, object: &Map<String, Value>) -> Found<'_> {
    if kind == Kind::Upstreams {
        return vec![(String::new(), object)];
    }
    let own = object.get("upstream").and_then(Value::as_object);
    let mut found: Found<'_> = own.map(|upstream| ("upstream".to_owned(), upstream)).into_iter().collect();
    if let Some(settings) = object.get("plugins").and_then(|plugins| plugins.get(SPLITS_TRAFFIC)) {
        let under = |(path, upstream)| (format!("plugins.{SPLITS_TRAFFIC}.{path}"), upstream);
        found.extend(upstreams_in_split(settings).into_iter().map(under));
    }
    found
}

/// Every upstream in settings of `traffic-split`, with its path within them.
pub fn upstreams_in_split(settings: &Value) -> Found<'_> {
    let mut found = Vec::new();
    for (rule_at, rule) in list(settings, "rules").iter().enumerate() {
        for (at, weighted) in list(rule, "weighted_upstreams").iter().enumerate() {
            let path = format!("rules[{rule_at}].weighted_upstreams[{at}].upstream");
            found
                .extend(weighted.get("upstream").and_then(Value::as_object).map(|upstream| (path, upstream)));
        }
    }
    found
}

/// The upstreams that native members of an object name: its backends, mirrors, authorization service and error pages.
pub fn native_upstream_ids(object: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    let backends = object.get("backends").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let actions = object.get("actions");
    let mirrors = actions.map_or(&[][..], |actions| list(actions, "mirrors"));
    let service = actions.and_then(|actions| actions.get("external_auth"));
    let pages = actions.and_then(|actions| actions.get("errors")?.get("pages"));
    backends.iter().chain(mirrors).chain(service).chain(pages).filter_map(Value::as_object)
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
