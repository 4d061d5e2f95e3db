//! Files of other programs, and of other purposes, given as a document of resources.
//!
//! Such a file parses, or nearly so, and would count as a document without resources.

use serde_json::{Map, Value};
use yumen_base::{FilePlace, LineSpan, Problem};

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

/// Whether an item has members that only Kong's entities have.
pub(super) fn is_kong_item(kind: Kind, members: &Map<String, Value>) -> bool {
    let has = |name: &str| members.contains_key(name);
    match kind {
        Kind::Services => has("url") || has("routes") || (has("host") && has("port")),
        Kind::Routes => has("paths") && !has("uri") && !has("uris"),
        _ => false,
    }
}

/// The problem of a document with nothing but such items.
pub(super) fn of_kong_items(list: Kind) -> Problem {
    let message = "all items have members of Kong's: the file is a configuration of Kong";
    Problem::error("file", list.name(), message).hint(KONG_HINT)
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
        let hint = "write the resources of the gateway: routes, services, upstreams";
        return problem(section, "unknown section: the file is a Kubernetes manifest", hint);
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
    let words = ["http", "server", "events", "stream", "upstream", "worker_processes", "user", "location"];
    let is_directive = |line: &str| {
        let line = line.trim_end();
        let word = line.trim_start().split([' ', '\t', '{']).next().unwrap_or_default();
        words.contains(&word) && (line.ends_with('{') || line.ends_with(';'))
    };
    let mut directives = text.lines().enumerate().filter(|(_, line)| is_directive(line));
    // A single line may be a part of a text in a value.
    let ((first, line), _) = (directives.next()?, directives.next()?);
    let hint = "write the resources of the gateway: routes, services, upstreams";
    let problem = Problem::error("file", "", "the file is a configuration of NGINX").hint(hint);
    let (line, width) =
        (u32::try_from(first + 1).ok()?, u32::try_from(line.trim_end().chars().count()).ok()?);
    let place = FilePlace { file: "".into(), span: LineSpan { line, column: 1, width } };
    Some(Problem { place: Some(place), ..problem })
}
