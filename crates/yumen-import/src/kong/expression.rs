//! Kong's router expressions as conditions. Must not know routes.

mod parse;

use serde_json::{Value, json};
use yumen_plugin::{PatternOptions, RegexPattern};

use super::paths::{KongPath, escape};
use parse::{FieldComparison, KongExprLiteral, KongExprNode};

/// The conditions of an expression.
#[derive(Debug, PartialEq)]
pub(super) struct ExpressionMatch {
    /// Conditions that must all be true.
    pub(super) conditions: Vec<Value>,
    /// The path, if the expression names exactly one.
    pub(super) path: Option<KongPath>,
}

/// Converts an expression.
///
/// # Errors
/// The part that has no counterpart or is malformed.
pub(super) fn translate(text: &str) -> Result<ExpressionMatch, String> {
    let root = parse::parse(text)?;
    let all = match root {
        // Conditions of a route are joined by AND, so the outermost group needs none.
        KongExprNode::All(nodes) => nodes,
        one => vec![one],
    };
    let conditions = all.iter().map(condition).collect::<Result<Vec<_>, _>>()?;
    let mut paths: Vec<KongPath> = all.iter().filter_map(path).collect();
    // With several paths, the one to strip is not certain.
    let path = if paths.len() == 1 { paths.pop() } else { None };
    Ok(ExpressionMatch { conditions, path })
}

/// Converts the conditions of an expression that are understood, of which the others only exclude requests; `None` if
/// none of them is on the path.
pub(super) fn translate_known(text: &str) -> Option<ExpressionMatch> {
    let KongExprNode::All(nodes) = parse::parse(text).ok()? else { return None };
    let known: Vec<(&KongExprNode, Value)> =
        nodes.iter().filter_map(|node| Some((node, condition(node).ok()?))).collect();
    let names_path = known.iter().any(|(node, _)| path(node).is_some());
    let conditions = known.into_iter().map(|(_, condition)| condition).collect();
    names_path.then_some(ExpressionMatch { conditions, path: None })
}

fn condition(node: &KongExprNode) -> Result<Value, String> {
    let grouped = |word: &str, nodes: &[KongExprNode]| {
        let mut group = vec![json!(word)];
        for node in nodes {
            group.push(condition(node)?);
        }
        Ok(Value::Array(group))
    };
    match node {
        KongExprNode::All(nodes) => grouped("AND", nodes),
        KongExprNode::Any(nodes) => grouped("OR", nodes),
        KongExprNode::Not(node) => condition(node).map(negated),
        KongExprNode::Call(call) => compare(call),
    }
}

/// Negates a condition.
fn negated(condition: Value) -> Value {
    let Value::Array(mut items) = condition else { return condition };
    match items[0].as_str() {
        Some(word @ ("AND" | "OR")) => items[0] = json!(format!("!{word}")),
        Some("!AND" | "!OR") => {
            items[0] = json!(items[0].as_str().unwrap_or_default().trim_start_matches('!'))
        }
        // A double negation; the form of a condition has one at most.
        _ if items[1] == "!" => drop(items.remove(1)),
        _ => items.insert(1, json!("!")),
    }
    Value::Array(items)
}

/// The variable with the value of a field.
fn variable(field: &str) -> Result<String, String> {
    let name = match field {
        "net.protocol" => "scheme",
        "tls.sni" => "ssl_server_name",
        "http.method" => "request_method",
        "http.host" => "host",
        "http.path" => "uri",
        "net.src.ip" => "remote_addr",
        "net.src.port" => "remote_port",
        "net.dst.ip" => "server_addr",
        "net.dst.port" => "server_port",
        other => {
            let named = [("http.headers.", "http_"), ("http.queries.", "arg_")];
            let found =
                named.iter().find_map(|(from, to)| Some(format!("{to}{}", other.strip_prefix(from)?)));
            // An unknown field refuses the expression: without that condition the route would match more requests.
            return found.ok_or_else(|| format!("there is nothing like {other} here"));
        }
    };
    Ok(name.to_owned())
}

/// The condition on one segment of the path; `None` for other comparisons.
fn compare_segment(call: &FieldComparison) -> Option<Value> {
    let number: usize = call.field.strip_prefix("http.path.segments.")?.parse().ok()?;
    let KongExprLiteral::Text(text) = &call.literal else { return None };
    let end = match call.operator.as_str() {
        "==" => "(?:/|$)",
        "^=" => "",
        _ => return None,
    };
    let before = if number > 0 { format!("(?:[^/]*/){{{number}}}") } else { String::new() };
    let operator = if call.is_lowered { "~*" } else { "~~" };
    Some(json!(["uri", operator, format!("^/{before}{}{end}", escape(text))]))
}

fn compare(call: &FieldComparison) -> Result<Value, String> {
    if let Some(condition) = compare_segment(call) {
        return Ok(condition);
    }
    let variable = variable(&call.field)?;
    let unknown = || format!("{} {} means nothing here", call.field, call.operator);
    match &call.literal {
        KongExprLiteral::Address(address) => match call.operator.as_str() {
            "==" | "in" => Ok(json!([variable, "ipmatch", [address]])),
            "!=" | "not in" => Ok(json!([variable, "!", "ipmatch", [address]])),
            _ => Err(unknown()),
        },
        KongExprLiteral::Number(number) => match call.operator.as_str() {
            "!=" => Ok(json!([variable, "~=", number])),
            operator @ ("==" | ">" | ">=" | "<" | "<=") => Ok(json!([variable, operator, number])),
            _ => Err(unknown()),
        },
        KongExprLiteral::Text(text) => {
            let regex = match call.operator.as_str() {
                "==" if !call.is_lowered => return Ok(json!([variable, "==", text])),
                // In Kong, a comparison with an absent field is false.
                "!=" if !call.is_lowered => {
                    return Ok(json!(["AND", [variable, "~=", null], [variable, "~=", text]]));
                }
                "==" => format!("^{}$", escape(text)),
                "^=" => format!("^{}", escape(text)),
                "=^" => format!("{}$", escape(text)),
                "contains" => escape(text),
                "~" => text.clone(),
                _ => return Err(unknown()),
            };
            // Compiled here: a pattern that fails later would cost the whole route.
            let is_invalid = RegexPattern::new(&regex, PatternOptions::default()).is_err();
            match is_invalid {
                true => Err(format!("the pattern {regex} cannot be used")),
                false => Ok(json!([variable, if call.is_lowered { "~*" } else { "~~" }, regex])),
            }
        }
    }
}

/// The path of one condition, as far as it can be stripped.
fn path(node: &KongExprNode) -> Option<KongPath> {
    let KongExprNode::Call(FieldComparison {
        field,
        is_lowered: false,
        operator,
        literal: KongExprLiteral::Text(text),
    }) = node
    else {
        return None;
    };
    match (field.as_str(), operator.as_str()) {
        ("http.path", "^=") => Some(KongPath::Prefix(text.clone())),
        ("http.path", "==") => Some(KongPath::Pattern(format!("{}$", escape(text)))),
        ("http.path", "~") => Some(KongPath::Pattern(text.clone())),
        _ => None,
    }
}
