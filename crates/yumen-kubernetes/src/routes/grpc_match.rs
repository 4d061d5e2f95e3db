//! Matches of GRPCRoute.

use serde_json::{Map, Value, json};

use super::http_match::{FieldPlace, field_conditions};
use super::pattern_budget::PatternBudget;
use super::rule::{RuleDefect, RuleMatch};
use crate::model::{GrpcMethodMatch, GrpcRouteMatch};

/// Weights of the rules of precedence: a character of the service counts more than all of the method, a character of
/// the method more than all headers. A gRPC route comes before HTTP routes of the same path.
const KIND_RANK: i64 = 1 << 26;
const SERVICE_RANK: i64 = 1 << 15;
const METHOD_RANK: i64 = 1 << 5;
/// The most characters of a service or method that the API allows.
const NAME_MAX: usize = 1023;
const HEADERS_MAX: usize = 31;

/// The matches of a rule; without any, all calls match.
pub(super) fn rule_matches(
    written: &[GrpcRouteMatch],
    patterns: &mut PatternBudget,
) -> Result<Vec<RuleMatch>, RuleDefect> {
    if written.is_empty() {
        return Ok(vec![rule_match(&GrpcRouteMatch::default(), patterns)?]);
    }
    written.iter().map(|one| rule_match(one, patterns)).collect()
}

fn rule_match(written: &GrpcRouteMatch, patterns: &mut PatternBudget) -> Result<RuleMatch, RuleDefect> {
    let mut members = Map::new();
    members.insert("uri".to_owned(), "/*".into());
    let mut conditions = Map::new();
    let mut priority = KIND_RANK;
    if let Some(method) = &written.method {
        priority += add_method(method, &mut members, &mut conditions, patterns)?;
    }
    let headers = field_conditions(&written.headers, FieldPlace::Header, patterns)?;
    priority += count(headers.len(), HEADERS_MAX);
    if !headers.is_empty() {
        conditions.insert("headers".to_owned(), headers.into());
    }
    conditions.insert("is_grpc".to_owned(), true.into());
    members.insert("match".to_owned(), conditions.into());
    Ok(RuleMatch { members, priority, prefix: None })
}

/// Writes the condition on service and method. Returns its rank.
fn add_method(
    written: &GrpcMethodMatch,
    members: &mut Map<String, Value>,
    conditions: &mut Map<String, Value>,
    patterns: &mut PatternBudget,
) -> Result<i64, RuleDefect> {
    let present = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let (service, method) = (present(&written.service), present(&written.method));
    let length = |text: &Option<String>| count(text.as_ref().map_or(0, String::len), NAME_MAX);
    let rank = length(&service) * SERVICE_RANK + length(&method) * METHOD_RANK;
    match (written.kind.as_deref(), service, method) {
        (_, None, None) => return Err(RuleDefect::unsupported("a method match needs service or method")),
        (None | Some("Exact"), Some(service), method) => {
            check_name(&service)?;
            let path = match &method {
                None => json!({ "prefix": [format!("/{service}")] }),
                Some(method) => {
                    check_name(method)?;
                    json!({ "exact": [format!("/{service}/{method}")] })
                }
            };
            conditions.insert("paths".to_owned(), path);
        }
        (None | Some("Exact"), None, Some(method)) => {
            check_name(&method)?;
            members.insert("vars".to_owned(), path_condition("[^/]+", &escaped(&method)));
        }
        (Some("RegularExpression"), service, method) => {
            let any = || "[^/]+".to_owned();
            let (service, method) = (service.unwrap_or_else(any), method.unwrap_or_else(any));
            patterns.take("method", &format!("/(?:{service})/(?:{method})"))?;
            members.insert("vars".to_owned(), path_condition(&service, &method));
        }
        (Some(kind), ..) => {
            return Err(RuleDefect::unsupported(format!("method match of type {kind:?} is not supported")));
        }
    }
    Ok(rank)
}

/// A condition on the path of the leaf `/*`. `path_regex` would be tried before all prefixes, and so before a rule
/// with a service, which takes precedence over one without.
fn path_condition(service: &str, method: &str) -> Value {
    json!([["uri", "~~", format!("^/(?:{service})/(?:{method})$")]])
}

fn check_name(name: &str) -> Result<(), RuleDefect> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    match name.bytes().all(is_plain) && !matches!(name, "." | "..") {
        true => Ok(()),
        false => Err(RuleDefect::unsupported(format!("{name:?} is no name of a service or method"))),
    }
}

fn escaped(name: &str) -> String {
    name.replace('.', "\\.")
}

fn count(count: usize, max: usize) -> i64 {
    i64::try_from(count.min(max)).unwrap_or(0)
}
