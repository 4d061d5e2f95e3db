//! Conditions over variables: the `vars` of routes and plugins and `_meta.filter`, in the language of
//! lua-resty-expr.

use std::fmt;

use serde_json::Value;
use yumen_config::masking;

use crate::{Exchange, Var};

mod operator;

use operator::ConditionTest;

/// A compiled condition.
#[derive(Debug, Clone)]
pub struct ConditionExpr {
    source: Value,
    root: ExprNode,
}

#[derive(Debug, Clone)]
enum ExprNode {
    Rule { var: Var, negated: bool, test: ConditionTest },
    All { nodes: Box<[ExprNode]>, negated: bool },
    Any { nodes: Box<[ExprNode]>, negated: bool },
}

impl ConditionExpr {
    /// The operators of conditions.
    pub const OPERATORS: [&str; 11] = ConditionTest::NAMES;

    /// Parses `[[var, op, value], ...]`. A `!` before `op` negates it; the list, or any rule in it, may begin
    /// with `AND`, `OR`, `!AND` or `!OR`. An empty list is always true.
    ///
    /// Messages equal those of lua-resty-expr where it has one.
    pub fn parse(value: &Value) -> Result<ConditionExpr, String> {
        let root = match value {
            Value::Null => return Err("missing argument rule".to_owned()),
            Value::Array(rules) if rules.is_empty() => always(),
            // Lua's JSON encoder writes an empty list as `{}`.
            Value::Object(members) if members.is_empty() => always(),
            Value::Array(rules) if rules[0].is_array() || logic(&rules[0]).is_some() => node(value)?,
            _ => return Err("rule should be wrapped inside brackets".to_owned()),
        };
        Ok(ConditionExpr { source: value.clone(), root })
    }

    /// Whether the condition is true for this exchange.
    pub fn eval(&self, ex: &Exchange<'_>) -> bool {
        self.root.eval(ex)
    }

    /// Whether the condition is true; `None` if that depends on a body that is not buffered yet.
    pub fn eval_before_body(&self, ex: &Exchange<'_>) -> Option<bool> {
        self.root.eval_before_body(ex)
    }

    /// Whether a variable is in the request body.
    pub fn needs_body(&self) -> bool {
        self.root.needs_body()
    }

    /// Whether all variables have their values before the response.
    pub fn reads_request_only(&self) -> bool {
        self.root.reads_request_only()
    }

    /// The first rule that is false; `None` if the condition is true.
    pub fn failing(&self, ex: &Exchange<'_>) -> Option<FailedCondition> {
        if self.eval(ex) {
            return None;
        }
        // With an operator, such as `OR`, no single rule is the cause.
        let rules = self.source.as_array().filter(|rules| rules.first().is_some_and(Value::is_array));
        let fails = |rule: &&Value| node(rule).is_ok_and(|node| !node.eval(ex));
        let rule = rules.and_then(|rules| rules.iter().find(fails)).unwrap_or(&self.source);
        let var = rule.get(0).filter(|first| logic(first).is_none()).and_then(Value::as_str);
        let value = |var: &str| Some(String::from_utf8_lossy(&Var::parse(var).get(ex)?).into_owned());
        Some(FailedCondition { rule: rule.clone(), var: var.map(str::to_owned), found: var.and_then(value) })
    }
}

/// A rule that is false.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedCondition {
    /// The rule as configured.
    pub rule: Value,
    /// The variable of the rule; `None` if it combines several rules.
    pub var: Option<String>,
    /// The value of the variable, if it has one.
    pub found: Option<String>,
}

/// Conditions are equal if their source is.
impl PartialEq for ConditionExpr {
    fn eq(&self, other: &ConditionExpr) -> bool {
        self.source == other.source
    }
}

/// Example: `["arg_v","==","2"] does not hold: arg_v is "1"`. Secrets that are compared are hidden: viewers read the text too.
impl fmt::Display for FailedCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rule = self.rule.clone();
        masking::hide_compared(&mut rule);
        write!(f, "{rule} does not hold")?;
        match (&self.var, &self.found) {
            (Some(var), Some(_)) if rule != self.rule => write!(f, ": {var} has another value"),
            (Some(var), Some(found)) => write!(f, ": {var} is {found:?}"),
            (Some(var), None) => write!(f, ": {var} has no value"),
            (None, _) => Ok(()),
        }
    }
}

impl ExprNode {
    fn eval(&self, ex: &Exchange<'_>) -> bool {
        match self {
            ExprNode::Rule { var, negated, test } => test.holds(var, ex) != *negated,
            ExprNode::All { nodes, negated } => nodes.iter().all(|node| node.eval(ex)) != *negated,
            ExprNode::Any { nodes, negated } => nodes.iter().any(|node| node.eval(ex)) != *negated,
        }
    }

    fn eval_before_body(&self, ex: &Exchange<'_>) -> Option<bool> {
        let (nodes, decisive, negated) = match self {
            ExprNode::Rule { var, .. } => return (!var.awaits_body(ex)).then(|| self.eval(ex)),
            ExprNode::All { nodes, negated } => (nodes, false, *negated),
            ExprNode::Any { nodes, negated } => (nodes, true, *negated),
        };
        let mut is_open = false;
        for node in nodes {
            match node.eval_before_body(ex) {
                // One decisive operand settles the group, even if others still need the body.
                Some(result) if result == decisive => return Some(decisive != negated),
                result => is_open |= result.is_none(),
            }
        }
        // No operand is decisive: before negation, AND is true and OR is false.
        (!is_open).then_some(decisive == negated)
    }

    fn needs_body(&self) -> bool {
        match self {
            ExprNode::Rule { var, .. } => var.needs_body(),
            ExprNode::All { nodes, .. } | ExprNode::Any { nodes, .. } => {
                nodes.iter().any(ExprNode::needs_body)
            }
        }
    }

    fn reads_request_only(&self) -> bool {
        match self {
            ExprNode::Rule { var, .. } => var.is_of_request(),
            ExprNode::All { nodes, .. } | ExprNode::Any { nodes, .. } => {
                nodes.iter().all(ExprNode::reads_request_only)
            }
        }
    }
}

fn always() -> ExprNode {
    ExprNode::All { nodes: Box::default(), negated: false }
}

/// Parses a logical operator: whether it combines by AND, and whether it negates.
fn logic(word: &Value) -> Option<(bool, bool)> {
    let word = word.as_str()?;
    let (negated, word) = match word.strip_prefix('!') {
        Some(word) => (true, word),
        None => (false, word),
    };
    if word.eq_ignore_ascii_case("and") {
        Some((true, negated))
    } else if word.eq_ignore_ascii_case("or") {
        Some((false, negated))
    } else {
        None
    }
}

fn node(value: &Value) -> Result<ExprNode, String> {
    let Value::Array(rules) = value else {
        return Err("rule should be wrapped inside brackets".to_owned());
    };
    let Some(first) = rules.first() else { return Err("rule too short".to_owned()) };
    if first.is_array() {
        return Ok(ExprNode::All { nodes: nodes(rules)?, negated: false });
    }
    let Some((all, negated)) = logic(first) else { return rule(rules) };
    if rules.len() <= 2 {
        return Err("rule too short".to_owned());
    }
    let nodes = nodes(&rules[1..])?;
    Ok(if all { ExprNode::All { nodes, negated } } else { ExprNode::Any { nodes, negated } })
}

fn nodes(rules: &[Value]) -> Result<Box<[ExprNode]>, String> {
    rules.iter().map(node).collect()
}

fn rule(parts: &[Value]) -> Result<ExprNode, String> {
    let (name, negated, operator, constant) = match parts {
        [name, not, operator, constant] => {
            if not.as_str() != Some("!") {
                return Err("bad 'not' expression".to_owned());
            }
            (name, true, Some(operator), Some(constant))
        }
        [name, rest @ ..] => (name, false, rest.first(), rest.get(1)),
        [] => return Err("rule too short".to_owned()),
    };
    let Some(name) = name.as_str() else { return Err("invalid expression".to_owned()) };
    let operator = match operator {
        None | Some(Value::Null) => return Err("invalid expression".to_owned()),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    // Operators are case-insensitive.
    let lower = operator.to_lowercase();
    let test = match constant {
        Some(constant) => ConditionTest::parse(&lower, constant)?,
        None if ConditionTest::is_operator(&lower) => ConditionTest::parse(&lower, &Value::Null)?,
        // The short form `[var, value]` is an equality with the value as written. lua-resty-expr compares its lower
        // case, which no value with an upper-case letter equals.
        None => ConditionTest::parse("==", &Value::String(operator))?,
    };
    Ok(ExprNode::Rule { var: Var::parse(name), negated, test })
}

#[cfg(test)]
mod tests;
