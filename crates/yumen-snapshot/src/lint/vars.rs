//! Conditions that no request can meet, as far as their text alone shows.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::Kind;

use super::ResourceTexts;

pub(super) fn check(texts: &ResourceTexts<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (resource, value) in texts.iter() {
        let mut look = |path: String, conditions: Option<&Value>, what: &str| {
            if let Some(reason) = conditions.and_then(never) {
                let message = format!("contradictory conditions, never matched: {reason}; {what}");
                problems.push(Problem::error(resource.to_string(), path, message));
            }
        };
        if resource.kind == Kind::Routes {
            look("vars".into(), value.get("vars"), "no request gets to this route");
        }
        for (name, settings) in value.get("plugins").and_then(Value::as_object).into_iter().flatten() {
            let path = format!("plugins.{name}._meta.filter");
            look(path, settings.pointer("/_meta/filter"), "the plugin never runs");
        }
    }
    problems
}

/// Why a condition never holds; `None` if it may hold or if that is unknown.
fn never(condition: &Value) -> Option<String> {
    let mut constraints = BTreeMap::new();
    let impossible = gather(condition, &mut constraints);
    impossible.or_else(|| {
        constraints.into_iter().find_map(|(variable, constraints)| constraints.contradiction(variable))
    })
}

/// Collects the constraints of a conjunction on each variable; returns the reason if one part alone never
/// holds.
fn gather<'v>(condition: &'v Value, constraints: &mut BTreeMap<&'v str, VarConstraints>) -> Option<String> {
    let items = condition.as_array()?;
    match items.first()? {
        Value::String(word) if word == "AND" => items[1..].iter().find_map(|item| gather(item, constraints)),
        Value::String(word) if word == "OR" => {
            // One alternative that may hold is enough.
            // `collect` into an `Option` yields a reason only if every alternative has one.
            let reasons: Option<Vec<String>> = items[1..].iter().map(never).collect();
            reasons?.into_iter().next()
        }
        // A negated group may hold although its parts contradict each other.
        Value::String(word) if word == "!AND" || word == "!OR" => None,
        Value::Array(_) => items.iter().find_map(|item| gather(item, constraints)),
        Value::String(variable) => {
            let constraints = constraints.entry(variable).or_insert_with(|| VarConstraints::of(variable));
            match &items[1..] {
                [value] => constraints.equals([text(value)].into()),
                [operator, value] => constraints.meets(operator.as_str()?, value),
                // `!` before an operator negates it. From other negations, nothing is concluded.
                [_, operator, value] if operator == "==" => drop(constraints.not.insert(text(value))),
                _ => {}
            }
            None
        }
        _ => None,
    }
}

/// In conditions a number equals the text of the same form.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The constraints on one variable.
struct VarConstraints {
    /// The allowed values; `None` allows all.
    one_of: Option<BTreeSet<String>>,
    not: BTreeSet<String>,
    above: f64,
    at_least: f64,
    below: f64,
    at_most: f64,
}

impl VarConstraints {
    /// The constraints without any condition: the values that the variable can have.
    fn of(variable: &str) -> VarConstraints {
        // The variable has no other values.
        let schemes = || ["http", "https"].map(str::to_owned).into();
        let infinite = (f64::NEG_INFINITY, f64::INFINITY);
        VarConstraints {
            one_of: (variable == "scheme").then(schemes),
            not: BTreeSet::new(),
            above: infinite.0,
            at_least: infinite.0,
            below: infinite.1,
            at_most: infinite.1,
        }
    }

    fn meets(&mut self, operator: &str, value: &Value) {
        let number = text(value).parse::<f64>().ok();
        match (operator, number) {
            ("==", _) => self.equals([text(value)].into()),
            ("in", _) => {
                if let Some(all) = value.as_array() {
                    self.equals(all.iter().map(text).collect());
                }
            }
            ("~=", _) => drop(self.not.insert(text(value))),
            (">", Some(number)) => self.above = self.above.max(number),
            (">=", Some(number)) => self.at_least = self.at_least.max(number),
            ("<", Some(number)) => self.below = self.below.min(number),
            ("<=", Some(number)) => self.at_most = self.at_most.min(number),
            _ => {}
        }
    }

    fn equals(&mut self, values: BTreeSet<String>) {
        self.one_of = Some(match &self.one_of {
            Some(before) => before.intersection(&values).cloned().collect(),
            None => values,
        });
    }

    fn is_bounded(&self) -> bool {
        [self.above, self.at_least, self.below, self.at_most].into_iter().any(f64::is_finite)
    }

    /// Whether a value is within the bounds. A value that is not a number is outside of any bound.
    fn is_between(&self, value: &str) -> bool {
        let is_inside = |number: f64| {
            number > self.above && number >= self.at_least && number < self.below && number <= self.at_most
        };
        !self.is_bounded() || value.parse().is_ok_and(is_inside)
    }

    fn contradiction(self, variable: &str) -> Option<String> {
        let (low, high) = (self.above.max(self.at_least), self.below.min(self.at_most));
        // Equal bounds leave one value, unless one of them is exclusive.
        if low > high || (low == high && (self.above == low || self.below == high)) {
            return Some(format!("{variable} would have to be beyond {low} and {high} at once"));
        }
        let left = self.one_of.as_ref()?.iter().find(|one| !self.not.contains(*one) && self.is_between(one));
        match left {
            None => Some(format!("no value of {variable} satisfies all conditions")),
            Some(method) if variable == "request_method" => {
                // Methods are case-sensitive (RFC 9110 §9.1), and the registered ones are in upper case.
                let is_method = |one: &String| !one.bytes().any(|byte| byte.is_ascii_lowercase());
                let wrong = !self.one_of.iter().flatten().any(is_method);
                wrong.then(|| format!("{variable} is never \"{method}\": methods are in upper case"))
            }
            Some(_) => None,
        }
    }
}
