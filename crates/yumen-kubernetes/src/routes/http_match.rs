//! Matches of HTTPRoute.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::field_edits::is_token;
use super::pattern_budget::PatternBudget;
use super::rule::{RuleDefect, RuleMatch};
use crate::model::{HttpRouteMatch, TypedNameValue};

/// Methods of the API.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// Weights of the rules of precedence below the path: a method counts more than all headers, a header more than all
/// query parameters.
const METHOD_RANK: i64 = 1024;
const HEADER_RANK: i64 = 32;
/// The most headers, and query parameters, that count.
const COUNT_MAX: usize = 31;

/// The matches of a rule; without any, all requests match.
pub(super) fn rule_matches(
    written: &[HttpRouteMatch],
    patterns: &mut PatternBudget,
) -> Result<Vec<RuleMatch>, RuleDefect> {
    if written.is_empty() {
        return Ok(vec![rule_match(&HttpRouteMatch::default(), patterns)?]);
    }
    written.iter().map(|one| rule_match(one, patterns)).collect()
}

fn rule_match(written: &HttpRouteMatch, patterns: &mut PatternBudget) -> Result<RuleMatch, RuleDefect> {
    let mut conditions = Map::new();
    let prefix = path(written, &mut conditions, patterns)?;
    let headers = field_conditions(&written.headers, FieldPlace::Header, patterns)?;
    let queries = field_conditions(&written.query_params, FieldPlace::Query, patterns)?;
    let mut priority = rank(headers.len()) * HEADER_RANK + rank(queries.len());
    for (name, list) in [("headers", headers), ("queries", queries)] {
        if !list.is_empty() {
            conditions.insert(name.to_owned(), list.into());
        }
    }
    let mut members = Map::new();
    members.insert("uri".to_owned(), "/*".into());
    if let Some(method) = &written.method {
        if &**method == "TRACE" {
            // The gateway answers TRACE itself (RFC 9110 §9.3.8), before routing.
            return Err(RuleDefect::unsupported("method TRACE is never forwarded"));
        }
        if !METHODS.contains(&&**method) {
            return Err(RuleDefect::unsupported(format!("method {method:?} is not supported")));
        }
        priority += METHOD_RANK;
        members.insert("methods".to_owned(), json!([&**method]));
    }
    if !conditions.is_empty() {
        members.insert("match".to_owned(), conditions.into());
    }
    Ok(RuleMatch { members, priority, prefix })
}

/// Writes the condition on the path. Returns the path if it is a prefix.
fn path(
    written: &HttpRouteMatch,
    conditions: &mut Map<String, Value>,
    patterns: &mut PatternBudget,
) -> Result<Option<String>, RuleDefect> {
    let path = written.path.as_ref();
    let kind = path.and_then(|path| path.kind.as_deref()).unwrap_or("PathPrefix");
    let value = path.and_then(|path| path.value.as_deref()).unwrap_or("/");
    if kind == "RegularExpression" {
        if value.is_empty() {
            return Err(RuleDefect::unsupported("the path of type RegularExpression is empty"));
        }
        patterns.take("path", value)?;
        conditions.insert("path_regex".to_owned(), json!({ "pattern": value, "anchored_end": true }));
        return Ok(None);
    }
    check_path(value)?;
    match kind {
        "Exact" => {
            conditions.insert("paths".to_owned(), json!({ "exact": [value] }));
            Ok(None)
        }
        "PathPrefix" => {
            // Every path is below the root: no condition.
            if value != "/" {
                conditions.insert("paths".to_owned(), json!({ "prefix": [value] }));
            }
            Ok(Some(value.to_owned()))
        }
        other => Err(RuleDefect::unsupported(format!("path type {other:?} is not supported"))),
    }
}

/// Refuses paths that no request in normal form has.
fn check_path(path: &str) -> Result<(), RuleDefect> {
    let is_dotted = path.split('/').any(|element| matches!(element, "." | ".."));
    let has_escaped_slash = path.to_ascii_lowercase().contains("%2f");
    let is_sound = path.starts_with('/')
        && !path.contains("//")
        && !path.contains(['?', '#'])
        && !is_dotted
        && !has_escaped_slash;
    match is_sound {
        true => Ok(()),
        false => Err(RuleDefect::unsupported(format!("path {path:?} matches no request"))),
    }
}

/// The place of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldPlace {
    Header,
    Query,
}

/// Conditions on headers or query parameters. Of several with one name the first counts, as the API requires.
pub(super) fn field_conditions(
    written: &[TypedNameValue],
    place: FieldPlace,
    patterns: &mut PatternBudget,
) -> Result<Vec<Value>, RuleDefect> {
    let mut names = BTreeSet::new();
    let mut conditions = Vec::with_capacity(written.len());
    for TypedNameValue { kind, name, value } in written {
        let is_header = place == FieldPlace::Header;
        if name.is_empty() || (is_header && !is_token(name)) {
            return Err(RuleDefect::unsupported(format!("{name:?} is no name of a header or parameter")));
        }
        let identity = if is_header { name.to_ascii_lowercase() } else { name.clone() };
        if !names.insert(identity) {
            continue;
        }
        conditions.push(match kind.as_deref() {
            None | Some("Exact") => json!({ "name": name, "value": value }),
            Some("RegularExpression") if !value.is_empty() => {
                patterns.take(name, value)?;
                json!({ "name": name, "regex": value })
            }
            Some(kind) => {
                let message = format!("the match of type {kind:?} on {name} is not supported or empty");
                return Err(RuleDefect::unsupported(message));
            }
        });
    }
    Ok(conditions)
}

fn rank(count: usize) -> i64 {
    i64::try_from(count.min(COUNT_MAX)).unwrap_or(0)
}
