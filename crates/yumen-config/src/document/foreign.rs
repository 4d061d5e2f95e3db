//! Files of other programs, and of other purposes, given as a document of resources.
//!
//! Such a file parses, or nearly so, and would count as a document without resources.

use serde_json::{Map, Value};
use yumen_base::{FilePlace, Problem};

use super::syntax::span;
use crate::resource::Kind;

/// Sections of Kong's declarative format. `_format_version` is required there (Kong documentation, "Declarative
/// configuration").
const KONG: [&str; 3] = ["_format_version", "_transform", "_plugin_configs"];

/// Sections of APISIX's `config.yaml`.
const APISIX: [&str; 5] = ["apisix", "deployment", "nginx_config", "plugin_attr", "ext-plugin"];

/// Sections of the node settings that no other program has together.
const NODE: [&str; 9] =
    ["listen", "stream_listen", "workers", "admin", "status", "store", "logs", "limits", "timeouts"];

const KONG_HINT: &str = "convert it: yumen import kong FILE --out routes.yaml";

const ADC_HINT: &str = "a running gateway takes it through its Admin API: adc sync --backend apisix --server \
                        http://127.0.0.1:9180 --token KEY -f FILE; yumen export then writes a file of resources";

const KUBERNETES: &str = "the file is a Kubernetes manifest";
const MANIFEST_HINT: &str =
    "for manifests add --kubernetes -f; a resource file has sections such as routes, services and upstreams";

const RESOURCES_HINT: &str = "write the resources of the gateway: routes, services, upstreams";

/// Whether an item has members that only ADC's have: a service with its upstream and its routes, or with routes whose
/// paths are `uris` (documentation of ADC, "Configuration").
pub(super) fn is_adc_item(kind: Kind, members: &Map<String, Value>) -> bool {
    let routes = ["routes", "stream_routes"].iter().find_map(|name| members.get(*name)?.as_array());
    let has_uris = |route: &Value| route.get("uris").is_some();
    kind == Kind::Services
        && routes.is_some_and(|routes| members.contains_key("upstream") || routes.iter().any(has_uris))
}

/// The problem of a document with nothing but such items.
pub(super) fn of_adc_items(list: Kind) -> Problem {
    let message = "all items have members of ADC's: the file is a configuration of ADC";
    Problem::error("file", list.name(), message).hint(ADC_HINT)
}

/// Whether an item has members that only Kong's entities have.
pub(super) fn is_kong_item(kind: Kind, members: &Map<String, Value>) -> bool {
    let has = |name: &str| members.contains_key(name);
    match kind {
        _ if is_adc_item(kind, members) => false,
        Kind::Services => has("url") || has("routes") || (has("host") && has("port")),
        Kind::Routes => has("paths") && !has("uri") && !has("uris"),
        _ => false,
    }
}

/// The problem of a document with nothing but such items.
pub(super) fn of_kong_items(list: Kind) -> Problem {
    let message = "all items have members of Kong's: the file is a configuration of Kong";
    // The import needs the version: a path has another meaning before 3.0.
    let hint = format!("add the line _format_version: \"3.0\" at its top, and {KONG_HINT}");
    Problem::error("file", list.name(), message).hint(hint)
}

/// The problem of a document with these `unknown` sections; `has_lists` is whether it has lists of resources too.
pub(super) fn of_sections(unknown: &[String], has_lists: bool) -> Option<Problem> {
    let first = |known: &[&str]| unknown.iter().find(|section| known.contains(&section.as_str()));
    let problem =
        |section: &str, found: &str, hint: &str| Some(Problem::error("file", section, found).hint(hint));
    if let Some(section) = first(&KONG) {
        return problem(
            section,
            "unknown section: the file is a declarative configuration of Kong",
            KONG_HINT,
        );
    }
    if let (Some(section), Some(_)) = (first(&["apiVersion"]), first(&["kind"])) {
        return problem(section, &format!("unknown section: {KUBERNETES}"), MANIFEST_HINT);
    }
    // With lists of resources, the other sections are ignored, as APISIX ignores them.
    if has_lists {
        return None;
    }
    if let Some(section) = first(&APISIX) {
        let hint =
            "give the file of the resources, apisix.yaml; node settings of this gateway are in yumen.yaml";
        return problem(section, "unknown section: the file is the config.yaml of APISIX", hint);
    }
    let section = first(&NODE)?;
    problem(
        section,
        "unknown section: the file contains node settings",
        "give it by --config, not as resources",
    )
}

/// The problem of a text that does not parse because it is of another program.
pub(super) fn of_broken(text: &str) -> Option<Problem> {
    of_manifests(text).or_else(|| of_directives(text))
}

/// Kubernetes manifests, mostly several documents in one file.
fn of_manifests(text: &str) -> Option<Problem> {
    let has_kind = text.lines().any(|line| line.starts_with("kind: "));
    let (at, line) = text.lines().enumerate().find(|(_, line)| line.starts_with("apiVersion: "))?;
    let problem = has_kind.then(|| Problem::error("file", "", KUBERNETES).hint(MANIFEST_HINT))?;
    Some(placed(problem, at, line))
}

fn placed(problem: Problem, at: usize, line: &str) -> Problem {
    let span = span(at + 1, 1, line.trim_end().chars().count());
    Problem { place: Some(FilePlace { file: "".into(), span }), ..problem }
}

fn of_directives(text: &str) -> Option<Problem> {
    let words = ["http", "server", "events", "stream", "upstream", "worker_processes", "user", "location"];
    let is_directive = |line: &str| {
        let line = line.trim_end();
        let word = line.trim_start().split([' ', '\t', '{']).next().unwrap_or_default();
        words.contains(&word) && (line.ends_with('{') || line.ends_with(';'))
    };
    let mut directives = text.lines().enumerate().filter(|(_, line)| is_directive(line));
    // A single line may be a part of a text in a value.
    let ((first, line), _) = (directives.next()?, directives.next()?);
    let problem = Problem::error("file", "", "the file is a configuration of NGINX").hint(RESOURCES_HINT);
    Some(placed(problem, first, line))
}
