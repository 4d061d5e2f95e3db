//! Conditions of a route beyond APISIX's: literal paths, patterns, fields, query arguments and gRPC.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::route::RouteSpec;
use crate::schema::InvalidSettings;

/// The pattern of `uri` that `match.paths` and `match.path_regex` replace.
const ANY_PATH: &str = "/*";

/// Conditions beside `uri`, `hosts` and `methods`; all of them must hold.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RouteMatchSpec {
    /// Literal paths, in which `:` and `*` are plain text. They replace `uri`, which must be `/*`.
    pub paths: Option<LiteralPathsSpec>,
    /// A pattern of paths. It replaces `uri`, which must be `/*`.
    pub path_regex: Option<PathRegexSpec>,
    /// Conditions on request fields. Of several fields with one name the first counts; names ignore case.
    #[schemars(length(min = 1, max = 64))]
    pub headers: Option<Vec<FieldMatchSpec>>,
    /// Conditions on query arguments, decoded. Of several arguments with one name the first counts.
    #[schemars(length(min = 1, max = 64))]
    pub queries: Option<Vec<FieldMatchSpec>>,
    /// Whether only gRPC calls match: requests whose media type is `application/grpc` or begins with
    /// `application/grpc+`.
    pub is_grpc: bool,
}

/// Literal paths. One of them must match the decoded path.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LiteralPathsSpec {
    /// Whole paths.
    #[schemars(inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    pub exact: Vec<String>,
    /// Prefixes by path element: `/a` matches `/a`, `/a/` and `/a/b`, but not `/ab`. A slash at the end is ignored.
    #[schemars(inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    pub prefix: Vec<String>,
    /// Prefixes by character: `/a` matches `/ab`, too.
    #[schemars(inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    pub starts_with: Vec<String>,
}

/// A pattern that a decoded path matches from its beginning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathRegexSpec {
    /// The regular expression. It always begins at the first byte of the path.
    #[schemars(length(min = 1, max = 4096))]
    pub pattern: String,
    /// Whether upper and lower case are equal.
    #[serde(default)]
    pub ignore_case: bool,
    /// Whether the match must end with the path.
    #[serde(default)]
    pub anchored_end: bool,
}

/// A condition on the first field or query argument of a name: one of `value`, `regex` and `is_absent`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldMatchSpec {
    /// The name.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// The whole value.
    #[schemars(length(max = 4096))]
    pub value: Option<String>,
    /// A regular expression that the whole value matches.
    #[schemars(length(min = 1, max = 4096))]
    pub regex: Option<String>,
    /// Whether the name must be absent.
    #[serde(default)]
    pub is_absent: bool,
}

/// Applies the rules of `match` beyond the schema.
pub(super) fn settle(route: &RouteSpec) -> Result<(), InvalidSettings> {
    let Some(written) = &route.matching else { return Ok(()) };
    check(written).map_err(|invalid| invalid.under("match"))?;
    let replacing = match (&written.paths, &written.path_regex) {
        (Some(_), _) => "match.paths",
        (None, Some(_)) => "match.path_regex",
        (None, None) => return Ok(()),
    };
    if route.uris().iter().eq([ANY_PATH]) {
        return Ok(());
    }
    let member = if route.uris.is_some() { "uris" } else { "uri" };
    let message = format!("`{replacing}` replaces the paths of the route, so `uri` must be \"{ANY_PATH}\"");
    Err(InvalidSettings::at(member, message).hint(format!("write uri: \"{ANY_PATH}\"")))
}

fn check(written: &RouteMatchSpec) -> Result<(), InvalidSettings> {
    if *written == RouteMatchSpec::default() {
        return Err(InvalidSettings::new("has no condition, and so no effect").hint("remove it"));
    }
    if written.paths.is_some() && written.path_regex.is_some() {
        return Err(InvalidSettings::at("path_regex", "only one of paths or path_regex is allowed"));
    }
    if let Some(paths) = &written.paths {
        check_paths(paths).map_err(|invalid| invalid.under("paths"))?;
    }
    for (at, field) in written.headers.iter().flatten().enumerate() {
        if !super::actions::is_token(&field.name) {
            let path = format!("headers[{at}].name");
            return Err(InvalidSettings::at(path, format!("\"{}\" is no name of a field", field.name)));
        }
    }
    for (member, list) in [("headers", &written.headers), ("queries", &written.queries)] {
        let has_one = |field: &FieldMatchSpec| {
            let conditions = [field.value.is_some(), field.regex.is_some(), field.is_absent];
            conditions.iter().filter(|is_written| **is_written).count() == 1
        };
        if let Some(at) = list.iter().flatten().position(|field| !has_one(field)) {
            let message = "exactly one of value, regex or is_absent: true is required";
            return Err(InvalidSettings::at(format!("{member}[{at}]"), message));
        }
    }
    Ok(())
}

fn check_paths(paths: &LiteralPathsSpec) -> Result<(), InvalidSettings> {
    let all = [("exact", &paths.exact), ("prefix", &paths.prefix), ("starts_with", &paths.starts_with)];
    if all.iter().all(|(_, list)| list.is_empty()) {
        return Err(InvalidSettings::new("at least one path is required"));
    }
    for (member, list) in all {
        for (at, path) in list.iter().enumerate() {
            if let Some(message) = flaw_of_path(path) {
                return Err(InvalidSettings::at(format!("{member}[{at}]"), message));
            }
        }
    }
    Ok(())
}

/// The reason for which no normal path can equal a literal one.
fn flaw_of_path(path: &str) -> Option<String> {
    if !path.starts_with('/') {
        return Some(format!("\"{path}\" must begin with a slash"));
    }
    if path.contains(['?', '#']) {
        return Some(format!("\"{path}\" must not contain a query or a fragment"));
    }
    // Requests are compared in normal form: such a path would match nothing.
    let is_dotted = path.split('/').any(|element| matches!(element, "." | ".."));
    let has_escaped_slash = path.to_ascii_lowercase().contains("%2f");
    (is_dotted || path.contains("//") || has_escaped_slash).then(|| {
        format!(
            "\"{path}\" matches no request: paths are compared without dot segments, double and encoded slashes"
        )
    })
}
