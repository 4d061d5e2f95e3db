//! Policy lines and role relations of Casbin, and the decision about a request.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::expression::{CasbinMatcher, MatchCondition, MatchTerm, PatternSource};
use super::model::{CasbinModel, PolicyEffect};
use super::patterns::{KeyPattern, PatternCache};

/// Lines of one policy. A request evaluates the matcher for each of them, on the worker.
const LINES_MAX: usize = 10_000;
/// Length of the chain from a name to a role, as in Casbin.
const ROLE_DEPTH_MAX: usize = 10;

/// A model with its policy, ready for requests.
#[derive(Debug)]
pub(crate) struct CasbinEnforcer {
    effect: PolicyEffect,
    condition: MatchCondition,
    rules: Vec<PolicyRule>,
    /// Role relations, by their index in the model.
    relations: Vec<RoleLinks>,
}

/// A policy line.
#[derive(Debug)]
struct PolicyRule {
    values: Vec<String>,
    denies: bool,
    /// Patterns of the calls of the matcher, by their number.
    patterns: Vec<Arc<KeyPattern>>,
}

/// Direct roles of a name, within a domain; the domain is empty in relations without.
#[derive(Debug, Default)]
struct RoleLinks {
    roles: HashMap<(String, String), Vec<String>>,
}

impl RoleLinks {
    /// All roles of a name, with the name itself.
    fn of<'r>(&'r self, name: &'r str, domain: &str) -> HashSet<&'r str> {
        let mut found = HashSet::from([name]);
        let mut level = vec![name];
        for _ in 0..ROLE_DEPTH_MAX {
            let mut next = Vec::new();
            for name in level {
                let roles = self.roles.get(&(name.to_owned(), domain.to_owned()));
                next.extend(
                    roles.into_iter().flatten().map(String::as_str).filter(|role| found.insert(role)),
                );
            }
            if next.is_empty() {
                break;
            }
            level = next;
        }
        found
    }
}

impl CasbinEnforcer {
    /// Compiles a model and its policy. An error comes with the one that is wrong.
    pub(crate) fn compile(model: &str, policy: &str) -> Result<CasbinEnforcer, (CasbinPart, String)> {
        let of_model = |why| (CasbinPart::Model, why);
        let model = CasbinModel::parse(model).map_err(of_model)?;
        let matcher = CasbinMatcher::parse(&model).map_err(of_model)?;
        let mut cache = PatternCache::default();
        for call in &matcher.calls {
            if let PatternSource::Text(text) = &call.pattern {
                cache.get(call.function, text).map_err(of_model)?;
            }
        }
        read_policy(&model, matcher, cache, policy).map_err(|why| (CasbinPart::Policy, why))
    }

    /// Whether the policy allows the request: user, path and method.
    pub(crate) fn allows(&self, request: [&str; 3]) -> bool {
        let decision = RequestDecision { enforcer: self, request, roles: RefCell::default() };
        let mut matched = self.rules.iter().filter(|rule| decision.holds(&self.condition, rule));
        match self.effect {
            PolicyEffect::AllowOverride => matched.any(|rule| !rule.denies),
            PolicyEffect::DenyOverride => !matched.any(|rule| rule.denies),
            PolicyEffect::Priority => matched.next().is_some_and(|rule| !rule.denies),
            PolicyEffect::AllowAndDeny => {
                let mut allowed = false;
                for rule in matched {
                    if rule.denies {
                        return false;
                    }
                    allowed = true;
                }
                allowed
            }
        }
    }
}

/// The text that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CasbinPart {
    Model,
    Policy,
}

fn read_policy(
    model: &CasbinModel,
    matcher: CasbinMatcher,
    mut cache: PatternCache,
    text: &str,
) -> Result<CasbinEnforcer, String> {
    let mut rules = Vec::new();
    let mut relations: Vec<RoleLinks> = model.relations.iter().map(|_| RoleLinks::default()).collect();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if number > LINES_MAX {
            return Err(format!("the policy has more than {LINES_MAX} lines"));
        }
        let in_line = |why: String| format!("line {number} of the policy: {why}");
        let mut values = fields(line).map_err(in_line)?;
        let kind = values.remove(0);
        if kind == "p" {
            rules.push(rule(model, &matcher, &mut cache, values).map_err(in_line)?);
            continue;
        }
        let relation = model.relations.iter().position(|relation| relation.name == kind);
        let relation = relation.ok_or_else(|| in_line(format!("the model does not define {kind}")))?;
        let expected = if model.relations[relation].has_domain { 3 } else { 2 };
        if values.len() != expected {
            return Err(in_line(format!("{kind} has {expected} values")));
        }
        let mut values = values.into_iter();
        let (Some(name), Some(role)) = (values.next(), values.next()) else { continue };
        let domain = values.next().unwrap_or_default();
        relations[relation].roles.entry((name, domain)).or_default().push(role);
    }
    if rules.is_empty() {
        return Err("the policy has no line that begins with `p,`".to_owned());
    }
    if let Some(at) = model.policy.iter().position(|name| name == "priority") {
        sort_by_priority(&mut rules, at)?;
    }
    Ok(CasbinEnforcer { effect: model.effect, condition: matcher.condition, rules, relations })
}

fn rule(
    model: &CasbinModel,
    matcher: &CasbinMatcher,
    cache: &mut PatternCache,
    values: Vec<String>,
) -> Result<PolicyRule, String> {
    if values.len() != model.policy.len() {
        let expected = model.policy.len();
        return Err(format!("the line has {} values after p; the model defines {expected}", values.len()));
    }
    let effect = model.policy.iter().position(|name| name == "eft").map(|at| values[at].as_str());
    let denies = match effect {
        None | Some("allow") => false,
        Some("deny") => true,
        Some(other) => return Err(format!("the effect \"{other}\" is neither allow nor deny")),
    };
    let patterns = matcher.calls.iter().map(|call| {
        let text = match &call.pattern {
            PatternSource::Policy(index) => &values[*index],
            PatternSource::Text(text) => text,
        };
        cache.get(call.function, text)
    });
    let patterns = patterns.collect::<Result<_, _>>()?;
    Ok(PolicyRule { values, denies, patterns })
}

/// Smaller numbers first; lines of one priority keep their order.
fn sort_by_priority(rules: &mut [PolicyRule], at: usize) -> Result<(), String> {
    let priority = |rule: &PolicyRule| rule.values[at].parse::<i64>();
    if let Some(rule) = rules.iter().find(|rule| priority(rule).is_err()) {
        return Err(format!("the priority \"{}\" is no number", rule.values[at]));
    }
    rules.sort_by_key(|rule| priority(rule).unwrap_or(i64::MAX));
    Ok(())
}

/// The fields of a line: separated by commas, in quotes where they contain one.
fn fields(line: &str) -> Result<Vec<String>, String> {
    let (mut found, mut rest) = (Vec::new(), line);
    loop {
        rest = rest.trim_start();
        let after = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (mut value, mut tail) = (String::new(), quoted);
                loop {
                    let end = tail.find('"').ok_or("a quote is not closed")?;
                    value.push_str(&tail[..end]);
                    tail = &tail[end + 1..];
                    // A doubled quote is one (RFC 4180 §2).
                    match tail.strip_prefix('"') {
                        Some(more) => {
                            value.push('"');
                            tail = more;
                        }
                        None => break,
                    }
                }
                found.push(value);
                tail.trim_start()
            }
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                found.push(rest[..end].trim_end().to_owned());
                &rest[end..]
            }
        };
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(found),
            None => return Err("text follows a closing quote".to_owned()),
        }
    }
}

/// The evaluation for one request.
struct RequestDecision<'d> {
    enforcer: &'d CasbinEnforcer,
    request: [&'d str; 3],
    /// Roles that were looked up: most lines ask for those of the same name.
    roles: RefCell<Vec<KnownRoles<'d>>>,
}

struct KnownRoles<'d> {
    relation: usize,
    name: &'d str,
    domain: &'d str,
    roles: HashSet<&'d str>,
}

impl<'d> RequestDecision<'d> {
    fn holds(&self, condition: &'d MatchCondition, rule: &'d PolicyRule) -> bool {
        match condition {
            MatchCondition::All(parts) => parts.iter().all(|part| self.holds(part, rule)),
            MatchCondition::Any(parts) => parts.iter().any(|part| self.holds(part, rule)),
            MatchCondition::Not(inner) => !self.holds(inner, rule),
            MatchCondition::Constant(value) => *value,
            MatchCondition::Equal(left, right) => self.text(left, rule) == self.text(right, rule),
            MatchCondition::Same(left, right) => self.holds(left, rule) == self.holds(right, rule),
            MatchCondition::In(term, list) => {
                let text = self.text(term, rule);
                list.iter().any(|one| self.text(one, rule) == text)
            }
            MatchCondition::Pattern { call, subject } => {
                rule.patterns.get(*call).is_some_and(|pattern| pattern.matches(self.text(subject, rule)))
            }
            MatchCondition::Role { relation, name, role, domain } => {
                let domain = domain.as_ref().map_or("", |domain| self.text(domain, rule));
                self.has_role(*relation, self.text(name, rule), self.text(role, rule), domain)
            }
        }
    }

    fn text(&self, term: &'d MatchTerm, rule: &'d PolicyRule) -> &'d str {
        match term {
            MatchTerm::Request(index) => self.request[*index],
            MatchTerm::Policy(index) => &rule.values[*index],
            MatchTerm::Text(text) => text,
        }
    }

    fn has_role(&self, relation: usize, name: &'d str, role: &str, domain: &'d str) -> bool {
        if name == role {
            return true;
        }
        let mut known = self.roles.borrow_mut();
        let is_same =
            |one: &KnownRoles<'_>| one.relation == relation && one.name == name && one.domain == domain;
        if let Some(found) = known.iter().find(|one| is_same(one)) {
            return found.roles.contains(role);
        }
        let roles = self.enforcer.relations[relation].of(name, domain);
        let has = roles.contains(role);
        // Names of policy lines are many; those of the request are few.
        if known.len() < 8 {
            known.push(KnownRoles { relation, name, domain, roles });
        }
        has
    }
}
