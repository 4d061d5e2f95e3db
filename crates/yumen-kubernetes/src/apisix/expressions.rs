//! Expressions of matches as `vars`.

use serde_json::{Value, json};

use crate::model::ApisixExpression;
use crate::resources::SpecDefect;

/// The member `vars`.
pub(super) fn vars_value(expressions: &[ApisixExpression]) -> Result<Vec<Value>, SpecDefect> {
    let numbered = expressions.iter().enumerate();
    numbered
        .map(|(at, one)| var_value(one).map_err(|message| SpecDefect::new(format!("vars[{at}]"), message)))
        .collect()
}

fn var_value(expression: &ApisixExpression) -> Result<Value, String> {
    let name = &expression.subject.name;
    let scope = &*expression.subject.scope;
    if name.is_empty() && scope != "Path" {
        return Err("subject.name is empty".to_owned());
    }
    let variable = match scope {
        "Query" => format!("arg_{name}"),
        "Header" => format!("http_{}", name.to_ascii_lowercase().replace('-', "_")),
        "Cookie" => format!("cookie_{name}"),
        "Path" => "uri".to_owned(),
        "Variable" => name.clone(),
        "Body" => format!("post_arg.{name}"),
        other => {
            let message = "allowed: Query, Header, Cookie, Path, Variable, Body";
            return Err(format!("subject.scope {other:?} is not supported; {message}"));
        }
    };
    let (is_negated, operator) = match &*expression.op {
        "Equal" => (false, "=="),
        "NotEqual" => (false, "~="),
        "GreaterThan" => (false, ">"),
        "GreaterThanEqual" => (false, ">="),
        "LessThan" => (false, "<"),
        "LessThanEqual" => (false, "<="),
        "In" => (false, "in"),
        "NotIn" => (true, "in"),
        "RegexMatch" => (false, "~~"),
        "RegexNotMatch" => (true, "~~"),
        "RegexMatchCaseInsensitive" => (false, "~*"),
        "RegexNotMatchCaseInsensitive" => (true, "~*"),
        other => return Err(format!("op {other:?} is not supported")),
    };
    let operand = match (operator, &expression.set, &expression.value) {
        ("in", Some(set), _) => json!(set),
        ("in", None, _) => return Err(format!("op {} needs set", expression.op)),
        (_, _, Some(value)) => json!(value),
        (_, _, None) => return Err(format!("op {} needs value", expression.op)),
    };
    let mut words = vec![Value::from(variable)];
    words.extend(is_negated.then(|| Value::from("!")));
    words.push(operator.into());
    words.push(operand);
    Ok(words.into())
}
